"""The fixtures ``lab`` and ``store``, for tests of stores; part of the pytest plugin where pytest-asyncio is."""

from collections.abc import AsyncIterator

import pytest_asyncio

from dibs.store import Store
from dibs.testing.labs.base import Lab
from dibs.testing.plugin import LabFactory


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
