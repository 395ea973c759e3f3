"""Find and get: newest first, every field of a filter, and cursors that neither skip nor repeat."""

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import Filter, Page, State
from dibs.outcome import Cancelled, Failed, Outcome, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    MICROSECOND,
    SECOND,
    add,
    add_one,
    end,
    every_job,
    finish,
    look,
    new,
    only,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio


async def ids(store: Store, **fields: Any) -> list[UUID]:
    """The jobs that a filter finds."""
    page = await store.find(Filter(**fields), limit=10_000)
    return [job.id for job in page.jobs]


async def pages(store: Store, limit: int, **fields: Any) -> list[list[UUID]]:
    """All pages, by their cursors."""
    found, after = [], None
    while True:
        page = await store.find(Filter(**fields), after=after, limit=limit)
        found.append([job.id for job in page.jobs])
        if (after := page.after) is None:
            return found


async def test_an_empty_store_finds_nothing(store: Store) -> None:
    assert await store.find(Filter()) == Page((), None)
    assert await store.get(new_id()) is None


async def test_an_empty_filter_finds_every_job_newest_first(store: Store) -> None:
    jobs = await add(store, 3) + await add(store, 2, queue="other")
    assert await ids(store) == jobs[::-1]


async def test_find_shows_jobs_as_get_does(store: Store) -> None:
    await add(store, 4, args={"a": [1]}, meta={"m": 1}, key=None)
    claims = await take(store, 3)
    await end(store, claims[0], Succeeded({"r": 1}))
    await end(store, claims[1], Failed("boom", "tb"))
    for job in await every_job(store):
        assert await look(store, job.id) == job


async def test_a_page_holds_a_hundred_unless_told_otherwise(store: Store) -> None:
    jobs = await add(store, 101)
    page = await store.find(Filter())
    assert [job.id for job in page.jobs] == jobs[:0:-1]
    assert page.after == jobs[1]


# --- every field ------------------------------------------------------------------------------


async def test_a_filter_by_ids(store: Store) -> None:
    jobs = await add(store, 5)
    assert await ids(store, ids=(jobs[1], jobs[3], new_id())) == [jobs[3], jobs[1]]


async def test_a_filter_by_queues_and_tasks(store: Store) -> None:
    jobs = [await add_one(store, queue=queue, task=task) for queue in ("q1", "q2", "q3") for task in ("t1", "t2")]
    assert await ids(store, queues=("q1", "q3")) == [jobs[n] for n in (5, 4, 1, 0)]
    assert await ids(store, tasks=("t2",)) == [jobs[n] for n in (5, 3, 1)]
    assert await ids(store, queues=("q2", "q3"), tasks=("t1",)) == [jobs[4], jobs[2]]


async def test_a_filter_by_states(store: Store) -> None:
    jobs = await add(store, 5)
    claims = await take(store, 4)
    await end(store, claims[0], Succeeded())
    await end(store, claims[1], Failed("x"))
    await end(store, claims[2], Cancelled())
    order = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.RUNNING, State.QUEUED)
    for job, state in zip(jobs, order, strict=True):
        assert await ids(store, states=(state,)) == [job]
    assert await ids(store, states=(State.FAILED, State.QUEUED)) == [jobs[4], jobs[1]]
    assert await ids(store, states=(State.WAITING,)) == []


async def test_a_filter_by_workers_finds_holders_and_last_holders(store: Store) -> None:
    jobs = await add(store, 3)
    await finish(store, jobs[0], worker="ann")
    await take_one(store, worker="bob")
    assert await ids(store, workers=("ann",)) == [jobs[0]]
    assert await ids(store, workers=("ann", "bob")) == [jobs[1], jobs[0]]


async def test_a_filter_by_keys_finds_finished_jobs_too(store: Store) -> None:
    old = await add_one(store, key="k1")
    await finish(store, old)
    again, _ = await add_one(store, key="k1"), await add_one(store, key="k2")
    assert await ids(store, keys=("k1",)) == [again, old]


async def test_a_filter_by_created_time_includes_since_and_excludes_before(store: Store, lab: Lab) -> None:
    start, jobs = lab.now, []
    for _ in range(4):
        jobs.append(await add_one(store))
        await lab.advance(1)
    assert await ids(store, created_since=start + SECOND) == jobs[:0:-1]
    assert await ids(store, created_before=start + SECOND) == jobs[:1]
    assert await ids(store, created_since=start + SECOND, created_before=start + 3 * SECOND) == [
        jobs[2],
        jobs[1],
    ]
    assert await ids(store, created_since=start + 3 * SECOND + MICROSECOND) == []


async def test_a_filter_by_finished_time_finds_only_finished_jobs(store: Store, lab: Lab) -> None:
    start, jobs = lab.now, await add(store, 4)
    for job in jobs[:3]:
        await finish(store, job)
        await lab.advance(1)
    assert await ids(store, finished_since=start) == jobs[2::-1]
    assert await ids(store, finished_before=start + 2 * SECOND) == [jobs[1], jobs[0]]
    assert await ids(store, finished_since=start + SECOND, finished_before=start + 2 * SECOND) == [jobs[1]]


async def test_a_filter_with_an_empty_list_finds_nothing(store: Store) -> None:
    await add(store, 2, key=None)
    for field in ("ids", "queues", "tasks", "states", "workers", "keys", "flows"):
        assert await ids(store, **{field: ()}) == [], field


async def test_no_plain_job_belongs_to_a_flow(store: Store) -> None:
    await add(store, 2)
    assert await ids(store, flows=(new_id(),)) == []


async def test_every_given_field_must_match(store: Store, lab: Lab) -> None:
    job = await add_one(store, queue="q", task="t", key="k")
    await add_one(store, queue="q", task="t", key="other")
    right: dict[str, Any] = {
        "ids": (job,),
        "queues": ("q",),
        "tasks": ("t",),
        "states": (State.QUEUED,),
        "keys": ("k",),
        "created_since": lab.now,
        "created_before": lab.now + SECOND,
    }
    wrong: dict[str, Any] = {
        "ids": (new_id(),),
        "queues": ("x",),
        "tasks": ("x",),
        "states": (State.RUNNING,),
        "keys": ("x",),
        "workers": ("x",),
        "created_since": lab.now + SECOND,
        "created_before": lab.now,
        "finished_since": lab.now,
    }
    assert await ids(store, **right) == [job]
    for field, value in wrong.items():
        assert await ids(store, **{**right, field: value}) == [], field


HOSTILE = ("%", "_", "*", "a*", "[a-z]", "' OR 1=1 --", '"', "\\", "{x}", "a:b", "🦊", "é", "$1")


async def test_names_in_a_filter_are_taken_to_the_letter(store: Store) -> None:
    jobs = {name: await add_one(store, queue=name, task=name, key=name) for name in (*HOSTILE, "ab")}
    for name in HOSTILE:
        for field in ("queues", "tasks", "keys"):
            assert await ids(store, **{field: (name,)}) == [jobs[name]], (field, name)


async def test_a_filter_may_hold_thousands_of_ids(store: Store) -> None:
    jobs = await add(store, 3)
    many = (*(new_id() for _ in range(9_998)), jobs[0], jobs[2])
    assert await ids(store, ids=many) == [jobs[2], jobs[0]]


# --- pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
async def test_pages_show_every_job_once(store: Store, limit: int) -> None:
    jobs = await add(store, 10)
    got = await pages(store, limit)
    assert [job for page in got for job in page] == jobs[::-1]
    assert [len(page) for page in got[:-1]] == [limit] * (len(got) - 1)


async def test_a_last_full_page_says_that_it_is_the_last(store: Store) -> None:
    await add(store, 4)
    first = await store.find(Filter(), limit=2)
    second = await store.find(Filter(), after=first.after, limit=2)
    assert first.after is not None
    assert (len(second.jobs), second.after) == (2, None)


async def test_pages_mix_finished_and_unfinished_jobs_in_one_order(store: Store) -> None:
    jobs = await add(store, 12)
    for n, claim in enumerate(await take(store)):
        if n % 3:
            await end(store, claim, Succeeded())
    assert [job for page in await pages(store, 5) for job in page] == jobs[::-1]


async def test_pages_of_a_filter_skip_what_does_not_match(store: Store) -> None:
    jobs = [await add_one(store, queue=f"q{n % 3}") for n in range(12)]
    got = await pages(store, 2, queues=("q1",))
    assert got == [[jobs[10], jobs[7]], [jobs[4], jobs[1]]]


async def test_pages_stay_stable_while_jobs_come_go_and_change(store: Store) -> None:
    jobs = await add(store, 9)
    page = await store.find(Filter(), limit=3)
    await add(store, 5, priority=-1)
    await store.delete(only(jobs[8], jobs[6], jobs[5], jobs[1]))
    await store.cancel(only(jobs[4]))
    seen = [job.id for job in page.jobs]
    while page.after is not None:
        page = await store.find(Filter(), after=page.after, limit=3)
        seen += [job.id for job in page.jobs]
    assert seen == [jobs[n] for n in (8, 7, 6, 4, 3, 2, 0)]


FEW: list[dict[str, Any]] = [
    {},
    {"tasks": ("rare",)},
    {"queues": ("q2",)},
    {"states": (State.RUNNING,)},
    {"states": (State.FAILED,)},
    {"states": (State.FAILED, State.CANCELLED), "queues": ("q1", "q2")},
    {"states": (State.SUCCEEDED, State.RUNNING)},
    {"states": (State.QUEUED,), "tasks": ("rare",)},
    {"workers": ("ann",)},
    {"keys": ("nobody",)},
]


@pytest.mark.parametrize("which", FEW, ids=repr)
@pytest.mark.parametrize("most", [1, 4, 1_000])
async def test_looking_at_few_jobs_at_a_time_finds_the_same(store: Store, most: int, which: dict[str, Any]) -> None:
    for n in range(24):
        await add_one(store, queue=f"q{n % 3}", task="rare" if n % 7 == 0 else "send", max_attempts=1)
    for queue in ("q0", "q1", "q2"):
        claims = await take(store, 5, queue=queue)
        outcomes: list[Outcome] = [Succeeded(), Failed("x"), Cancelled(), Failed("y")]
        for claim, outcome in zip(claims, outcomes, strict=False):
            await end(store, claim, outcome)
    expected, found, after = await ids(store, **which), list[UUID](), None
    while True:
        page = await store.find(Filter(**which), after, 3, most=most)
        assert len(page.jobs) <= 3
        found += [job.id for job in page.jobs]
        assert after is None or page.after is None or page.after < after, "it goes on"
        if (after := page.after) is None:
            break
    assert found == expected


async def test_a_cursor_need_not_be_a_job(store: Store) -> None:
    old = await add(store, 2)
    between = new_id()
    await add(store, 2)
    page = await store.find(Filter(), after=between)
    assert [job.id for job in page.jobs] == old[::-1]


async def test_a_cursor_behind_the_last_job_finds_nothing(store: Store) -> None:
    jobs = await add(store, 2)
    assert await store.find(Filter(), after=jobs[0]) == Page((), None)


async def test_ids_sort_by_all_of_their_bits(store: Store) -> None:
    base = new_id().int >> 64 << 64 | 0b10 << 62
    low, mid, high = (UUID(int=base | n) for n in (1, 1 << 31, (1 << 62) - 1))
    await store.enqueue([new(id=one) for one in (mid, high, low)])
    assert await ids(store) == [high, mid, low]
    assert [job.id for job in (await store.find(Filter(), after=mid)).jobs] == [low]


# --- refused ----------------------------------------------------------------------------------

BAD_FILTERS: list[dict[str, Any]] = [
    {"queues": ("",)},
    {"queues": "mail"},
    {"tasks": ("a\0",)},
    {"workers": ("w" * 201,)},
    {"keys": ("\udfff",)},
    {"created_since": datetime(2030, 1, 1)},
    {"finished_before": datetime(2030, 1, 1)},
    {"created_before": "yesterday"},
]


@pytest.mark.parametrize("bad", BAD_FILTERS, ids=repr)
async def test_a_filter_that_breaks_a_rule_is_refused(store: Store, bad: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        await store.find(Filter(**bad))


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, 1.5])
async def test_a_page_has_1_to_10000_jobs(store: Store, limit: Any) -> None:
    with pytest.raises(Refused):
        await store.find(Filter(), limit=limit)


async def test_more_than_ten_thousand_ids_are_refused(store: Store) -> None:
    with pytest.raises(Refused, match="10,000"):
        await store.find(Filter(ids=(new_id(),) * 10_001))
