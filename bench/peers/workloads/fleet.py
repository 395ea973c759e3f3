"""Many workers: idle ones, and how throughput changes with their number."""

import time
from typing import ClassVar

from bench.peers import processes
from bench.peers.table import BRISK, Peer
from bench.peers.workloads.base import Entry, Figure, Stage, Workload
from bench.peers.workloads.throughput import drained


class IdleFleet(Workload):
    name = "idle"
    title = "Twenty idle workers"
    method = (
        "Twenty workers that have nothing to do, for ten seconds: processor time of all of them, and of the server."
    )
    figures: ClassVar = {
        "workers": Figure("CPU of the workers, % of a core", 2, "less"),
        "server": Figure("CPU of the server, % of a core", 2, "less"),
        "memory": Figure("memory MB", 0, "less"),
    }
    WORKERS = 20

    def entries(self, peer: Peer) -> list[Entry]:
        return [] if peer.is_limit else [Entry(peer, peer.default, "20 workers")]

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        seconds = 3.0 if stage.quick else 10.0
        with stage.bout(entry) as bout:
            bout.start(self.WORKERS)
            # All are up when each has had the time to start; a job that runs shows that one has.
            bout.enqueue(how="one", jobs=self.WORKERS)
            bout.wait_for_runs(self.WORKERS)
            time.sleep(seconds)
            before = processes.cpu(bout.pids()), processes.cpu(stage.ground.pids())
            time.sleep(seconds)
            pids = bout.pids()
            spent = processes.cpu(pids) - before[0], processes.cpu(stage.ground.pids()) - before[1]
            figures = {"workers": 100 * spent[0] / seconds, "memory": processes.memory(pids)}
            bout.verified(self.WORKERS)
        return self.WORKERS, figures | ({"server": 100 * spent[1] / seconds} if stage.ground.pids() else {})


class Scaling(Workload):
    name = "scaling"
    title = "Scaling with workers"
    method = "Throughput with 1 to 32 worker processes, on a machine with far fewer cores: who gets in whose way."
    figures: ClassVar = {"rate": Figure("jobs/s"), "server_cpu": Figure("server CPU µs/job", 1, "less")}
    WORKERS: ClassVar = (1, 2, 4, 8, 16, 32)

    def entries(self, peer: Peer) -> list[Entry]:
        able = peer.best.jobs >= BRISK
        return [Entry(peer, peer.best, f"{count} workers") for count in self.WORKERS] if able else []

    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]:
        jobs = stage.jobs(entry.setting.jobs)
        with stage.bout(entry) as bout:
            found, _ = drained(bout, jobs, workers=int(entry.variant.split()[0]))
            return jobs, {name: found[name] for name in self.figures if name in found}
