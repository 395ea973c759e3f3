"""How many jobs one step of a batch changes: as few as it can, so that nobody waits for it, and as many as it must."""

CHUNK = 250
"""At first, and at least."""
MOST = 4_000
LONGEST = 0.5
"""Seconds that a step may take."""
BETTER = 1.3
"""Twice the jobs in a step have to bring so much more per second, or they are not worth it."""


class Pace:
    """Finds out by trying. Where finding the jobs costs more than changing them, larger steps save most of the work."""

    def __init__(self) -> None:
        self.chunk = CHUNK
        self._best = 0.0
        self._tries = 0
        self._settled = False

    def learn(self, count: int, seconds: float) -> None:
        """A step changed so many, in so much time."""
        if self._settled or count < self.chunk:
            return
        rate = count / max(seconds, 1e-6)
        if seconds > LONGEST and self.chunk > CHUNK:
            self._settle(self.chunk // 2)
        elif rate >= self._best * BETTER:
            self._best, self._tries = rate, 0
            if self.chunk == MOST:
                self._settled = True
            self.chunk = min(self.chunk * 2, MOST)
        elif self._tries:
            self._settle(self.chunk // 2)
        else:
            self._tries = 1  # once more: something else may have been in the way

    def _settle(self, chunk: int) -> None:
        self.chunk, self._settled = max(CHUNK, chunk), True
