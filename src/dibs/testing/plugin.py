"""The pytest plugin: gives the contract suite the stores to test.

    pytest --pyargs dibs.testing.contract --dibs-lab yourpackage.testing:YourLab

A conftest may offer labs of its own through the hook ``pytest_dibs_labs``. A test anywhere that asks
for the fixtures ``lab`` or ``store`` runs once for each lab.
"""

from collections.abc import AsyncIterator, Callable
from importlib import import_module
from importlib.util import find_spec

import pytest

from dibs.store import Store
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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timeout(seconds): the limit that pytest-timeout enforces, if there")


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


if find_spec("pytest_asyncio"):  # dibs[testing]; whoever only uses dibs need not have it
    import pytest_asyncio

    @pytest_asyncio.fixture
    async def lab(dibs_lab_factory: LabFactory) -> AsyncIterator[Lab]:
        """A lab with an empty store."""
        made = dibs_lab_factory()
        await made.start()
        try:
            yield made
        finally:
            await made.stop()

    @pytest_asyncio.fixture
    async def store(lab: Lab) -> Store:
        """A handle on the lab's empty store."""
        return await lab.open()
