"""Enqueue: all or nothing, safe to send again, and what went in is what comes out."""

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import Enqueued, Filter, Job, Priority, State
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    MICROSECOND,
    SECOND,
    add,
    add_one,
    enqueue_one,
    every_job,
    finish,
    look,
    new,
    picture,
    state,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**53 + 1,
    0.1,
    1.0,
    -0.0,
    1e-300,
    1.7976931348623157e308,
    "",
    "text",
    "quotes \" ' and \\ backslash",
    "percent %s %% {braces} {} $1 :name ?",
    "naïve 日本語 🦊 e\u0301 \u202e",
    "tab\tnewline\nreturn\r\x01\x7f\u2028",
    [],
    {},
    [[], {}, [None]],
    {"": "", " ": " ", "a.b": {"$c": [1, 2.5, "3"]}},
    {"__proto__": 1, "constructor": 2, "type": "x", "tag": "y"},
]


async def test_an_enqueued_job_has_all_that_it_was_given(store: Store, lab: Lab) -> None:
    job = new(
        "mail.send",
        args={"to": ["a", "b"]},
        queue="mail",
        priority=Priority.HIGH,
        run_at=lab.now + timedelta(hours=1),
        max_attempts=3,
        key="k-1",
        meta={"trace": "abc"},
    )
    assert await store.enqueue([job]) == [Enqueued(job.id, created=True)]
    assert await store.get(job.id) == Job(
        id=job.id,
        queue="mail",
        task="mail.send",
        args={"to": ["a", "b"]},
        state=State.QUEUED,
        priority=-100,
        run_at=lab.now + timedelta(hours=1),
        created_at=lab.now,
        attempts=0,
        max_attempts=3,
        epoch=0,
        key="k-1",
        meta={"trace": "abc"},
    )


async def test_a_job_without_run_at_is_due_when_it_is_created(store: Store, lab: Lab) -> None:
    await lab.advance(7)
    job = await look(store, await add_one(store))
    assert (job.created_at, job.run_at) == (lab.now, lab.now)


async def test_answers_come_in_the_order_of_the_jobs(store: Store) -> None:
    jobs = [new(priority=-n, queue=f"q{n % 3}") for n in range(50)]
    assert await store.enqueue(jobs) == [Enqueued(job.id, created=True) for job in jobs]


async def test_an_empty_call_stores_nothing(store: Store) -> None:
    assert await store.enqueue([]) == []
    assert await every_job(store) == []


async def test_another_handle_sees_the_job(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    other = await lab.open()
    assert await other.get(job) == await look(store, job)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
async def test_arguments_come_back_as_they_were(store: Store, value: Any) -> None:
    job = await add_one(store, args=value, meta={"value": value})
    found = await look(store, job)
    claim = await take_one(store)
    for given in (found.args, claim.args, found.meta["value"], claim.meta["value"]):
        assert given == value
        assert repr(given) == repr(value)


async def test_object_keys_keep_their_order(store: Store) -> None:
    names = ["zulu", "alpha", "10", "9", "", "Zulu"]
    job = await add_one(store, args={name: {name: 1} for name in names})
    found = await look(store, job)
    assert list(found.args) == names


async def test_run_at_in_another_zone_is_the_same_instant(store: Store, lab: Lab) -> None:
    there = (lab.now + SECOND).astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    job = await look(store, await add_one(store, run_at=there))
    assert job.run_at == there
    assert job.run_at.utcoffset() == timedelta(0)


async def test_run_at_keeps_its_microseconds(store: Store, lab: Lab) -> None:
    moments = [lab.now + n * MICROSECOND for n in (1, 2, 999_999)]
    jobs = await store.enqueue([new(run_at=moment) for moment in moments])
    assert [(await look(store, job.id)).run_at for job in jobs] == moments


@pytest.mark.parametrize("year", [1970, 9998])
async def test_run_at_reaches_from_1970_to_9998(store: Store, lab: Lab, year: int) -> None:
    moment = datetime(year, 1, 1, 0, 0, 0, 1, tzinfo=lab.now.tzinfo)
    assert (await look(store, await add_one(store, run_at=moment))).run_at == moment


# --- sent again -------------------------------------------------------------------------------


async def test_a_known_id_is_not_stored_again(store: Store) -> None:
    job = new(args={"n": 1}, key="k")
    await store.enqueue([job])
    before = await picture(store)
    again = new("other", args={"n": 2}, queue="other", key="other", priority=9, id=job.id)
    assert await enqueue_one(store, again) == Enqueued(job.id, created=False)
    assert await picture(store) == before


async def test_an_id_that_comes_twice_in_one_call_is_stored_once(store: Store) -> None:
    job = new(args=1)
    answers = await store.enqueue([job, new(id=job.id, args=2), new(id=job.id, args=3)])
    assert answers == [Enqueued(job.id, created=made) for made in (True, False, False)]
    assert [found.args for found in await every_job(store)] == [1]


async def test_calls_at_the_same_time_each_get_an_answer_of_their_own(store: Store) -> None:
    given = [new(args={"number": number}) for number in range(20)]
    again = given[7]
    calls = [store.enqueue([job]) for job in [*given, again, again]]
    answers = [answer for [answer] in await asyncio.gather(*calls)]
    assert [answer.id for answer in answers] == [job.id for job in [*given, again, again]]
    assert sum(answer.created for answer in answers) == 20
    assert sum(answer.created for answer in answers if answer.id == again.id) == 1
    assert {job.id: job.args for job in await every_job(store)} == {job.id: job.args for job in given}


async def test_a_call_sent_again_adds_only_what_was_missing(store: Store) -> None:
    known, missing = new(), new()
    await store.enqueue([known])
    answers = await store.enqueue([missing, known])
    assert answers == [Enqueued(missing.id, created=True), Enqueued(known.id, created=False)]
    assert len(await every_job(store)) == 2


async def test_an_id_sent_again_leaves_a_running_job_alone(store: Store) -> None:
    job = new()
    await store.enqueue([job])
    await take_one(store)
    before = await picture(store)
    assert await enqueue_one(store, job) == Enqueued(job.id, created=False)
    assert await picture(store) == before


async def test_an_id_sent_again_leaves_a_finished_job_alone(store: Store) -> None:
    job = new(key="k")
    await store.enqueue([job])
    await finish(store, job.id, Succeeded("done"))
    assert await enqueue_one(store, job) == Enqueued(job.id, created=False)
    assert (await look(store, job.id)).result == "done"
    assert await take(store) == []


async def test_a_known_id_counts_before_a_busy_key(store: Store) -> None:
    first, second = new(key="k"), new()
    await store.enqueue([first, second])
    answer = await enqueue_one(store, new(id=second.id, key="k"))
    assert answer == Enqueued(second.id, created=False)


async def test_a_deleted_id_is_new_again(store: Store) -> None:
    job = new()
    await store.enqueue([job])
    await store.delete(Filter(ids=(job.id,)))
    assert await enqueue_one(store, job) == Enqueued(job.id, created=True)
    assert await state(store, job.id) is State.QUEUED


# --- all or nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_one_refused_job_keeps_the_whole_call_out(store: Store, position: int) -> None:
    jobs = [new(queue="never", key="k"), new(queue="seen")]
    jobs.insert(position, new(priority=40_000))
    with pytest.raises(Refused):
        await store.enqueue(jobs)
    assert await picture(store) == ([], [], [])
    assert (await enqueue_one(store, new(queue="never", key="k"))).created


async def test_ten_thousand_jobs_fit_in_one_call(store: Store) -> None:
    jobs = await add(store, 10_000)
    assert [job.id for job in await every_job(store)] == jobs[::-1]


async def test_more_than_ten_thousand_jobs_are_refused(store: Store) -> None:
    with pytest.raises(Refused, match="10,000"):
        await store.enqueue([new()] * 10_001)
    assert await every_job(store) == []


async def test_ids_need_not_rise(store: Store) -> None:
    ids = [new_id() for _ in range(20)]
    await store.enqueue([new(id=one) for one in reversed(ids)])
    assert [job.id for job in await every_job(store)] == ids[::-1]
