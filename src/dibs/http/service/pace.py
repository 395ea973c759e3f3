"""How many jobs one step of a batch changes: as few as it can, so that nobody waits for it, and as many as it must."""

CHUNK = 250
"""At first, and at least."""
MOST = 4_000
LONGEST = 0.5
"""Seconds that a step may take."""
BETTER = 1.3
"""Twice the jobs in a step have to bring so much more per second, or they are not worth it."""


TRIES = 3
"""Steps of each size, of which the quickest counts: in the others something else was in the way."""


class Pace:
    """Finds out by trying. Where finding the jobs costs more than changing them, larger steps save most of the work."""

    def __init__(self) -> None:
        self.chunk = CHUNK
        self._best = 0.0
        """Jobs per second with steps of half the size."""
        self._times: list[float] = []
        self._settled = False

    def learn(self, count: int, seconds: float) -> None:
        """A step changed so many, in so much time."""
        if self._settled or count < self.chunk:
            return
        self._times.append(max(seconds, 1e-6))
        quickest = min(self._times)
        if len(self._times) < TRIES:
            return
        rate = count / quickest
        if self.chunk > CHUNK and (quickest > LONGEST or rate < self._best * BETTER):
            self.chunk, self._settled = self.chunk // 2, True
        elif self.chunk == MOST:
            self._settled = True
        else:
            self.chunk, self._best, self._times = min(self.chunk * 2, MOST), rate, []
