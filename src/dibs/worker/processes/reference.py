"""Where a child finds a handler: by its module and its name, as any import would."""

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from dibs.errors import ConfigurationError
from dibs.task import Task
from dibs.worker.processes.failures import MAIN_IN_CHILD


class Main(msgspec.Struct, frozen=True):
    """The script that the worker runs as: ``python -m name``, or ``python path``."""

    name: str | None = None
    path: str | None = None


class Reference(msgspec.Struct, frozen=True):
    """A function by its address."""

    module: str
    qualname: str
    main: Main | None = None
    """Where the module comes from, if it is ``__main__``."""


def refer(function: Callable[..., Any], task: str) -> Reference:
    """The address of the function; a ConfigurationError if no other process could find it there."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise _unreachable(task, f"{function!r} has no name of its own")
    if "<lambda>" in qualname:
        raise _unreachable(task, "a lambda has no name of its own")
    if "<locals>" in qualname:
        raise _unreachable(task, f"{qualname} is local to another function")
    if module != "__main__":
        return Reference(module, qualname)
    main = _main()
    if main is None:
        raise _unreachable(task, f"{qualname} was typed into an interactive session")
    return Reference(module, qualname, main)


def check(reference: Reference, function: Callable[..., Any], task: str) -> None:
    """In the worker, when all modules are there: that the address leads to this very function."""
    module = sys.modules.get(reference.module)
    if module is None:
        raise _unreachable(task, f"the module {reference.module} cannot be imported by that name")
    try:
        there = handler(locate(module, reference.qualname))
    except AttributeError:
        raise _unreachable(task, f"{reference.module} has no {reference.qualname} any more") from None
    if there is not function:
        raise _unreachable(task, f"{reference.module}.{reference.qualname} is something else by now")


def locate(module: ModuleType, qualname: str) -> Any:
    """What stands at that name; an AttributeError if nothing does."""
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def task_at(found: Any) -> "Task[..., Any] | None":
    """The task at a name, also where another decorator was put on top of it."""
    while found is not None and not isinstance(found, Task):
        found = getattr(found, "__wrapped__", None)
    return found


def handler(found: Any) -> Callable[..., Any]:
    """The function to call for what stands at a name."""
    task = task_at(found)
    function: Callable[..., Any] = found if task is None else task.function
    return function


def import_module(reference: Reference) -> ModuleType:
    """In the child: the module of the handler."""
    if reference.main is None:
        return importlib.import_module(reference.module)
    return sys.modules.get(MAIN_IN_CHILD) or _import_main(reference.main)


def refuse_while_importing() -> None:
    """Raise if the script of the worker is just being imported in a child of it.

    A script that starts a worker without asking for its name would start one in each child, for ever.
    """
    main = sys.modules.get(MAIN_IN_CHILD)
    if main is not None and main is not sys.modules["__main__"]:
        raise ConfigurationError(
            "this script starts a worker when a child process imports it: put the start under "
            'if __name__ == "__main__":'
        )


def _import_main(main: Main) -> ModuleType:
    # Under another name than __main__: what the script guards by that name is the worker's, not ours.
    if main.name is not None:
        content = runpy.run_module(main.name, run_name=MAIN_IN_CHILD, alter_sys=True)
    else:
        assert main.path is not None
        content = runpy.run_path(main.path, run_name=MAIN_IN_CHILD)
    module = ModuleType(MAIN_IN_CHILD)
    module.__dict__.update(content)
    sys.modules[MAIN_IN_CHILD] = sys.modules["__main__"] = module
    return module


def _main() -> Main | None:
    module = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    if spec is not None:
        return Main(name=spec.name)
    path = getattr(module, "__file__", None)
    # `<stdin>` and the like are no files.
    return Main(path=str(Path(path).resolve())) if path is not None and Path(path).is_file() else None


def _unreachable(task: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"task {task} runs in a process of its own, which cannot import its function: {why}; "
        "define it at the top level of a module"
    )
