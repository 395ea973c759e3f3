"""Flows in SQLite: what the contract suite cannot see. Query plans, costs, restarts and the caller's transaction."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from dibs.errors import Refused
from dibs.job import Claim, Filter, FlowState, Job, NewFlow, NewJob, NewStep, OnFailure, Retention, State
from dibs.outcome import Failed, Outcome, Succeeded, Verdict
from dibs.stores.sqlite import SQLiteStore
from dibs.stores.sqlite import statements as sql
from dibs.transaction import enqueue_in, start_in

LEASE = timedelta(seconds=60)
NOTHING_KEPT = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(path, synchronous="normal")
    await made.setup()
    yield made
    await made.close()


def step(name: str, *needs: str, **options: Any) -> NewStep:
    return NewStep(name=name, job=NewJob(task=name[:1], **options), needs=needs)


def flow(*steps: NewStep, on_failure: OnFailure = OnFailure.STOP) -> NewFlow:
    return NewFlow(name="f", steps=steps, on_failure=on_failure)


def diamond(on_failure: OnFailure = OnFailure.STOP) -> NewFlow:
    steps = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
    return flow(*steps, on_failure=on_failure)


async def steps_of(store: SQLiteStore, which: NewFlow) -> dict[str | None, Job]:
    page = await store.find(Filter(flows=(which.id,)), limit=10_000)
    return {job.step: job for job in page.jobs}


async def states(store: SQLiteStore, which: NewFlow) -> dict[str | None, str]:
    return {name: str(job.state) for name, job in sorted((await steps_of(store, which)).items(), key=str)}


async def claimed(store: SQLiteStore, limit: int = 1_000) -> dict[str | None, Claim]:
    return {claim.step: claim for claim in await store.claim("default", "w", limit, LEASE)}


async def settle(store: SQLiteStore, claims: Iterable[Claim], outcome: Outcome | None = None) -> None:
    items = [claim.settled(outcome or Succeeded(f"result of {claim.step}")) for claim in claims]
    assert set(await store.settle(items)) == {Verdict.ACCEPTED}


async def run_all(store: SQLiteStore) -> list[set[str | None]]:
    """Run what can be run until there is nothing left; what was claimed together, in turn."""
    rounds = []
    while claims := await store.claim("default", "w", 1_000, LEASE):
        await settle(store, claims)
        rounds.append({claim.step for claim in claims})
    return rounds


def left(path: Path) -> dict[str, int]:
    connection = apsw.Connection(str(path))
    tables = ("dibs_jobs", "dibs_history", "dibs_flows", "dibs_needs", "dibs_results")
    found = {name: int(str(connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0])) for name in tables}
    connection.close()
    return {name: count for name, count in found.items() if count}


# --- what is stored where ---------------------------------------------------------------------------------------


async def test_a_diamond_runs_in_order_in_calls_of_one_and_of_many(store: SQLiteStore) -> None:
    one_by_one, together = diamond(), diamond()
    await store.start(one_by_one)
    for name in "abcd":
        claims = await claimed(store, 1)
        assert list(claims) == [name]
        await settle(store, claims.values())
    await store.start(together)
    assert await run_all(store) == [{"a"}, {"b", "c"}, {"d"}]
    for each in (one_by_one, together):
        found = await store.flow(each.id)
        assert found is not None and found.state is FlowState.SUCCEEDED and found.finished_at is not None
        last = (await steps_of(store, each))["d"]
        assert (last.needs, last.inputs) == (("b", "c"), {"b": "result of b", "c": "result of c"})


async def test_a_flow_goes_on_after_a_restart_in_its_middle(path: Path, store: SQLiteStore) -> None:
    made = diamond()
    await store.start(made)
    await settle(store, (await claimed(store)).values())
    half = await claimed(store, 1)
    await store.close()
    other = SQLiteStore(path, synchronous="normal")
    await other.setup()
    await settle(other, half.values())
    assert await states(other, made) == {"a": "succeeded", "b": "succeeded", "c": "queued", "d": "waiting"}
    assert await run_all(other) == [{"c"}, {"d"}]
    await other.close()


async def test_a_result_is_not_copied_for_each_step_that_needs_it(path: Path, store: SQLiteStore) -> None:
    long = "x" * 200_000
    made = flow(step("a"), *(step(f"b{n}", "a") for n in range(100)))
    await store.start(made)
    await settle(store, (await claimed(store)).values(), Succeeded(long))
    claims = await claimed(store)
    assert len(claims) == 100
    assert all(claim.inputs == {"a": long} for claim in claims.values())
    await store.delete(Filter(ids=(made.steps[0].job.id,)))
    await settle(store, claims.values())
    assert all(job.inputs == {"a": long} for job in (await steps_of(store, made)).values())
    await store.close()
    assert path.stat().st_size < 2_000_000


async def test_a_finished_step_shows_the_inputs_it_ran_with_though_they_run_again(store: SQLiteStore) -> None:
    made = flow(step("a"), step("b", "a"), step("c", "b"))
    await store.start(made)
    await settle(store, (await claimed(store)).values(), Succeeded("first"))
    await settle(store, (await claimed(store)).values(), Succeeded(1))
    await store.requeue(Filter(ids=(made.steps[0].job.id,)))
    assert await states(store, made) == {"a": "queued", "b": "succeeded", "c": "queued"}
    claims = await claimed(store)
    assert claims["c"].inputs == {"b": 1}
    await settle(store, [claims["a"]], Succeeded("second"))
    assert (await steps_of(store, made))["b"].inputs == {"a": "first"}
    await store.requeue(Filter(ids=(made.steps[1].job.id,)))
    assert (await claimed(store))["b"].inputs == {"a": "second"}


@pytest.mark.parametrize("on_failure", list(OnFailure))
async def test_nothing_is_left_of_flows_that_were_deleted_or_pruned(
    path: Path, store: SQLiteStore, on_failure: OnFailure
) -> None:
    for fail in (False, True):
        made = diamond(on_failure)
        await store.start(made)
        await settle(store, (await claimed(store)).values(), Failed("no") if fail else None)
        await run_all(store)
        await store.requeue(Filter(flows=(made.id,)))
        await run_all(store)
        for limit in (3, 10):
            assert await store.prune(NOTHING_KEPT, limit) == min(limit, 4) - (limit == 10) * 3
        assert await store.flow(made.id) is None
    ended, begun = diamond(on_failure), diamond(on_failure)
    await store.start(ended)
    await run_all(store)
    await store.start(begun)
    await settle(store, (await claimed(store)).values())
    while (await store.delete(Filter(everything=True), limit=3, force=True)).after is not None:
        pass
    assert await store.flows() == await store.flows(after=ended.id)
    assert left(path) == {}


async def test_the_oldest_are_pruned_first_whether_steps_or_not(store: SQLiteStore) -> None:
    made = flow(step("a"), step("b", "a"))
    await store.enqueue([NewJob(task="t") for _ in range(3)])
    await run_all(store)
    await store.start(made)
    await run_all(store)
    await store.enqueue([NewJob(task="t") for _ in range(3)])
    await run_all(store)
    seen = []
    for _ in range(4):
        seen.append(await store.prune(NOTHING_KEPT, 2))
        seen.append(len((await store.find(Filter(flows=(made.id,)))).jobs))
    assert seen == [2, 2, 2, 1, 2, 0, 2, 0]


async def test_a_flow_whose_job_is_known_stores_nothing(path: Path, store: SQLiteStore) -> None:
    there = NewJob(task="t")
    await store.enqueue([there])
    with pytest.raises(Refused, match=str(there.id)):
        await store.start(flow(step("a"), NewStep(name="b", job=there, needs=("a",))))
    assert left(path) == {"dibs_jobs": 1}


# --- costs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "parameters", "expected"),
    [
        (sql.WAITING_FOR, 1, "USING INDEX dibs_needed (need=?)"),
        (sql.GIVE_UP, 1, "USING PRIMARY KEY (step=?)"),
        (sql.KEEP_EPOCH, 1, "USING INDEX dibs_needed (need=?)"),
        (sql.PART, 2, "USING INDEX dibs_needed (need=?)"),
        (sql.PART_RESULTS, 2, "USING PRIMARY KEY (job=?)"),
        (sql.LINE_UP_STEP, 3, "(id=?)"),
        (sql.FINISH_FLOW, 2, "dibs_past_steps (flow=? AND state=?)"),
        (sql.NEEDS, 1, "USING PRIMARY KEY (step=?)"),
        (sql.NOT_STARTED, 1, "dibs_steps (flow=?)"),
        (sql.ASK_FLOW, 1, "dibs_steps (flow=?)"),
        (sql.IN_VAIN, 1, "dibs_needed (need=?)"),
        (sql.STEP_KNOWN, 2, "dibs_steps (flow=? AND step=?)"),
        (sql.COUNT_STEPS, 1, "USING COVERING INDEX dibs_past_steps (flow=?)"),
        (sql.KEEP_RESULT, 1, "dibs_needed (need=?)"),
        (sql.LOOK_AGAIN, 1, "dibs_steps (flow=?)"),
        (sql.COUNT_UNMET, 1, "USING PRIMARY KEY (step=?)"),
        (sql.WAIT_AGAIN, 1, "dibs_steps (flow=?)"),
        (sql.LINE_UP_FLOW, 2, "dibs_steps (flow=?)"),
        (sql.DROP_RESULTS, 1, "dibs_flow_results (flow=?)"),
        (sql.DROP_FLOW, 1, "dibs_steps (flow=?)"),
        (sql.FLOWS, 3, "dibs_flow_states (state=? AND id<?)"),
        (sql.PRUNABLE, 4, "dibs_finished (state=? AND finished_at<?)"),
    ],
)
async def test_statements_about_flows_search_indexes(
    store: SQLiteStore, path: Path, statement: str, parameters: int, expected: str
) -> None:
    connection = apsw.Connection(str(path))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * parameters).fetchall()
    connection.close()
    details = [str(row[3]) for row in plan]
    assert any(expected in detail for detail in details), details
    tables = ("dibs_jobs", "dibs_history", "dibs_needs", "dibs_flows", "dibs_results", "edge", "job", "past", "kept")
    assert not any(detail.startswith(tuple(f"SCAN {table}" for table in tables)) for detail in details), details


async def test_steps_of_a_flow_are_found_by_an_index(store: SQLiteStore, path: Path) -> None:
    from dibs.stores.sqlite.filters import halves

    which = halves(Filter(flows=(diamond().id,)), None)
    connection = apsw.Connection(str(path))
    for statement, [where] in ((sql.UNFINISHED, which.unfinished), (sql.FINISHED, which.finished)):
        asked = f"EXPLAIN QUERY PLAN {statement.format(where=where)} ORDER BY id DESC LIMIT 10"
        details = [str(row[3]) for row in connection.execute(asked, which.params).fetchall()]
        assert any("_steps (flow=?)" in detail for detail in details), details
    connection.close()


class Steps:
    """Counts steps of SQLite's virtual machine, which no busy machine can change."""

    def __init__(self, store: SQLiteStore) -> None:
        assert store._open is not None
        self.writer = store._open.writer
        self.count = 0

    def __enter__(self) -> "Steps":
        with self.writer.lock:
            self.writer.db.raw.set_progress_handler(self._count, 10)
        return self

    def _count(self) -> bool:
        self.count += 1
        return False

    def __exit__(self, *_: object) -> None:
        with self.writer.lock:
            self.writer.db.raw.set_progress_handler(None)


def wide(size: int) -> NewFlow:
    """A first step, many that need it, one that needs all of those."""
    middle = [f"m{n}" for n in range(size)]
    return flow(step("a"), *(step(name, "a") for name in middle), step("z", *middle))


def pairs(size: int) -> NewFlow:
    """A first step, many that need it, and for each of them one that needs it."""
    both = [(step(f"m{n}", "a"), step(f"n{n}", f"m{n}")) for n in range(size)]
    return flow(step("a"), *(each for pair in both for each in pair), on_failure=OnFailure.CONTINUE)


async def cost(store: SQLiteStore, made: NewFlow, outcome: Outcome) -> tuple[int, int]:
    """Of one claim and one settle in the middle of the flow."""
    await store.start(made)
    await settle(store, (await claimed(store, 1)).values())
    with Steps(store) as claiming:
        claims = await claimed(store, 1)
    with Steps(store) as settling:
        await settle(store, claims.values(), outcome)
    await store.delete(Filter(flows=(made.id,)), force=True, limit=10_000)
    return claiming.count, settling.count


async def test_a_claim_and_a_settle_cost_the_same_in_a_large_flow(store: SQLiteStore) -> None:
    small = await cost(store, wide(10), Succeeded())
    large = await cost(store, wide(9_998), Succeeded())
    assert large[0] <= 1.5 * small[0] + 10
    assert large[1] <= 1.5 * small[1] + 10


async def test_a_failure_that_ends_little_costs_little_in_a_large_flow(store: SQLiteStore) -> None:
    small, large = [await cost(store, pairs(size), Failed("no")) for size in (10, 4_999)]
    assert large[1] <= 1.5 * small[1] + 10


async def test_a_flow_of_ten_thousand_steps_runs_to_its_end(store: SQLiteStore) -> None:
    made = wide(9_998)
    await store.start(made)
    assert [len(names) for names in await run_all(store)] == [1, *[1_000] * 9, 998, 1]
    found = await store.flow(made.id)
    assert found is not None and found.state is FlowState.SUCCEEDED and found.steps[State.SUCCEEDED] == 10_000


async def test_plain_jobs_are_settled_without_a_statement_about_flows(store: SQLiteStore) -> None:
    await store.start(diamond())
    await store.enqueue([NewJob(task="t", queue="plain") for _ in range(21)])
    assert store._open is not None
    raw = store._open.writer.db.raw
    seen: list[str] = []

    def note(_cursor: object, statement: str, _params: object) -> bool:
        seen.append(statement)
        return True

    raw.exec_trace = note
    try:
        for limit in (1, 20):
            claims = await store.claim("plain", "w", limit, LEASE)
            await settle(store, claims)
    finally:
        raw.exec_trace = None
    assert len(seen) > 10
    assert not [one for one in seen if any(name in one for name in ("dibs_flows", "dibs_needs", "SELECT flow"))]


# --- in the caller's transaction --------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", [sqlite3.connect, apsw.Connection])
async def test_a_flow_started_in_a_transaction_is_there_exactly_if_the_rest_is(
    path: Path, store: SQLiteStore, driver: Callable[[str], Any]
) -> None:
    await store.close()
    made = diamond()
    connection = driver(str(path))
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN")
        assert start_in(connection, made).created
        assert not start_in(connection, made).created
        connection.execute(end)
        connection.close()
        await store.setup()
        assert (await store.flow(made.id) is not None) is (end == "COMMIT")
        await (store.close() if end == "ROLLBACK" else asyncio.sleep(0))
        connection = driver(str(path)) if end == "ROLLBACK" else connection
    assert await run_all(store) == [{"a"}, {"b", "c"}, {"d"}]


def test_a_flow_that_is_refused_leaves_the_transaction_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    asyncio.run(_set_up(path))
    there = NewJob(task="t")
    connection = sqlite3.connect(path)
    enqueue_in(connection, [there])
    with pytest.raises(Refused, match="give it a new one"):
        start_in(connection, flow(step("a"), NewStep(name="b", job=there, needs=("a",))))
    connection.commit()
    connection.close()
    assert left(path) == {"dibs_jobs": 1}


async def _set_up(path: Path) -> None:
    store = SQLiteStore(path)
    await store.setup()
    await store.close()
