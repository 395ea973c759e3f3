"""For those who test with dibs: a clock they own, and the contract suite for authors of stores."""

from dibs.testing.clock import FakeClock

__all__ = ["FakeClock"]
