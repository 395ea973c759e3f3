"""The benchmark itself, at a tiny size: who loses or doubles a job has no figure."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.guard import compare_on
from bench.lib.environment import environment
from bench.lib.race import DiscrepancyError
from bench.peers.grounds import Ground, SQLiteGround
from bench.peers.provision import own_home
from bench.peers.results import Measured, Results, cells, machine
from bench.peers.table import EVERY, Peer, Setting
from bench.peers.tournament import Plan, Tournament
from bench.peers.workloads import WORKLOADS, Entry, Stage, Workload
from bench.peers.workloads.lasting import Growth

HONEST = Peer(name="careless", store="sqlite", script="tests.bench.careless", default=Setting("honest"))


@pytest.fixture
def ground() -> Iterator[Ground]:
    ground = SQLiteGround()
    ground.start()
    yield ground
    ground.stop()


def _drained(ground: Ground, setting: Setting, *, workers: str = "1 process") -> dict[str, float]:
    entry = Entry(HONEST, setting, f"plain, {workers}")
    return WORKLOADS["throughput"].measure(Stage(ground, own_home(), most=10), entry)[1]


def test_a_system_that_runs_each_job_once_has_figures(ground: Ground) -> None:
    assert _drained(ground, HONEST.default)["rate"] > 0


def test_a_system_that_loses_a_job_has_none(ground: Ground) -> None:
    with pytest.raises(DiscrepancyError, match="1 of 10 jobs did not run"):
        _drained(ground, Setting("loses", "loses=1"))


def test_a_system_that_runs_a_job_twice_has_none(ground: Ground) -> None:
    with pytest.raises(DiscrepancyError, match="1 ran more than once"):
        _drained(ground, Setting("doubles", "doubles=1"))


class _Short(Growth):
    PARTS, ENDS = 2, 1


def test_a_store_that_has_grown_takes_turns_with_an_empty_one(ground: Ground) -> None:
    peer = EVERY["dibs-sqlite"]
    jobs, figures = _Short().measure(Stage(ground, own_home(), most=30), Entry(peer, peer.best, "short"))
    assert jobs == 60
    assert set(figures) == {"empty", "last", "ratio", "part 1", "part 2"}
    assert figures["last"] == figures["part 2"] > 0
    assert figures["ratio"] == figures["last"] / figures["empty"]
    # What takes turns with it left it alone.
    assert ground.count(["select count(*) from dibs_history"]) == 60


@pytest.mark.parametrize(
    ("store", "names"),
    [("sqlite", ("throughput", "latency", "enqueue")), ("postgres", ("throughput",)), ("redis", ("latency",))],
)
def test_dibs_and_the_limit_are_measured_from_end_to_end(store: str, names: tuple[str, ...]) -> None:
    workloads = [WORKLOADS[name] for name in names]
    plan = Plan(peers=(EVERY[f"dibs-{store}"],), workloads=tuple(workloads), rounds=1, quick=True, most=30)
    results = Results(environment=environment({}), code="", machine=machine())
    tournament = Tournament(plan, results, lambda told: None)
    with tournament.ready():
        tournament.run()
    found = cells(results.measured)
    assert [cell.problem for cell in found if cell.problem] == []
    assert {cell.peer for cell in found} == {f"dibs-{store}", f"limit-{store}"}
    assert {each.workload for each in results.measured} == set(names)
    assert all(value > 0 for cell in found for name, value in cell.figures.items() if name in ("rate", "p50"))


def test_the_guard_compares_two_trees() -> None:
    homes = {"base": own_home(), "tree": own_home()}
    found = compare_on("sqlite", homes, rounds=1, most=30)
    assert [each.what for each in found] == [
        "throughput, async, 1 process: jobs/s",
        "throughput, plain, 1 process: jobs/s",
        "latency, idle: median ms",
        "enqueue, one by one: jobs/s",
        "enqueue, bulk: jobs/s",
    ]


def test_a_system_that_cannot_be_installed_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bench.peers.provision.CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = msgspec.structs.replace(EVERY["pg-boss"], store="sqlite")
    plan = Plan(peers=(peer,), workloads=(WORKLOADS["throughput"],), rounds=1)
    results = Results(environment=environment({}), code="", machine=machine())
    tournament = Tournament(plan, results, lambda told: None)
    with tournament.ready():
        assert {entry.peer.name for _, _, _, entry in tournament.bouts()} == {"limit-sqlite"}
    assert results.missing == {"pg-boss": "node and npm are not installed here"}


class Disturbed(Tournament):
    """Others are busy for as many bouts as it is told."""

    def __init__(self, others: list[float]) -> None:
        plan = Plan(peers=(EVERY["dibs-sqlite"],), workloads=(WORKLOADS["throughput"],), again=2)
        super().__init__(plan, Results(environment=environment({}), code="", machine=machine()), lambda told: None)
        self._others = iter(others)

    def _measure(self, workload: Workload, store: str, turn: int, entry: Entry) -> Measured:
        others = next(self._others)
        return Measured(
            workload="throughput", variant="", store=store, peer="", setting="", round=0, jobs=1, others=others
        )


@pytest.mark.parametrize(("others", "kept"), [([0.0], 0.0), ([0.9, 0.1], 0.1), ([0.9, 0.4, 0.6], 0.4)])
def test_a_bout_that_others_disturbed_is_repeated_and_the_quietest_counts(others: list[float], kept: float) -> None:
    peer = EVERY["dibs-sqlite"]
    entry = Entry(peer, peer.default, "async, 1 process")
    assert Disturbed(others)._quietest(WORKLOADS["throughput"], "sqlite", 0, entry).others == kept
