"""What a worker counts."""

import msgspec


class Stats(msgspec.Struct):
    """How many attempts were started, and how they ended as the store has it."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    """Leases that ended before their outcome was recorded: the job runs again, or was taken from us."""

    def count(self, event: str, number: int = 1) -> None:
        """One more attempt that ended like that."""
        setattr(self, event, getattr(self, event) + number)
