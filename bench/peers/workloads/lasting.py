"""What time does to a queue: a snapshot that is held, a backlog that waits, millions of jobs that are finished."""

from collections.abc import Sequence
from statistics import median
from typing import ClassVar

from bench.peers.bouts import OTHERS, Bout, Run
from bench.peers.table import BRISK, Peer
from bench.peers.workloads.base import Entry, Figure, Stage, Workload
from bench.peers.workloads.throughput import drained


class Snapshot(Workload):
    name = "snapshot"
    title = "An old snapshot is held"
    method = (
        "Throughput while another connection holds a REPEATABLE READ snapshot that is older than the jobs: no dead "
        "row can be vacuumed away. The rate in the first and in the last quarter of the jobs."
    )
    figures: ClassVar = {
        "rate": Figure("jobs/s"),
        "first": Figure("first quarter"),
        "last": Figure("last quarter"),
        "ratio": Figure("last of first", 2),
    }

    def entries(self, peer: Peer) -> list[Entry]:
        return [Entry(peer, peer.best, "held")] if peer.store == "postgres" else []

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(max(entry.setting.jobs, BRISK))
        with stage.bout(entry) as bout, stage.ground.old_snapshot():
            found, runs = drained(bout, jobs)
            first, last = quarters(runs)
            return jobs, {"rate": found["rate"], "first": first, "last": last, "ratio": last / first}


def quarters(runs: Sequence[Run]) -> tuple[float, float]:
    """Jobs per second in the first and in the last quarter."""
    part = len(runs) // 4
    return (
        part / max(runs[part].start - runs[0].start, 1e-6),
        part / max(runs[-1].start - runs[-1 - part].start, 1e-6),
    )


class Backlog(Workload):
    name = "backlog"
    title = "A deep backlog"
    method = (
        "Throughput while 1,000,000 other jobs wait in the same queue: of less priority and enqueued before, or, "
        "where a system knows no priorities, behind. Beside it the rate without them: the mean of a run in an empty "
        "store just before and of one just after, so that a machine that changes its pace blurs it less."
    )
    figures: ClassVar = {
        "rate": Figure("jobs/s"),
        "without": Figure("without it"),
        "ratio": Figure("of that", 2),
    }
    DEEP = 1_000_000

    def entries(self, peer: Peer) -> list[Entry]:
        able = peer.bulk and peer.best.jobs >= BRISK and not peer.is_limit
        return [Entry(peer, peer.best, "1,000,000 waiting")] if able else []

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(entry.setting.jobs)
        with stage.bout(entry) as bout:
            deep = {"how": "bulk", "jobs": stage.jobs(self.DEEP), "first": OTHERS, "level": 1}
            if not entry.peer.priorities:
                bout.enqueue(how="bulk", jobs=jobs)
            bout.enqueue(**deep)
            if entry.peer.priorities:
                bout.enqueue(how="bulk", jobs=jobs)
            stage.ground.calm()
            before = _bare(stage, entry, jobs)
            bout.start()
            bout.wait_for_jobs(jobs)
            bout.stop()
            rate = _pace(bout.verified(jobs))
            without = (before + _bare(stage, entry, jobs)) / 2
        return jobs, {"rate": rate, "without": without, "ratio": rate / without}


def _bare(stage: Stage, entry: Entry, jobs: int) -> float:
    """Jobs per second in an empty store, on ground of its own."""
    with stage.beside() as other, other.bout(entry) as bout:
        return _pace(drained(bout, jobs)[1])


def _pace(runs: Sequence[Run]) -> float:
    """Jobs per second, from the first handler's start to the last one's."""
    return len(runs) / (runs[-1].start - runs[0].start)


class Growth(Workload):
    name = "growth"
    title = "Growth over 5,000,000 jobs"
    method = (
        "Ten times half a million jobs are enqueued and worked off, in one store that keeps their history. Each of the "
        "last three parts takes turns with the same in an empty store, so that both see the same moments of the "
        "machine: the medians beside each other, and the rates of all ten parts."
    )
    figures: ClassVar = {
        "empty": Figure("in an empty store"),
        "last": Figure("last three parts"),
        "ratio": Figure("ratio", 2),
        **{f"part {number}": Figure(f"part {number}") for number in range(1, 11)},
    }
    PARTS, PART, ENDS = 10, 500_000, 3

    def entries(self, peer: Peer) -> list[Entry]:
        return [Entry(peer, peer.best, "5,000,000 jobs")] if peer.script == "dibs" else []

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs, grown, empty = stage.jobs(self.PART), list[float](), list[float]()
        with stage.bout(entry) as bout:
            for part in range(self.PARTS):
                if part >= self.PARTS - self.ENDS:
                    with stage.beside() as other, other.bout(entry) as fresh:
                        empty.append(_part(fresh, jobs))
                grown.append(_part(bout, jobs, first=part * jobs))
        start, end = median(empty), median(grown[-self.ENDS :])
        parts = {f"part {number}": rate for number, rate in enumerate(grown, 1)}
        return jobs * self.PARTS, {"empty": start, "last": end, "ratio": end / start, **parts}


def _part(bout: Bout, jobs: int, first: int = 0) -> float:
    """Jobs per second of so many more, enqueued and then worked off."""
    bout.enqueue(how="bulk", jobs=jobs, first=first)
    bout.ground.calm()
    bout.left()  # who says so is there before the clock runs
    bout.start()
    bout.wait_for_runs(jobs)
    ended = bout.wait_until_finished()
    bout.stop()
    runs = bout.verified(jobs, first)
    bout.forget_runs()
    return jobs / (ended - runs[0].start)
