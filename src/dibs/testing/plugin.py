"""The pytest plugin: an app in memory for those who use dibs, and stores to test for those who write one.

With ``dibs_app = myproject.tasks:app`` in the ini file, the fixture ``dibs_harness`` puts that app on a store in memory
with a fake clock, for one test. See ``dibs.testing.Harness``.

The contract suite gets its stores from here:

    pytest --pyargs dibs.testing.contract --dibs-lab yourpackage.testing:YourLab

A conftest may offer labs of its own through the hook ``pytest_dibs_labs``. Where there are labs, a test that asks for
the fixtures ``lab`` or ``store`` runs once for each.
"""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from dibs.app import App
from dibs.testing.harness import Harness, use_memory
from dibs.testing.labs.base import Lab

LabFactory = Callable[[], Lab]

pytest.register_assert_rewrite("dibs.testing.contract")


class Hooks:
    """The hooks that a conftest or another plugin may implement."""

    @pytest.hookspec
    def pytest_dibs_labs(self, config: pytest.Config) -> dict[str, LabFactory]:  # type: ignore[empty-body]
        """Return labs by label; the contract suite runs once for each."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("dibs").addoption(
        "--dibs-lab",
        action="append",
        default=[],
        metavar="LAB",
        help="run the contract suite on this lab: MODULE:NAME of a Lab, or a label offered here",
    )
    parser.addini("dibs_app", "the app that the fixture dibs_harness puts in memory: MODULE:NAME")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timeout(seconds): the limit that pytest-timeout enforces, if there")
    if config.getoption("--dibs-lab"):
        _offer_fixtures(config.pluginmanager)


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    if hasattr(plugin, "pytest_dibs_labs") and not isinstance(plugin, Hooks):
        _offer_fixtures(manager)


def _offer_fixtures(manager: pytest.PytestPluginManager) -> None:
    """The fixtures ``lab`` and ``store``, but only where there are labs: others have fixtures of these names."""
    # Looked for now: importing pytest-asyncio before pytest does would be warned of.
    if "pytest_asyncio" in sys.modules and not manager.has_plugin("dibs-labs"):
        manager.register(import_module("dibs.testing.labs.fixtures"), "dibs-labs")


# --- for those who use dibs -----------------------------------------------------------------------------------


@pytest.fixture
def dibs_app(pytestconfig: pytest.Config) -> App:
    """The app under test, as the ini file names it. Override this fixture if yours is made by a function."""
    name = str(pytestconfig.getini("dibs_app"))
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        got = f", not {name!r}" if name else ""
        pytest.fail(
            f"dibs does not know your app: write dibs_app = yourproject.tasks:app into the pytest settings{got}",
            pytrace=False,
        )
    found: Any = _import(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        pytest.fail(f"dibs_app = {name}: there is no App of that name in {module}", pytrace=False)
    return found


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise  # something that the module itself imports
        pytest.fail(
            f"dibs_app: there is no module {problem.name}; is it installed, or on pytest's pythonpath?", pytrace=False
        )


@pytest.fixture
def dibs_harness(dibs_app: App) -> Iterator[Harness]:
    """Your app on an empty store in memory, with a clock that stands still, for this test."""
    with use_memory(dibs_app) as harness:
        yield harness


# --- for those who write a store ------------------------------------------------------------------------------


def labs(config: pytest.Config) -> dict[str, LabFactory]:
    """The labs asked for on the command line, or else all that the hook offers; by label."""
    offered: dict[str, LabFactory] = {}
    for some in config.hook.pytest_dibs_labs(config=config):
        offered.update(some)
    asked: list[str] = config.getoption("--dibs-lab")
    return dict(_named(name, offered) for name in asked) if asked else offered


def _named(name: str, offered: dict[str, LabFactory]) -> tuple[str, LabFactory]:
    module, _, attribute = name.partition(":")
    if attribute:
        return attribute, getattr(import_module(module), attribute)
    if name in offered:
        return name, offered[name]
    known = ", ".join(offered) or "none"
    raise pytest.UsageError(f"--dibs-lab takes MODULE:NAME or one of the labs offered here ({known}), not {name!r}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Only our own fixtures ask for this one: another fixture that is called "lab" is left alone.
    if "dibs_lab_factory" in metafunc.fixturenames:
        offered = labs(metafunc.config)
        if not offered:  # an empty list of labs would skip every test, and look like success
            raise pytest.UsageError("no store to test: name a lab with --dibs-lab MODULE:NAME")
        metafunc.parametrize("dibs_lab_factory", list(offered.values()), ids=list(offered))
