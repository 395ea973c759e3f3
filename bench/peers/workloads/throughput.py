"""Throughput, what it costs the server and the worker, and throughput of other kinds of jobs."""

import time
from collections.abc import Sequence
from typing import ClassVar

from bench.peers import processes
from bench.peers.bouts import Bout, Run
from bench.peers.table import Peer
from bench.peers.workloads.base import Entry, Figure, Stage, Workload, distinct

ONE, TWO = "1 process", "2 processes"


class Throughput(Workload):
    """Most other figures are measured along with it: processor time, log, commits, dead rows, memory."""

    name = "throughput"
    title = "Throughput"
    method = (
        "Jobs that do nothing are enqueued with the system's own call for many; then the workers start. Jobs per "
        "second from the first handler's start until the store says that all are finished. Meanwhile: the "
        "processor time of workers and server, what the server wrote to its log, commits, rows updated or deleted "
        "(dead until vacuumed), and the memory of the workers at the end."
    )
    figures: ClassVar = {
        "rate": Figure("jobs/s"),
        "enqueued": Figure("enqueued/s before"),
        "client_cpu": Figure("worker CPU µs/job", 1, "less"),
        "server_cpu": Figure("server CPU µs/job", 1, "less"),
        "log_bytes": Figure("log bytes/job", 0, "less"),
        "commits": Figure("commits/job", 3, "less"),
        "dead_rows": Figure("dead rows/job", 2, "less"),
        "life_cpu": Figure("server CPU µs/job with the enqueue", 1, "less"),
        "life_bytes": Figure("log bytes/job with the enqueue", 0, "less"),
        "memory": Figure("memory MB", 0, "less"),
    }
    in_quick = True

    def entries(self, peer: Peer) -> list[Entry]:
        found = [
            Entry(peer, setting, f"{kind}, {count}")
            for count in (ONE, TWO)
            for kind in peer.kinds
            for setting in distinct(peer.default, peer.tuned)
            if kind in (setting.kinds or peer.kinds)
        ]
        if peer.batch:
            found += [Entry(peer, peer.batch, f"async, {count}") for count in (ONE, TWO)]
        if peer.unsynced:
            found.append(Entry(peer, peer.unsynced, f"async, {ONE}"))
        return found

    def quick_entries(self, peer: Peer) -> list[Entry]:
        return [Entry(peer, peer.best, f"{peer.kinds[0]}, {ONE}")]

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        kind, _, count = entry.variant.partition(", ")
        jobs = stage.jobs(entry.setting.jobs)
        with stage.bout(entry, kind=kind) as bout:
            return jobs, drained(bout, jobs, workers=int(count.split()[0]))[0]


class ShortJobs(Workload):
    name = "10ms"
    title = "Jobs of 10 ms, a hundred at a time"
    method = (
        "Jobs that wait for 10 ms (asyncio, threads or greenlets), concurrency 100, one worker: 10,000 a second "
        "would be perfect."
    )
    figures: ClassVar = {"rate": Figure("jobs/s"), "client_cpu": Throughput.figures["client_cpu"]}

    def entries(self, peer: Peer) -> list[Entry]:
        return [Entry(peer, peer.hundred, "10 ms")] if peer.hundred else []

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(min(20_000, entry.peer.best.jobs))
        with stage.bout(entry, work=0.01) as bout:
            found, _ = drained(bout, jobs)
            return jobs, {name: found[name] for name in self.figures}


class MixedPriorities(Workload):
    name = "priorities"
    title = "Mixed priorities"
    method = (
        "Throughput with jobs of three priorities, enqueued in turns. Early: of the jobs of the least priority, "
        "how many started before the last of the highest."
    )
    figures: ClassVar = {"rate": Figure("jobs/s"), "early": Figure("early %", 2, "less")}

    def entries(self, peer: Peer) -> list[Entry]:
        return [Entry(peer, peer.best, "three priorities")] if peer.priorities else []

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(entry.setting.jobs)
        with stage.bout(entry) as bout:
            found, runs = drained(bout, jobs, level="mixed")
            return jobs, {"rate": found["rate"], "early": early(runs)}


def early(runs: Sequence[Run]) -> float:
    """Percent of the lowest that started before the last of the highest; which is which, the number of a job says."""
    last_of_highest = max(run.start for run in runs if run.job % 3 == 0)
    lowest = [run.start for run in runs if run.job % 3 == 2]
    return 100 * sum(start < last_of_highest for start in lowest) / max(1, len(lowest))


def drained(bout: Bout, jobs: int, *, workers: int = 1, level: int | str = 0) -> tuple[dict[str, float], list[Run]]:
    """Enqueue, start, wait until all is finished, prove it; the figures of throughput, and the runs."""
    before = bout.ground.spent()
    enqueued = bout.enqueue(how="bulk", jobs=jobs, level=level)["seconds"]
    bout.ground.calm()
    filled = bout.ground.spent()
    bout.left()
    bout.start(workers)
    bout.wait_for_runs(1)
    started = processes.cpu(bout.pids())  # nobody is charged for imports
    bout.wait_for_runs(jobs)
    ended = bout.wait_until_finished()
    pids, spent = bout.pids(), bout.ground.spent()
    figures = {"memory": processes.memory(pids), "client_cpu": (processes.cpu(pids) - started) / jobs * 1e6}
    time.sleep(0.5)  # somebody may run a job once more
    bout.stop()
    runs = bout.verified(jobs)
    figures |= {"rate": jobs / max(ended - runs[0].start, 1e-6), "enqueued": jobs / enqueued}
    cost, life = spent.since(filled), spent.since(before)
    counted = bout.ground.spent().since(filled)  # connections report what they did when they end
    if bout.ground.pids():
        figures |= {"server_cpu": cost.cpu / jobs * 1e6, "life_cpu": life.cpu / jobs * 1e6}
    known = {
        "log_bytes": cost.log_bytes,
        "life_bytes": life.log_bytes,
        "commits": counted.commits,
        "dead_rows": counted.dead_rows,
    }
    return figures | {name: value / jobs for name, value in known.items() if value is not None}, runs
