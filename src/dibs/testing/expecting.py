"""What a test expects to have been enqueued, and in words what was enqueued instead."""

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pprint import pformat
from typing import Any

import msgspec

from dibs.errors import DibsError
from dibs.job import Job
from dibs.signals import span
from dibs.task import Task, Tasks

OPTIONS = frozenset({"queue", "key", "limit_key", "priority", "delay", "run_at", "expires_at", "max_attempts", "meta"})
"""What can be expected of a job besides its arguments."""
SHOWN = 20
"""How many jobs a message lists."""
_SHORT = 60
_NOTHING = object()


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant: those for which every given value is equal."""

    task: str | None
    args: dict[str, Any]
    options: dict[str, Any]
    tasks: Tasks

    @classmethod
    def of(
        cls, tasks: Tasks, task: Task[..., Any] | str | None, args: Mapping[str, Any], given: Mapping[str, Any]
    ) -> "Expected":
        """``given`` are options and arguments by name, ``args`` more of the latter.

        A TypeError names an argument that no job of the task can have: its absence would be too easily asserted.
        """
        options = {name: value for name, value in given.items() if name in OPTIONS}
        args = {**args, **{name: value for name, value in given.items() if name not in OPTIONS}}
        name = task.name if isinstance(task, Task) else task
        known = task if isinstance(task, Task) else tasks.by_name.get(name or "")
        if args and name is None:
            raise TypeError("say which task these arguments are for")
        if known is not None:
            _check_names(known, args)
        return cls(task=name, args=args, options=options, tasks=tasks)

    def matches(self, job: Job) -> bool:
        return self.task in (None, job.task) and not self.differences(job)

    def differences(self, job: Job) -> list[tuple[str, Any, Any]]:
        """What is not as expected: its name, what was expected, and what is there."""
        typed = arguments(job, self.tasks)
        stored = job.args if isinstance(job.args, Mapping) else {}
        wrong = []
        for name, wanted in self.args.items():
            got = typed.get(name, _NOTHING)
            if not (wanted == got or wanted == stored.get(name, _NOTHING)):
                wrong.append((name, wanted, got))
        for option, wanted in self.options.items():
            got = job.run_at - job.created_at if option == "delay" else getattr(job, option)
            if wanted != got and not (option == "delay" and isinstance(wanted, int | float) and span(wanted) == got):
                wrong.append((option, wanted, got))
        return wrong

    def __str__(self) -> str:
        return f"a {self._words()}"

    def as_none(self) -> str:
        return f"no {self._words()}"

    def _words(self) -> str:
        conditions = [f"{name}={_brief(value)}" for name, value in (self.args | self.options).items()]
        about = f"job of {self.task}" if self.task is not None else "job"
        return about + (" with " + ", ".join(conditions) if conditions else "")


def _check_names(task: Task[..., Any], args: Iterable[str]) -> None:
    parameters = inspect.signature(task.function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return
    for name in args:
        if name not in task.signature.names:
            known = ", ".join(task.signature.names) or "none"
            raise TypeError(f"{task.name} has no parameter {name!r}; it has {known}")


def arguments(job: Job, tasks: Tasks) -> dict[str, Any]:
    """A job's arguments by parameter name, as its handler would get them; as JSON if the task is not known here."""
    task = tasks.by_name.get(job.task)
    stored = dict(job.args) if isinstance(job.args, Mapping) else {"args": job.args}
    if task is None:
        return stored
    try:
        bound = task.signature.bind(*task.signature.unpack(job.args))
    except DibsError:
        return stored
    for each in inspect.signature(task.function).parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            bound |= bound.pop(each.name, {})
    return bound


# --- in words -----------------------------------------------------------------------------------------------


def call_of(job: Job, tasks: Tasks) -> str:
    """``send_mail(to='ada@example.org') on queue mail, due in 1:00:00``"""
    args = ", ".join(f"{name}={_brief(value)}" for name, value in arguments(job, tasks).items())
    text = f"{job.task}({args}) on queue {job.queue}"
    if job.run_at > job.created_at:
        text += f", due in {job.run_at - job.created_at}"
    return text + (f", key {job.key!r}" if job.key is not None else "")


def listed(expected: Expected, jobs: Sequence[Job], *, compare: bool) -> str:
    """The jobs, one a line; those of the task that was expected first, and with what is different about them."""
    if not jobs:
        return "nothing was enqueued"
    first = sorted(jobs, key=lambda job: expected.task is not None and job.task != expected.task)
    lines = [f"enqueued {'was 1 job' if len(jobs) == 1 else f'were {len(jobs)} jobs'}:"]
    for job in first[:SHOWN]:
        lines.append(f"  {call_of(job, expected.tasks)}")
        if compare and expected.task in (None, job.task):
            for difference in expected.differences(job):
                lines += [f"    {line}" for line in _difference(*difference)]
    if len(jobs) > SHOWN:
        lines.append(f"  and {len(jobs) - SHOWN} more")
    return "\n".join(lines)


def _difference(name: str, wanted: Any, got: Any) -> list[str]:
    if got is _NOTHING:
        return [f"{name}: not given, expected {_brief(wanted)}"]
    there, other = _text(got), _text(wanted)
    if len(there) <= _SHORT and len(other) <= _SHORT:
        return [f"{name}: {there}, expected {other}"]
    diff = difflib.ndiff(_lines(wanted), _lines(got))
    return [f"{name}: (- expected, + enqueued)", *(f"  {line.rstrip()}" for line in diff)]


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    return pformat(value, width=80, sort_dicts=False).splitlines()


def _text(value: Any) -> str:
    return str(value) if isinstance(value, datetime | timedelta) else repr(value)


def _brief(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
