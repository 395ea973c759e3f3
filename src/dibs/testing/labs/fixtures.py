"""The fixtures ``lab`` and ``store``, for tests of stores; part of the pytest plugin where pytest-asyncio is.

All tests that use them run on one loop, so that a lab may keep what belongs to a loop (connections) for the next test.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dibs.store import Store
from dibs.testing.labs.base import Lab
from dibs.testing.plugin import LabFactory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "dibs_lab_factory" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(loop_scope="session")
async def lab(dibs_lab_factory: LabFactory) -> AsyncIterator[Lab]:
    """A lab with an empty store."""
    made = dibs_lab_factory()
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def store(lab: Lab) -> Store:
    """A handle on the lab's empty store."""
    return await lab.open()
