"""What is never shown: arguments that are marked as secret, and passwords inside of URLs.

Pure: values in, values out. Whoever shows a job to a person or a program outside of it shows it through here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dibs.job import AttemptError, Job, LogLine, Report

HIDDEN = "•••"
ALWAYS = frozenset({"password", "passwd", "secret", "token", "api_key", "authorization"})
"""Names that are hidden without anybody saying so, in whatever case, however deep."""
EVERYWHERE = "*"
"""Stands for every task, where names are told by task."""

_SHORTEST = 4
"""A hidden value that is shorter is not looked for in texts: it would be found in half of them."""
_DEPTH = 80
_IN_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]{0,30}://[^\s:/@?#]{0,100}:)[^\s/@]{1,500}(?:@[^\s/@]{1,500})*(@)")
_IN_QUERY = re.compile(
    r"([?&][a-z0-9_\-]{0,30}(?:pass|secret|token|api_?key)[a-z0-9_\-]{0,30}=)[^\s&#'\"]+", re.IGNORECASE
)


class Redaction(msgspec.Struct, frozen=True):
    """Which names are hidden: everywhere, and in the arguments of single tasks. All in lower case."""

    names: frozenset[str] = ALWAYS
    by_task: Mapping[str, frozenset[str]] = {}

    @classmethod
    def of(cls, names: Iterable[str] = (), by_task: Mapping[str, Iterable[str]] | None = None) -> "Redaction":
        """Those names, and the ones that are always hidden."""
        tasks = {task: _lower(marked) for task, marked in (by_task or {}).items()}
        return cls(ALWAYS | _lower(names), {task: marked for task, marked in tasks.items() if marked})

    def plus(self, other: "Redaction") -> "Redaction":
        """What either of them hides."""
        tasks = {*self.by_task, *other.by_task}
        none: frozenset[str] = frozenset()
        merged = {task: self.by_task.get(task, none) | other.by_task.get(task, none) for task in tasks}
        return Redaction(self.names | other.names, merged)

    def told(self) -> dict[str, list[str]]:
        """As JSON, without what is always hidden: how a worker tells it to those who have not its code."""
        own = {EVERYWHERE: self.names - ALWAYS, **self.by_task}
        return {task: sorted(names) for task, names in own.items() if names}

    @classmethod
    def heard(cls, said: Any) -> "Redaction":
        """What a worker told. Anybody may have written anything there."""
        if not isinstance(said, dict):
            return cls()
        read = {
            task: [name for name in names if isinstance(name, str)]
            for task, names in said.items()
            if isinstance(names, list)
        }
        return cls.of(read.pop(EVERYWHERE, ()), read)

    # --- hiding ---------------------------------------------------------------------------------------------

    def value(self, value: Any, task: str | None = None) -> Any:
        """The value with all that is marked hidden."""
        return self._walk(value, self._marked(task), set())

    def secrets(self, jobs: Iterable[Job]) -> frozenset[str]:
        """The values that are hidden in these jobs. Steps hand results on: what one hides others must not tell."""
        found = set[str]()
        for job in jobs:
            self._walk([job.args, job.meta, job.result], self._marked(job.task), found)
        return frozenset(found)

    def job(self, job: Job, also: Iterable[str] = ()) -> Job:
        """The job as it may be shown: marked values are hidden, also where its result, errors and log repeat them.

        ``also`` are more values that are hidden wherever they stand: see ``secrets``.
        """
        marked, found = self._marked(job.task), set(also)
        args = self._walk(job.args, marked, found)
        inputs = self._walk(job.inputs, marked, found)
        meta = self._walk(job.meta, marked, found)
        result = self._walk(job.result, marked, found)
        clean = _cleaner(found)
        return msgspec.structs.replace(
            job,
            args=_cleaned(args, clean) if also else args,
            inputs=_cleaned(inputs, clean) if found else inputs,
            meta=_cleaned(meta, clean) if found else meta,
            result=_cleaned(result, clean) if found else result,
            key=None if job.key is None else clean(job.key),
            limit_key=None if job.limit_key is None else clean(job.limit_key),
            errors=tuple(_error(each, clean) for each in job.errors),
            report=_report(job.report, clean),
        )

    def _marked(self, task: str | None) -> frozenset[str]:
        own = None if task is None else self.by_task.get(task)
        return self.names if own is None else self.names | own

    def _walk(self, value: Any, marked: frozenset[str], found: set[str], depth: int = _DEPTH) -> Any:
        if isinstance(value, str):
            return text_without_secrets(value)
        if depth == 0:
            return HIDDEN
        if isinstance(value, dict):
            return {
                name: _hide(each, found) if str(name).lower() in marked else self._walk(each, marked, found, depth - 1)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._walk(each, marked, found, depth - 1) for each in value]
        return value


def safe_text(text: str, found: Iterable[str]) -> str:
    """The text without those values and without passwords of URLs."""
    for secret in found:
        text = text.replace(secret, HIDDEN)
    return text_without_secrets(text)


def text_without_secrets(text: str) -> str:
    """The text without the passwords of the URLs in it."""
    if "://" not in text and "=" not in text:
        return text
    return _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}\2", text))


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _hide(value: Any, found: set[str]) -> str | None:
    """Nothing is nothing; anything else is hidden, and remembered, to be hidden in texts, too."""
    if value is None:
        return None
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            rest += each.values()
        elif isinstance(each, list | tuple):
            rest += each
        elif not isinstance(each, bool) and each is not None and len(str(each)) >= _SHORTEST:
            found.add(str(each))
    return HIDDEN


def _cleaner(found: set[str]) -> Any:
    longest_first = sorted(found, key=len, reverse=True)
    return lambda text: safe_text(text, longest_first)


def _cleaned(value: Any, clean: Any) -> Any:
    """The value without what is hidden, in all texts of it; a number that is hidden is hidden as well."""
    if isinstance(value, dict):
        return {name: _cleaned(each, clean) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(each, clean) for each in value]
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and clean(str(value)) == HIDDEN:
        return HIDDEN
    return value


def _error(error: AttemptError, clean: Any) -> AttemptError:
    return msgspec.structs.replace(error, error=clean(error.error), traceback=clean(error.traceback))


def _report(report: Report, clean: Any) -> Report:
    log = tuple(LogLine(line.at, line.attempt, clean(line.text)) for line in report.log)
    return Report(report.progress, clean(report.note), log)


_SECRET = re.compile(r"(pass|secret|token|key)", re.IGNORECASE)


def safe_url(url: str) -> str:
    """A store's URL without any secret in it. Nothing before the last ``@`` is shown but the user's name."""
    place, _, query = url.partition("?")
    scheme, slashes, rest = place.partition("://")
    if not slashes:
        return "(unreadable)"
    secret, at, shown = rest.rpartition("@")
    user = secret.partition(":")[0]
    kept = "&".join(pair for pair in query.split("&") if pair and not _SECRET.search(pair.partition("=")[0]))
    return f"{scheme}://{user}{at if user else ''}{shown}{'?' if kept else ''}{kept}"
