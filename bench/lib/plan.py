"""What a run measures: sizes for an evening, or for a quick look."""

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of one run."""

    stores: tuple[str, ...]
    quick: bool = False
    jobs: int = 50_000
    """Jobs of a throughput run in bulk; runs of small batches take fewer, those of many claimers more."""
    batches: tuple[int, ...] = (1, 10, 100, 200, 1000)
    claimers: tuple[int, ...] = (1, 2, 10, 64)
    rounds: int = 3
    snapshot_jobs: int = 200_000
    textbook_snapshot_jobs: int = 40_000
    deep_queued: int = 1_000_000
    deep_future: int = 1_000_000
    running: int = 10_000
    samples: dict[int, int] = msgspec.field(default_factory=lambda: {1: 300, 100: 100})
    """How many claims of each limit are timed in each situation."""

    def rounds_for(self, batch: int) -> int:
        """Single claims wait for the disk, and what others do to it changes fast: more and shorter rounds."""
        return self.rounds * 3 if batch == 1 and not self.quick else self.rounds

    def jobs_for(self, batch: int, claimers: int) -> int:
        """Enough for every claimer to come back at least once, and for small batches not to take all day."""
        share = 25 if batch == 1 else 2 if batch <= 10 else 1
        return max(self.jobs // share, 2 * batch * claimers)


def quick(stores: tuple[str, ...]) -> Plan:
    """Small numbers: shows that everything works, and roughly how fast."""
    return Plan(
        stores=stores,
        quick=True,
        jobs=5_000,
        batches=(1, 200),
        claimers=(1, 10),
        snapshot_jobs=16_000,
        textbook_snapshot_jobs=8_000,
        deep_queued=20_000,
        deep_future=20_000,
        running=5_000,
        samples={1: 60, 100: 20},
    )
