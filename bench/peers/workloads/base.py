"""What every workload has: entries, figures, a measure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import msgspec

from bench.peers.bouts import Bout
from bench.peers.grounds import Ground
from bench.peers.provision import Home
from bench.peers.table import BRISK, FAST, SLOW, Peer, Setting


class Figure(msgspec.Struct, frozen=True):
    """A column: what it is called, how many digits it has behind the point, and which of two is better."""

    label: str
    digits: int = 0
    better: Literal["more", "less"] = "more"


class Entry(msgspec.Struct, frozen=True):
    """A system with one of its settings, in one variant of a workload."""

    peer: Peer
    setting: Setting
    variant: str


class Stage(msgspec.Struct, frozen=True):
    """Where a bout takes place."""

    ground: Ground
    home: Home
    quick: bool = False
    most: int | None = None
    """The most jobs that a run may have."""
    peak: float | None = None
    """The throughput of the system, where a workload needs to know it."""

    def jobs(self, wanted: int) -> int:
        if self.quick:
            wanted = {SLOW: 1_000, BRISK: 5_000, FAST: 40_000}.get(wanted, max(20, wanted // 5))
        return min(wanted, self.most or wanted)

    def bout(self, entry: Entry, *, kind: str | None = None, work: float = 0.0) -> Bout:
        kind = kind or entry.peer.kinds[0]
        return Bout(entry.peer, entry.setting, self.ground, self.home, kind=kind, work=work)

    @contextmanager
    def beside(self) -> Iterator["Stage"]:
        """Another one of the same kind, on ground of its own."""
        ground = type(self.ground)()
        try:
            ground.start()
            yield msgspec.structs.replace(self, ground=ground)
        finally:
            ground.stop()


class Workload(ABC):
    """``measure`` gives the number of jobs and the figures by name; it raises where there is none to be had."""

    name: ClassVar[str]
    title: ClassVar[str]
    method: ClassVar[str]
    figures: ClassVar[dict[str, Figure]]
    in_quick: ClassVar[bool] = False

    @abstractmethod
    def entries(self, peer: Peer) -> list[Entry]:
        """The settings and variants in which a system takes part; none if it cannot."""

    def quick_entries(self, peer: Peer) -> list[Entry]:
        """The one that says most."""
        return self.entries(peer)[-1:]

    @abstractmethod
    def measure(self, stage: Stage, entry: Entry) -> tuple[int, dict[str, float]]: ...


def distinct(*settings: Setting | None) -> list[Setting]:
    """Those that are there, each once."""
    return list({setting.values: setting for setting in settings if setting}.values())
