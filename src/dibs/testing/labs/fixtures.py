"""The fixtures ``lab`` and ``store``, for tests of stores; part of the pytest plugin where pytest-asyncio is.

All tests that use them run on one loop, so that a lab may keep what belongs to a loop (connections) for the next test.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from dibs.store import Store
from dibs.testing.labs.base import Lab
from dibs.testing.plugin import LabFactory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "dibs_lab_factory" in getattr(item, "fixturenames", ()) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def dibs_labs_over() -> AsyncIterator[AsyncExitStack]:
    """Closed after the last test."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="session")
async def lab(dibs_lab_factory: LabFactory, dibs_labs_over: AsyncExitStack) -> AsyncIterator[Lab]:
    """A lab with an empty store."""
    made = dibs_lab_factory()
    made.over = dibs_labs_over
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def store(lab: Lab) -> Store:
    """A handle on the lab's empty store."""
    return await lab.open()
