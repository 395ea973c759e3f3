"""Operators' verbs: reschedule, reprioritise, delete; chunks, cursors and dry runs of all of them."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import Changed, Filter, State
from dibs.outcome import Outcome, Pulse, Retry, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    ALL,
    OUTCOMES,
    SECOND,
    add,
    add_one,
    beat,
    changed,
    end,
    every_job,
    finish,
    look,
    named,
    new,
    only,
    picture,
    state,
    take,
    take_one,
    taken,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

Verb = Callable[..., Awaitable[Changed]]
LATER = datetime.fromisoformat("2031-01-01T00:00:00+00:00")


def verb(store: Store, name: str) -> Verb:
    """One of the five, with what it needs beside a filter."""
    extra: dict[str, Any] = {"reschedule": {"run_at": LATER}, "reprioritise": {"priority": 7}}

    async def call(which: Filter, **options: Any) -> Changed:
        answer: Changed = await getattr(store, name)(which, **extra.get(name, {}), **options)
        return answer

    return call


each_verb = pytest.mark.parametrize("name", ["cancel", "requeue", "reschedule", "reprioritise", "delete"])


async def prepared(store: Store, name: str, count: int) -> list[Any]:
    """Jobs that the verb applies to."""
    jobs = await add(store, count)
    if name == "requeue":
        await store.settle([one.settled(Succeeded()) for one in await take(store, count)])
    return jobs


# --- all five ---------------------------------------------------------------------------------


@each_verb
async def test_an_empty_filter_changes_nothing_unless_it_says_everything(store: Store, name: str) -> None:
    await prepared(store, name, 3)
    before = await picture(store)
    for dry_run in (False, True):
        with pytest.raises(Refused, match="everything=True"):
            await verb(store, name)(Filter(), dry_run=dry_run)
    assert await picture(store) == before
    assert await verb(store, name)(ALL) == changed(3)


@each_verb
async def test_a_dry_run_counts_all_and_changes_nothing(store: Store, name: str) -> None:
    jobs = await prepared(store, name, 5)
    before = await picture(store)
    assert await verb(store, name)(ALL, dry_run=True) == changed(5)
    assert await verb(store, name)(ALL, dry_run=True, limit=2) == changed(5)
    assert await verb(store, name)(ALL, dry_run=True, after=jobs[3]) == changed(3)
    assert await picture(store) == before


@each_verb
async def test_chunks_go_newest_first_and_say_where_to_go_on(store: Store, name: str) -> None:
    jobs = await prepared(store, name, 5)
    before = {job: await look(store, job) for job in jobs}
    first = await verb(store, name)(ALL, limit=2)
    assert first == Changed(2, jobs[3])
    for job in jobs[:3]:
        assert await look(store, job) == before[job]
    second = await verb(store, name)(ALL, limit=2, after=first.after)
    assert second == Changed(2, jobs[1])
    assert await look(store, jobs[0]) == before[jobs[0]]
    assert await verb(store, name)(ALL, limit=2, after=second.after) == changed(1)
    for job in jobs:
        assert await store.get(job) != before[job]


@each_verb
async def test_a_chunk_that_is_just_full_says_to_go_on(store: Store, name: str) -> None:
    jobs = await prepared(store, name, 2)
    assert await verb(store, name)(ALL, limit=2) == Changed(2, jobs[0])
    assert await verb(store, name)(ALL, limit=2, after=jobs[0]) == changed(0)


@each_verb
async def test_a_verb_reaches_only_what_is_behind_its_cursor(store: Store, name: str) -> None:
    jobs = await prepared(store, name, 4)
    before = [await store.get(job) for job in jobs]
    assert await verb(store, name)(ALL, after=jobs[2]) == changed(2)
    after = [await store.get(job) for job in jobs]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, False, True, True]


@each_verb
async def test_a_chunk_takes_only_jobs_that_match_and_apply(store: Store, name: str) -> None:
    for queue in ("mail", "other", "mail", "other", "mail"):
        await add_one(store, queue=queue)
    jobs = [job for job in await every_job(store) if job.queue == "mail"]
    if name == "requeue":
        for queue in ("mail", "other"):
            claims = await take(store, queue=queue)
            await store.settle([one.settled(Succeeded()) for one in claims])
    answer = await verb(store, name)(Filter(queues=("mail",)), limit=2)
    assert answer == Changed(2, jobs[1].id)
    rest = await verb(store, name)(Filter(queues=("mail",)), limit=2, after=answer.after)
    assert rest == changed(1)


@each_verb
async def test_nothing_found_is_nothing_changed(store: Store, name: str) -> None:
    await prepared(store, name, 2)
    before = await picture(store)
    for which in (only(new_id()), Filter(ids=()), Filter(queues=("nobody",)), Filter(states=())):
        assert await verb(store, name)(which) == changed(0)
    assert await picture(store) == before


@each_verb
async def test_a_chunk_holds_a_thousand_unless_told_otherwise(store: Store, name: str) -> None:
    jobs = await prepared(store, name, 1_001)
    assert await verb(store, name)(ALL) == Changed(1_000, jobs[1])
    assert await verb(store, name)(ALL, after=jobs[1]) == changed(1)


@each_verb
@pytest.mark.parametrize(
    "bad",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"limit": True},
        {"which": Filter(queues=("",))},
        {"which": Filter(created_since=datetime(2030, 1, 1))},
    ],
    ids=["limit 0", "limit 10001", "limit True", "bad name", "no zone"],
)
async def test_a_call_that_breaks_a_rule_changes_nothing(store: Store, name: str, bad: dict[str, Any]) -> None:
    await prepared(store, name, 2)
    before = await picture(store)
    with pytest.raises(Refused):
        await verb(store, name)(**{"which": ALL, **bad})
    assert await picture(store) == before


# --- reschedule -------------------------------------------------------------------------------


async def test_a_rescheduled_job_is_due_at_its_new_time(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    before = await look(store, job)
    assert await store.reschedule(only(job), lab.now + SECOND) == changed(1)
    after = await look(store, job)
    assert after.run_at == lab.now + SECOND
    assert (after.state, after.created_at, after.epoch) == (State.QUEUED, before.created_at, 0)
    assert await take(store) == []
    await lab.advance(1)
    assert await taken(store) == [job]


async def test_a_scheduled_job_can_be_brought_forward(store: Store, lab: Lab) -> None:
    job = await add_one(store, run_at=LATER)
    assert await take(store) == []
    await store.reschedule(only(job), lab.now)
    assert await taken(store) == [job]


async def test_a_retry_can_be_brought_forward(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    await finish(store, job, Retry("boom", timedelta(hours=1)))
    await store.reschedule(only(job), lab.now)
    assert (await take_one(store)).attempt == 2


async def test_running_and_finished_jobs_are_not_rescheduled(store: Store) -> None:
    done, _ = await add(store, 2)
    await finish(store, done)
    await take_one(store)
    before = await picture(store)
    assert await store.reschedule(ALL, LATER) == changed(0)
    assert await picture(store) == before


@pytest.mark.parametrize("moment", [datetime(2030, 1, 1), "now", None, LATER.replace(year=9999)], ids=repr)
async def test_a_bad_moment_is_refused(store: Store, moment: Any) -> None:
    job = await add_one(store)
    before = await look(store, job)
    with pytest.raises(Refused):
        await store.reschedule(only(job), moment)
    assert await look(store, job) == before


# --- reprioritise -----------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-32768, 0, 32767])
async def test_a_reprioritised_job_has_its_new_priority(store: Store, priority: int) -> None:
    job = await add_one(store, priority=5)
    before = await look(store, job)
    assert await store.reprioritise(only(job), priority) == changed(1)
    after = await look(store, job)
    assert (after.priority, after.run_at, after.state) == (priority, before.run_at, before.state)
    assert (await take_one(store)).priority == priority


async def test_a_scheduled_job_can_be_reprioritised(store: Store, lab: Lab) -> None:
    plain, urgent = await add(store, 2, run_at=lab.now + SECOND)
    await store.reprioritise(only(urgent), -1)
    await lab.advance(1)
    assert await taken(store) == [urgent, plain]


async def test_running_and_finished_jobs_are_not_reprioritised(store: Store) -> None:
    done, _ = await add(store, 2)
    await finish(store, done)
    await take_one(store)
    before = await picture(store)
    assert await store.reprioritise(ALL, 3) == changed(0)
    assert await picture(store) == before


@pytest.mark.parametrize("priority", [-32769, 32768, 1.0, "1", None, True], ids=repr)
async def test_a_bad_priority_is_refused(store: Store, priority: Any) -> None:
    job = await add_one(store, priority=5)
    with pytest.raises(Refused):
        await store.reprioritise(only(job), priority)
    assert (await look(store, job)).priority == 5


@pytest.mark.parametrize("name", ["reschedule", "reprioritise"])
async def test_a_settle_sent_again_after_a_new_place_is_still_accepted(store: Store, name: str) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await end(store, claim, Retry("boom"))
    await verb(store, name)(only(job))
    before = await picture(store)
    assert await end(store, claim, Retry("boom")) is Verdict.ACCEPTED
    assert await picture(store) == before


# --- delete -----------------------------------------------------------------------------------


async def test_a_deleted_job_leaves_no_trace(store: Store) -> None:
    job = await add_one(store, queue="mail", key="k")
    assert await store.delete(only(job)) == changed(1)
    assert await store.get(job) is None
    assert await picture(store) == ([], [], [])
    [answer] = await store.enqueue([new(queue="mail", key="k")])
    assert answer.created


async def test_finished_jobs_can_be_deleted(store: Store) -> None:
    jobs = await add(store, 3)
    for job, outcome in zip(jobs, (OUTCOMES[0], OUTCOMES[2], OUTCOMES[3]), strict=True):
        await finish(store, job, outcome)
    assert await store.delete(ALL) == changed(3)
    assert await every_job(store) == []


async def test_running_jobs_are_not_deleted_without_force(store: Store, lab: Lab) -> None:
    running, expired = await add(store, 2)
    await take_one(store, lease=timedelta(hours=1))
    await take_one(store, lease=SECOND)
    await lab.advance(1)
    before = await picture(store)
    assert await store.delete(only(running, expired)) == changed(0)
    assert await store.delete(only(running, expired), dry_run=True) == changed(0)
    assert await picture(store) == before


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
async def test_force_deletes_a_running_job_and_fences_its_owner_out(store: Store, outcome: Outcome) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    assert await store.delete(only(job), force=True, dry_run=True) == changed(1)
    assert await store.delete(only(job), force=True) == changed(1)
    assert await end(store, claim, outcome) is Verdict.LOST
    assert await beat(store, claim) is Pulse.LOST
    assert await store.get(job) is None
    assert await take(store, worker="bob") == []


async def test_force_deletes_every_state(store: Store, lab: Lab) -> None:
    jobs = await add(store, 4)
    await finish(store, jobs[0])
    await take_one(store)
    await store.reschedule(only(jobs[3]), lab.now + SECOND)
    assert await store.delete(ALL, force=True) == changed(4)
    assert await every_job(store) == []


async def test_deleting_some_leaves_the_others_as_they_are(store: Store) -> None:
    jobs = await add(store, 6)
    kept = [await look(store, job) for job in jobs[::2]]
    assert await store.delete(only(*jobs[1::2])) == changed(3)
    assert await every_job(store) == kept[::-1]
    assert await taken(store) == jobs[::2]
    assert await state(store, jobs[0]) is State.RUNNING
