"""Latency: from just before the enqueue call in another process to the handler's start."""

import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import ClassVar

from bench.peers.bouts import OTHERS, Bout, FailedError, Run
from bench.peers.table import BRISK, SLOW, Peer
from bench.peers.workloads.base import Entry, Figure, Stage, Workload, distinct
from bench.peers.workloads.throughput import drained

_FIGURES = {
    "p50": Figure("median ms", 2, "less"),
    "p99": Figure("99 % ms", 2, "less"),
    "max": Figure("longest ms", 1, "less"),
}


RATE = 40
"""Jobs a second."""


class Latency(Workload):
    name = "latency"
    title = "Latency, idle worker"
    method = (
        f"An idle worker; another process enqueues job by job, {RATE} a second at random moments. From just before the "
        "enqueue call to the handler's start."
    )
    figures: ClassVar = _FIGURES
    in_quick = True

    def entries(self, peer: Peer) -> list[Entry]:
        if peer.is_limit:
            return [Entry(peer, peer.prompt or peer.default, "idle")]
        settings = distinct(peer.default, peer.prompt or peer.tuned)
        # Whose runs have fewer jobs than come in a second could not keep up: its queue would grow for minutes.
        return [Entry(peer, setting, "idle") for setting in settings if setting.jobs >= RATE]

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(300)
        with stage.bout(entry) as bout:
            warm_up(bout)
            bout.enqueue(how="paced", jobs=jobs, rate=RATE)
            bout.wait_for_runs(jobs)
            time.sleep(0.5)
            return jobs, waits(bout.verified(jobs))


_HALF = "half of the peak"
EVEN = {"postgres": 5_000, "redis": 1_500, "sqlite": 1_500}
"""Jobs a second that nearly every system on the store can take: half of a peak is more work for whoever is faster."""


class LoadedLatency(Workload):
    name = "loaded-latency"
    title = "Latency under load"
    method = (
        "For five seconds so many jobs a second arrive, in calls every hundredth of a second: half of the system's own "
        "throughput (one process), or as many for everybody. From just before the call to the handler's start."
    )
    figures: ClassVar = {**_FIGURES, "offered": Figure("offered/s")}

    def entries(self, peer: Peer) -> list[Entry]:
        if peer.is_limit:
            return []
        found = [Entry(peer, peer.best, _HALF)]
        if peer.best.jobs > SLOW:
            found.append(Entry(peer, peer.best, f"{EVEN[peer.store]:,} a second"))
        return found

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        rate = float(EVEN[entry.peer.store])
        if entry.variant == _HALF:
            rate = (stage.peak or self._peak(stage, entry)) / 2
        jobs = max(50, int(rate * (2.0 if stage.quick else 5.0)))
        with stage.bout(entry) as bout:
            warm_up(bout)
            sent = bout.enqueue(how="flood", jobs=jobs, rate=rate)
            bout.wait_for_runs(jobs)
            time.sleep(0.5)
            figures = waits(bout.verified(jobs))
        offered = jobs / sent["seconds"]
        if offered < 0.9 * rate:
            raise FailedError(f"one process could enqueue only {offered:,.0f} of {rate:,.0f} jobs a second")
        return jobs, {**figures, "offered": offered}

    def _peak(self, stage: Stage, entry: Entry) -> float:
        with stage.bout(entry) as bout:
            return drained(bout, stage.jobs(min(entry.setting.jobs, BRISK)))[0]["rate"]


def warm_up(bout: Bout) -> None:
    """The worker has run a few jobs and rests."""
    bout.start()
    bout.enqueue(how="one", jobs=10, first=OTHERS)
    bout.wait_for_runs(10)
    time.sleep(1.5)
    bout.forget_runs()


def waits(runs: Sequence[Run]) -> dict[str, float]:
    """Milliseconds between enqueue and start."""
    waited = sorted((run.start - run.enqueued) * 1000 for run in runs)
    return {"p50": median(waited), "p99": quantiles(waited, n=100, method="inclusive")[98], "max": waited[-1]}
