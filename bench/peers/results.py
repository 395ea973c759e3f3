"""What was measured, kept as JSON; runs of the same code on the same machine are put together."""

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import msgspec

from bench.lib.environment import Environment, content
from bench.peers.table import APART

BUSY = 0.25
"""Cores used by others from which on a bout counts as disturbed."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One bout of one system. Figures by name; none if there was a problem."""

    workload: str
    variant: str
    store: str
    peer: str
    setting: str
    round: int
    jobs: int
    figures: dict[str, float] = {}
    problem: str | None = None
    wrong: bool = False
    """The problem was that a job was lost or ran twice."""
    others: float = 0.0
    """Cores that others used meanwhile."""
    seconds: float = 0.0
    """How long all of it took."""

    @property
    def entry(self) -> tuple[str, str, str, str]:
        return (self.workload, self.variant, self.peer, self.setting)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the program."""

    date: str
    arguments: str
    rounds: int
    quick: bool
    load: float
    """The machine's load average when it began."""


class Results(msgspec.Struct, kw_only=True):
    """Everything of one state of the code on one machine."""

    environment: Environment
    code: str
    """What was measured and with what: the content of ``src`` and of ``bench/peers``, as numbers of git."""
    machine: str
    sessions: list[Session] = []
    missing: dict[str, str] = {}
    """Systems that did not run, and why."""
    measured: list[Measured] = []

    def of(self, workload: str, variant: str | None = None) -> list[Measured]:
        return [
            each for each in self.measured if each.workload == workload and (variant is None or each.variant == variant)
        ]

    def add(self, fresh: Measured) -> None:
        """One more round of its entry. Rounds of another size are replaced, and problems, unless jobs went wrong."""
        same = [each for each in self.measured if each.entry == fresh.entry]
        stale = [each for each in same if not each.wrong and (each.problem or each.jobs != fresh.jobs)]
        self.measured = [each for each in self.measured if each not in stale]
        self.measured.append(msgspec.structs.replace(fresh, round=len(same) - len(stale)))


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One entry over all its rounds: the median of every figure."""

    store: str
    peer: str
    setting: str
    variant: str
    jobs: int
    rounds: int
    figures: dict[str, float]
    problem: str | None
    others: float

    @property
    def system(self) -> str:
        """What stands in one line with others: handlers that take many jobs in a call are another thing."""
        return f"{self.peer}, {self.setting}" if self.setting in APART else self.peer


def cells(measured: Iterable[Measured]) -> list[Cell]:
    """One for each entry, in the order in which they were first measured. A single problem voids all its figures."""
    entries: dict[tuple[str, str, str, str], list[Measured]] = {}
    for each in measured:
        entries.setdefault(each.entry, []).append(each)
    return [_cell(rounds) for rounds in entries.values()]


def _cell(rounds: list[Measured]) -> Cell:
    problem = next((each.problem for each in rounds if each.problem), None)
    names = dict.fromkeys(name for each in rounds for name in each.figures)
    first = rounds[0]
    return Cell(
        store=first.store,
        peer=first.peer,
        setting=first.setting,
        variant=first.variant,
        jobs=first.jobs,
        rounds=len(rounds),
        figures={} if problem else {name: median(_values(rounds, name)) for name in names},
        problem=problem,
        others=max(each.others for each in rounds),
    )


def _values(rounds: list[Measured], name: str) -> list[float]:
    return [each.figures[name] for each in rounds if name in each.figures]


def code() -> str:
    return " ".join(content(folder) for folder in ("src", "bench/peers"))


def machine() -> str:
    """What can be said of this machine without naming it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()} {platform.machine()}, {_processor()}, {cores} cores, {memory:.0f} GB"


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if not described.exists():
        return platform.processor() or "unknown processor"
    for line in described.read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def load(path: Path, environment: Environment) -> Results:
    """The results so far, if they are of this code and this machine; otherwise none."""
    here, now = machine(), code()
    if path.exists():
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Results)
        except msgspec.ValidationError:
            found = None
        if found is not None and (found.machine, found.code) == (here, now):
            versions = {**found.environment.versions, **environment.versions}
            found.environment = msgspec.structs.replace(environment, versions=versions)
            return found
    return Results(environment=environment, code=now, machine=here)


def save(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
