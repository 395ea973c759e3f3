"""Enqueue: what a producer gets."""

from typing import ClassVar

from bench.lib.race import DiscrepancyError
from bench.peers.table import Peer
from bench.peers.workloads.base import Entry, Figure, Stage, Workload


class Enqueue(Workload):
    name = "enqueue"
    title = "Enqueue"
    method = (
        "No worker. One by one: the next call when the last has returned. Bulk: the system's own call for many. "
        "100 clients: so many callers at once in one process, as tasks of its loop or as threads. The store must "
        "hold just so many jobs afterwards."
    )
    figures: ClassVar = {"rate": Figure("jobs/s")}
    HOW: ClassVar = {"one by one": "one", "bulk": "bulk", "100 clients": "crowd"}
    JOBS: ClassVar = {"one by one": 2_000, "bulk": 50_000, "100 clients": 5_000}

    def entries(self, peer: Peer) -> list[Entry]:
        return [
            Entry(peer, setting, variant)
            for setting in (peer.sender or peer.default, peer.unsynced)
            for variant in self.HOW
            if setting and (variant != "bulk" or peer.bulk)
        ]

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(self.JOBS[entry.variant])
        with stage.bout(entry) as bout:
            found = bout.enqueue(how=self.HOW[entry.variant], jobs=jobs, clients=100)
            if (held := bout.left()) != jobs:
                raise DiscrepancyError(f"{jobs} jobs were enqueued, the store holds {held}")
            return jobs, {"rate": jobs / found["seconds"]}
