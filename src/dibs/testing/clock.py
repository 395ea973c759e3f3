"""A clock that only moves when it is told to."""

from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, tzinfo=UTC)


class FakeClock:
    """Stands still until set or advanced. Give it to a memory or SQLite store as ``clock=``."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, span: timedelta) -> None:
        """Move the clock; a negative span moves it back."""
        self.now += span
