"""What handlers said about their jobs, on its way to the store."""

from collections.abc import Callable, Iterable
from uuid import UUID

import msgspec

from dibs.job import LogLine, Report
from dibs.store import Store
from dibs.worker.run import Run


class Mail:
    """The reports that go out with one heartbeat; ``arrived`` is called when they have."""

    def __init__(self) -> None:
        self.reports: dict[UUID, Report] = {}
        self._arrived: list[Callable[[], None]] = []

    def add(self, run: Run) -> None:
        report, arrived = run.sending()
        if run.earlier:
            report = msgspec.structs.replace(report, log=run.earlier + report.log)
        self.reports[run.id] = report
        self._arrived.append(arrived)

    def arrived(self) -> None:
        for each in self._arrived:
            each()


async def collect(store: Store, runs: Iterable[Run]) -> Mail:
    """What has not been sent yet. A report replaces the one before, so lines of earlier attempts go in front."""
    mail = Mail()
    for run in runs:
        if run.unsent:
            if run.earlier is None:
                run.earlier = await _earlier_lines(store, run)
            mail.add(run)
    return mail


async def _earlier_lines(store: Store, run: Run) -> tuple[LogLine, ...]:
    if run.epoch == 1:
        return ()
    job = await store.get(run.id)
    return () if job is None else tuple(line for line in job.report.log if line.attempt < run.attempt)
