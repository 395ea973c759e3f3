"""Finding the app that somebody named: ``module:app``, or just ``module``. Every way to get it wrong has its answer."""

import sys
import traceback
from importlib import import_module
from os import getcwd
from types import ModuleType

from dibs.app import App
from dibs.errors import ConfigurationError


def load_app(path: str) -> App:
    """The app at ``module:name``; in a module alone, the one called ``app``, or the only one there."""
    module_name, _, name = path.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        better = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(f"{path!r} is a file: name the module, as in {better}:{name or 'app'}")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigurationError(f"{path!r} names no module: write module:app, as in shop.tasks:app")
    module = _import(module_name)
    return _the_only_app(module) if not name else _attribute(module, name)


def _import(name: str) -> ModuleType:
    folder = getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as problem:
        missing = problem.name or ""
        if name == missing or name.startswith(f"{missing}."):
            advice = "run dibs where the module is, or set PYTHONPATH"
            raise ConfigurationError(f"there is no module {missing!r} (tried {name} in {folder}): {advice}") from None
        advice = f"install {missing.partition('.')[0]} here, or correct the import"
        raise ConfigurationError(f"module {name} imports {missing!r}, which is not there: {advice}") from problem
    except (Exception, SystemExit) as problem:
        said = " ".join(str(problem).split()) or "no message"
        what = f"{type(problem).__name__} at {_where(problem)}: {said}"
        advice = f"python -c 'import {name}' shows all of it"
        raise ConfigurationError(f"module {name} cannot be imported, {what} ({advice})") from problem


def _where(problem: BaseException) -> str:
    """The last line of the module's own code that was running."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{problem.filename}:{problem.lineno}"
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown line"


def _attribute(module: ModuleType, name: str) -> App:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{module.__name__} has no {name!r}: {_offer(module)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise ConfigurationError(f"{module.__name__}:{name} is a {type(found).__name__}, no dibs.App: {_offer(module)}")
    return found


def _the_only_app(module: ModuleType) -> App:
    apps = _apps(module)
    if "app" in apps:
        return apps["app"]
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    trouble = "has several apps" if apps else "has no dibs.App"
    raise ConfigurationError(f"module {module.__name__} {trouble}: {_offer(module)}")


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _offer(module: ModuleType) -> str:
    named = [f"{module.__name__}:{name}" for name in _apps(module)]
    return f"say {' or '.join(named)}" if named else "make one there, app = dibs.App(), or name another module"
