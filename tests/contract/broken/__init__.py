"""Stores with one fault each. The contract has to catch every one of them: see test_broken_stores.

``@caught_by`` names the tests that must fail; each fault is one that a real store could have.
"""

from tests.contract.broken import (
    claiming,
    enqueueing,
    expiry,
    fence,
    flows,
    handlers,
    keeping,
    leases,
    limiting,
    operators,
)
from tests.contract.broken.base import CAUGHT_BY, lab_of
from tests.contract.broken.fence import LooseFence

__all__ = [
    "CAUGHT_BY",
    "LooseFence",
    "claiming",
    "enqueueing",
    "expiry",
    "fence",
    "flows",
    "handlers",
    "keeping",
    "lab_of",
    "leases",
    "limiting",
    "operators",
]
