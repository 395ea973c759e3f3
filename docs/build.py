"""Writes the generated pages of the documentation and checks the links of all: `make docs`.

python docs/build.py           write and check
python docs/build.py --check   change nothing; exit 1 if a page is out of date or a link leads nowhere
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from dibs import (
    admin,
    app,
    attempt,
    errors,
    flow,
    handle,
    job,
    outcome,
    retry,
    scope,
    signals,
    telemetry,
    testing,
    transaction,
    why,
    worker,
)
from dibs.draining import Drained
from dibs.limiting import RunTimeLimits, SetLimit
from dibs.options import TaskOptions
from dibs.store import Store
from dibs.stores import open_store
from dibs.stores.doctor import Finding
from dibs.task import BatchTask, Task
from dibs.telemetry.buckets import Times
from dibs.telemetry.serving import MetricsServer
from dibs.testing import plugin

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


# --- the pages ----------------------------------------------------------------------------------------------


def store_page() -> str:
    """The store protocol, verb by verb, from its docstrings."""
    lines = ["# The store protocol", "", _prose(inspect.getdoc(sys.modules[Store.__module__])), ""]
    for name, verb in vars(Store).items():
        if inspect.isfunction(verb) and not name.startswith("_"):
            lines += [f"## {name}", "", f"```text\n{_signature(name, verb)}\n```", "", _prose(inspect.getdoc(verb)), ""]
    return "\n".join(lines)


def values_page() -> str:
    """The values that cross the store's line, and the errors, from their docstrings."""
    lines = ["# Values and errors", ""]
    for module in (job, scope, outcome, errors):
        lines += _module(module)
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                lines += [f"### {name}", "", _prose(inspect.getdoc(value)), ""]
                fields = getattr(value, "__struct_fields__", ())
                if fields:
                    lines += [", ".join(f"`{field}`" for field in fields), ""]
    return "\n".join(lines)


def app_page() -> str:
    """What a program imports: from ``dibs``, but for the last few."""
    lines = ["# App and tasks", "", "Import these from `dibs`, unless a name has its module in front.", ""]
    value: type
    for value in (
        app.App,
        Task,
        BatchTask,
        TaskOptions,
        handle.Handle,
        flow.FlowPlan,
        flow.FlowHandle,
        attempt.Attempt,
    ):
        lines += _class(value)
    lines += _class(RunTimeLimits) + _class(SetLimit)
    lines += _function("current", attempt.current)
    lines += _module(signals)
    for value in (signals.Retry, signals.Fail, signals.Snooze):
        lines += _class(value)
    lines += _module(retry)
    for value in (retry.Constant, retry.Linear, retry.Exponential):
        lines += _class(value)
    lines += _module(transaction)
    lines += _function("dibs.transaction.enqueue_in", transaction.enqueue_in)
    lines += _function("dibs.transaction.enqueue_in_async", transaction.enqueue_in_async)
    lines += _function("dibs.transaction.start_in", transaction.start_in)
    lines += _function("dibs.transaction.start_in_async", transaction.start_in_async)
    lines += _function("open_store", open_store)
    return "\n".join(lines)


def worker_page() -> str:
    """Workers, as a program makes them."""
    lines = ["# Workers", "", _prose(inspect.getdoc(worker)), ""]
    lines += _class(worker.Worker) + _class(worker.Stats) + _class(Drained)
    lines += _function("dibs.worker.run_with_signals", worker.run_with_signals)
    return "\n".join(lines)


def telemetry_page() -> str:
    """Metrics, traces, samples."""
    lines = ["# Telemetry", "", _prose(inspect.getdoc(telemetry)), ""]
    lines += _class(telemetry.OpenTelemetry) + _class(MetricsServer)
    lines += _function("dibs.telemetry.metrics_routes", telemetry.metrics_routes)
    lines += _function("dibs.telemetry.samples", telemetry.samples)
    for value in (telemetry.Series, telemetry.Point, telemetry.Depth, telemetry.Figures, Times):
        lines += _class(value)
    lines += _function("dibs.telemetry.ask_to_stop", telemetry.ask_to_stop)
    lines += _function("dibs.telemetry.asked_to_stop", telemetry.asked_to_stop)
    return "\n".join(lines)


def admin_page() -> str:
    """The operator's service."""
    lines = ["# Operating from a program", "", _prose(inspect.getdoc(admin)), ""]
    for value in (admin.Admin, admin.Queue, admin.Worker, admin.Snapshot, Finding):
        lines += _class(value)
    lines += _module(why)
    lines += _function("dibs.why.why", why.why) + _class(why.Explanation) + _class(why.Reason)
    return "\n".join(lines)


def testing_page() -> str:
    """What tests of users import, and the fixtures."""
    lines = ["# Testing", "", _prose(inspect.getdoc(testing)), ""]
    for name in testing.__all__:
        value = getattr(testing, name)
        if inspect.isclass(value):
            lines += _class(value)
        elif callable(value):
            lines += _function(name, value)
    lines += _module(plugin)
    for name, value in vars(plugin).items():
        if type(value).__name__ == "FixtureFunctionDefinition":
            lines += [f"### {name} (fixture)", "", _prose(inspect.getdoc(value._get_wrapped_function())), ""]
    return "\n".join(lines)


# --- their parts --------------------------------------------------------------------------------------------


def _module(module: ModuleType) -> list[str]:
    return [f"## `{module.__name__}`", "", _prose(inspect.getdoc(module)), ""]


def _function(name: str, function: Callable[..., Any]) -> list[str]:
    return [f"## {name}", "", _code(_signature(name, function)), "", _prose(inspect.getdoc(function)), ""]


def _class(value: type) -> list[str]:
    """A class: how it is made, what it promises, its attributes and its methods."""
    lines = [f"## {value.__name__}", ""]
    init = vars(value).get("__init__")
    if init is not None and not issubclass(value, Task):
        lines += [_code(_signature(value.__name__, init).removesuffix(" -> None")), ""]
    lines += [_prose(inspect.getdoc(value)), ""]
    if init is not None and inspect.getdoc(init) and not (inspect.getdoc(init) or "").startswith("Initialize self"):
        lines += [_prose(inspect.getdoc(init)), ""]
    attributes = list(_attributes(value))
    if attributes:
        lines += ["| | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in attributes), ""]
    for name, verb in vars(value).items():
        function = verb.__func__ if isinstance(verb, classmethod | staticmethod) else verb
        if inspect.isfunction(function) and not name.startswith("_") and function.__doc__:
            lines += [f"### {value.__name__}.{name}", "", _code(_signature(name, function)), ""]
            lines += [_prose(inspect.getdoc(function)), ""]
    return lines


def _attributes(value: type) -> Iterator[tuple[str, str]]:
    """Fields, properties and documented attributes, each with what its docstring says, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for body in (tree.body, *(node.body for node in tree.body if _named(node, "__init__"))):
        for node, after in zip(body, [*body[1:], None], strict=True):
            name, text = _target(node), _text(after)
            if name is not None and not name.startswith("_") and (text or body is tree.body):
                yield (name if body is not tree.body else ast.unparse(node).replace("|", r"\|")), text
    for node in tree.body:
        if _is_property(node) and not node.name.startswith("_"):
            yield node.name, " ".join(_prose(ast.get_docstring(node) or " ").split())


def _is_property(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "property" for each in node.decorator_list)


def _named(node: ast.AST, name: str) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _target(node: ast.AST) -> str | None:
    """What an assignment of a class, or of its ``__init__``, names."""
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    if isinstance(target, ast.Name):
        return target.id
    return target.attr if isinstance(target, ast.Attribute) else None


def _text(node: ast.AST | None) -> str:
    """The string that stands below an assignment."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(_prose(node.value.value).replace("|", "\\|").split())
    return ""


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _signature(name: str, verb: object) -> str:
    text = str(inspect.signature(verb)).replace("self, ", "").replace("(self)", "()").replace("self", "")  # type: ignore[arg-type]
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text).replace(" | msgspec.UnsetType", "")
    text = re.sub(r"<random.Random object at 0x[0-9a-f]+>", "random", text).replace("= UNSET", "= …")
    text = re.sub(r"\b(?:dibs\.[\w.]+|datetime|uuid|collections\.abc|typing|contextlib)\.(?=[A-Za-z])", "", text)
    text = re.sub(r"\*<class '(\w+)'>", r"Unpack[\1]", text.replace("~", ""))  # as newer Pythons say it
    wraps = inspect.iscoroutinefunction(verb) or getattr(verb, "__module__", "") == Store.__module__
    return f"{'async ' if wraps else ''}{name}{text}"


def _prose(text: str | None) -> str:
    assert text, "every public name has a docstring"
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")


PAGES = {
    REFERENCE / "store.md": store_page,
    REFERENCE / "values.md": values_page,
    REFERENCE / "app.md": app_page,
    REFERENCE / "worker.md": worker_page,
    REFERENCE / "admin.md": admin_page,
    REFERENCE / "telemetry.md": telemetry_page,
    REFERENCE / "testing.md": testing_page,
}


def outdated() -> list[str]:
    """The generated pages that are not what they should be."""
    return [
        str(page.relative_to(ROOT)) for page, make in PAGES.items() if not page.exists() or page.read_text() != make()
    ]


def broken_links() -> list[str]:
    """Relative links in any page that lead nowhere."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in _LINK.findall(page.read_text())]
    return [
        f"{page.relative_to(ROOT)} -> {link}"
        for page, link in links
        if "://" not in link and not (page.parent / link).exists()
    ]


def main() -> int:
    """Write the pages, unless only a check is wanted, and say what is wrong."""
    if "--check" not in sys.argv:
        for page, make in PAGES.items():
            page.write_text(make())
            print(f"wrote {page.relative_to(ROOT)}")
    wrong = [f"{page} is out of date: run make docs" for page in outdated()]
    wrong += [f"broken link: {link}" for link in broken_links()]
    print("\n".join(wrong) or "every page is current, every link leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
