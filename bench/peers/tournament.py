"""The whole of it: every system in turn, round by round, so that what disturbs one disturbs all."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from subprocess import TimeoutExpired

import msgspec

from bench.lib.race import DiscrepancyError
from bench.peers import processes
from bench.peers.bouts import Bout, FailedError
from bench.peers.grounds import GROUNDS, Ground
from bench.peers.provision import Home, MissingError, provision
from bench.peers.results import BUSY, Measured, Results
from bench.peers.table import EVERY, LIMITS, STORES, Peer
from bench.peers.workloads import Entry, Stage, Workload

GUESS = 12.0
"""Seconds that a bout may take of which nothing is known yet."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and how often."""

    peers: tuple[Peer, ...]
    workloads: tuple[Workload, ...]
    rounds: int = 3
    quick: bool = False
    most: int | None = None
    again: int = 0
    """How often a bout is repeated that others disturbed."""

    def entries(self, workload: Workload, store: str) -> list[Entry]:
        """Everybody on one store; the limit comes along as the yardstick."""
        peers = [peer for peer in self.peers if peer.store == store]
        if peers:
            limits = [limit for limit in LIMITS if limit.store == store and limit not in peers]
            peers = [*peers, *limits]
        of = workload.quick_entries if self.quick else workload.entries
        entries = [entry for peer in peers for entry in of(peer)]
        # What is compared follows each other: all systems in one variant, then all in the next.
        variants = list(dict.fromkeys(entry.variant for entry in entries))
        return sorted(entries, key=lambda entry: variants.index(entry.variant))

    @property
    def stores(self) -> list[str]:
        return [store for store in STORES if any(peer.store == store for peer in self.peers)]


class Told(msgspec.Struct, frozen=True):
    """What whoever watches is told: the bout that begins, and how long it should take."""

    text: str
    expected: float


class Tournament:
    """Provision, start the servers, measure. ``results`` grows as it goes."""

    def __init__(self, plan: Plan, results: Results, tell: Callable[[Told | str], None]) -> None:
        self.plan, self.results, self._tell = plan, results, tell
        self._homes: dict[str, Home] = {}
        self._grounds: dict[str, Ground] = {}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """With an environment for each system, and a server for each store."""
        limits = [limit for limit in LIMITS if limit.store in self.plan.stores]
        for peer in dict.fromkeys((*self.plan.peers, *limits)):
            try:
                self._homes[peer.name] = home = provision(peer, self._tell)
            except MissingError as problem:
                self.results.missing[peer.name] = str(problem)
                continue
            self.results.missing.pop(peer.name, None)
            self._note(_versions(peer, home))
        with ExitStack() as stack:
            for store in self.plan.stores:
                ground = self._grounds[store] = GROUNDS[store]()
                stack.callback(ground.stop)
                ground.start()
                self._note(ground.versions())
            yield

    def _note(self, versions: dict[str, str]) -> None:
        place = self.results.environment
        self.results.environment = msgspec.structs.replace(place, versions={**place.versions, **versions})

    def bouts(self) -> list[tuple[Workload, str, int, Entry]]:
        """All of them in their order: within a round everybody once, each first in some round."""
        found = []
        for workload in self.plan.workloads:
            for store in self.plan.stores:
                entries = [each for each in self.plan.entries(workload, store) if each.peer.name in self._homes]
                for turn in range(self.plan.rounds):
                    start = turn * len(entries) // self.plan.rounds
                    found += [(workload, store, turn, entry) for entry in (*entries[start:], *entries[:start])]
        return found

    def expected(self, workload: Workload, entry: Entry) -> float:
        """Seconds, from what it took before."""
        took = [
            each.seconds
            for each in self.results.of(workload.name, entry.variant)
            if (each.peer, each.setting) == (entry.peer.name, entry.setting.name)
        ]
        return max(took, default=GUESS)

    def run(self) -> int:
        """Measure everything. A problem is written down and ends the turns of that entry only; how many there were."""
        broken: set[tuple[str, Entry]] = set()
        for workload, store, turn, entry in self.bouts():
            if (workload.name, entry) in broken:
                continue
            expected = self.expected(workload, entry)
            self._tell(Told(f"{workload.name}: {entry.peer.name} ({entry.setting.name}), {entry.variant}", expected))
            measured = self._quietest(workload, store, turn, entry)
            if measured.problem:
                broken.add((workload.name, entry))
                self._tell(f"{entry.peer.name} ({entry.setting.name}), {entry.variant}: {measured.problem}")
            self.results.add(measured)
        return len(broken)

    def _quietest(self, workload: Workload, store: str, turn: int, entry: Entry) -> Measured:
        """Again, if others used the machine meanwhile; of all tries the one in which they did least."""
        tries = []
        for _ in range(1 + self.plan.again):
            tries.append(self._measure(workload, store, turn, entry))
            if tries[-1].problem or tries[-1].others <= BUSY:
                return tries[-1]
        return min(tries, key=lambda each: each.others)

    def _measure(self, workload: Workload, store: str, turn: int, entry: Entry) -> Measured:
        stage = Stage(
            self._grounds[store], self._homes[entry.peer.name], self.plan.quick, self.plan.most, self._peak(entry)
        )
        jobs, figures, problem, wrong = 0, dict[str, float](), None, False
        began, busy, ours = time.monotonic(), processes.machine(), _ours(stage.ground)
        try:
            jobs, figures = workload.measure(stage, entry)
        except DiscrepancyError as found:
            problem, wrong = str(found), True
        except TimeoutExpired:
            problem = "a command took more than ten minutes"
        except FailedError as found:
            problem = str(found)
        except Exception as found:  # of a driver: it is this system's problem, the others go on
            problem = f"{type(found).__name__}: {found}"
        seconds = time.monotonic() - began
        others = (processes.machine() - busy - (_ours(stage.ground) - ours)) / seconds
        return Measured(
            workload=workload.name,
            variant=entry.variant,
            store=store,
            peer=entry.peer.name,
            setting=entry.setting.name,
            round=turn,
            jobs=jobs,
            figures=figures,
            problem=problem,
            wrong=wrong,
            others=max(0.0, others),
            seconds=seconds,
        )

    def _peak(self, entry: Entry) -> float | None:
        """The throughput of this system with this setting, if it was measured."""
        rates = [
            each.figures["rate"]
            for each in self.results.of("throughput", f"{entry.peer.kinds[0]}, 1 process")
            if (each.peer, each.setting) == (entry.peer.name, entry.setting.name) and each.figures
        ]
        return sorted(rates)[len(rates) // 2] if rates else None


def _ours(ground: Ground) -> float:
    """Processor time of this process, of all that it started and that has ended, and of the server."""
    return processes.cpu([os.getpid(), *ground.pids()]) + Bout.strays


def _versions(peer: Peer, home: Home) -> dict[str, str]:
    """Those of the packages that were asked for."""
    names = [_bare(package) for package in peer.packages]
    return {name: home.versions[name.lower()] for name in names if name.lower() in home.versions}


def _bare(package: str) -> str:
    for mark in ("@", "[", ">", "<", "="):
        package = package.split(mark, maxsplit=1)[0]
    return package


def chosen(names: Sequence[str]) -> tuple[Peer, ...]:
    """Peers by their names."""
    return tuple(EVERY[name] for name in names)
