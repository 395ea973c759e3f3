"""For those who test with dibs: an app in memory, a clock they own, and the contract suite for authors of stores."""

from dibs.testing.clock import FakeClock
from dibs.testing.flaky import FlakyStore
from dibs.testing.harness import LEASE, Harness, use_memory
from dibs.testing.watching import HandlerFailed

__all__ = ["LEASE", "FakeClock", "FlakyStore", "HandlerFailed", "Harness", "use_memory"]
