"""How many claims to hold beyond the free slots: as few as keep the slots busy."""

from collections import deque

MOST = 1_000
WINDOW = 0.1
"""Seconds: no more is held than was started in so long, so what is claimed starts soon."""


class Prefetch:
    """Grows while slots wait for claims, shrinks while claims wait for slots.

    ``size`` never exceeds 1,000, nor what was started within the last tenth of a second: a worker of slow jobs holds
    none.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self.size = fixed or 0
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)])

    def learn(self, now: float, started: int, *, dry: bool, waited: float) -> None:
        """Called with each answer of a claim.

        ``started`` counts all starts until now; ``dry``: slots were free when the answer came, and it was a full one;
        ``waited``: how long the claim that is next has been held.
        """
        if self._fixed is not None:
            return
        self.mark(now, started)
        lately = started - self._marks[0][1]
        if dry:
            self.size = self.size * 2 + 10
        elif waited > WINDOW:
            self.size //= 2
        self.size = min(self.size, lately, MOST)

    def forget(self) -> None:
        """What held so far holds no more."""
        self.size = self._fixed or 0

    def mark(self, now: float, started: int) -> None:
        """Remember how many were started until now."""
        marks = self._marks
        marks.append((now, started))
        while marks[1][0] <= now - WINDOW:
            marks.popleft()
