"""What handlers said about their jobs, on its way to the store."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import LogLine, Report
from dibs.outcome import Pulse
from dibs.store import Store
from dibs.worker.log import log
from dibs.worker.run import Run


async def beat(
    store: Store, name: str, runs: Collection[Run], lease: timedelta, info: Mapping[str, Any] | None = None
) -> list[Pulse]:
    """A heartbeat for these runs, with what their handlers said and was not sent yet."""
    claims = [run.claim for run in runs]
    reports: dict[UUID, Report] = {}
    arrived: list[Callable[[], None]] = []
    for run in runs:
        if run.unsent:
            reports[run.id], sent = await _report(store, run)
            arrived.append(sent)
    try:
        pulses = await store.heartbeat(name, claims, lease, info, reports or None)
    except Refused as problem:
        if not reports:
            raise
        # No lease shall be lost over something that was said.
        log.error("%s: what handlers said was refused and is left out: %s", name, problem)
        pulses = await store.heartbeat(name, claims, lease, info)
    for each in arrived:
        each()
    return pulses


async def _report(store: Store, run: Run) -> tuple[Report, Callable[[], None]]:
    """What to send. A report replaces the one before, so the lines of earlier attempts go in front."""
    if run.earlier is None:
        run.earlier = await _earlier_lines(store, run)
    report, arrived = run.sending()
    if run.earlier:
        report = msgspec.structs.replace(report, log=run.earlier + report.log)
    return report, arrived


async def _earlier_lines(store: Store, run: Run) -> tuple[LogLine, ...]:
    if run.epoch == 1:
        return ()
    job = await store.get(run.id)
    return () if job is None else tuple(line for line in job.report.log if line.attempt < run.attempt)
