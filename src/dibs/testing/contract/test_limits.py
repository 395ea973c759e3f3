"""Limits: bad input is refused with the same words everywhere and nothing is stored; what a handler
gave never leaves its job running."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.errors import Refused
from dibs.job import Filter, NewJob, Retention, State
from dibs.limits import admit
from dibs.outcome import Failed, Pulse, Retry, Succeeded, Verdict
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    add_one,
    end,
    every_job,
    look,
    new,
    only,
    picture,
    take_one,
)

pytestmark = pytest.mark.asyncio

fuzz = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
MEBIBYTE = 1 << 20
NOW = Retention(succeeded=timedelta(0), failed=timedelta(0), cancelled=timedelta(0))


def nested(depth: int, kind: Callable[[Any], Any]) -> Any:
    """That many containers, one in the other."""
    value: Any = 1
    for _ in range(depth):
        value = kind(value)
    return value


def endless() -> list[Any]:
    """A list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


BAD_VALUES: dict[str, Callable[[], Any]] = {
    "NUL": lambda: "a\0b",
    "NUL in a key": lambda: {"a\0b": 1},
    "lone surrogate": lambda: ["\ud800"],
    "lone surrogate in a key": lambda: {"\udfff": 1},
    "NaN": lambda: {"x": float("nan")},
    "infinity": lambda: [float("inf")],
    "minus infinity": lambda: float("-inf"),
    "65 bits": lambda: 2**63,
    "minus 65 bits": lambda: -(2**63) - 1,
    "a thousand digits": lambda: 10**1000,
    "65 lists deep": lambda: nested(65, lambda value: [value]),
    "65 objects deep": lambda: nested(65, lambda value: {"a": value}),
    "100,000 lists deep": lambda: nested(100_000, lambda value: [value]),
    "100,000 objects deep": lambda: nested(100_000, lambda value: {"a": value}),
    "endless": endless,
    "a key that is a number": lambda: {1: "x"},
    "a key that is None": lambda: {None: "x"},
    "a key that is a tuple": lambda: {"ok": {(1, 2): 3}},
    "a set": lambda: {1, 2},
    "bytes": lambda: b"x",
    "a datetime": lambda: datetime(2030, 1, 1),
    "an object": object,
    "an exception": lambda: ValueError("x"),
    "too large": lambda: "x" * (MEBIBYTE - 1),
    "too large in UTF-8": lambda: ["é" * (MEBIBYTE // 2)],
}
each_bad_value = pytest.mark.parametrize("make", BAD_VALUES.values(), ids=list(BAD_VALUES))


def refusal(job: NewJob) -> str | None:
    """What dibs.limits says about the job."""
    try:
        admit([job])
    except Refused as problem:
        return str(problem)
    return None


async def check_refused(store: Store, *jobs: NewJob) -> None:
    """The store refuses each, beside a good one, in the words of dibs.limits, and stores nothing."""
    before = await picture(store)
    for job in jobs:
        reason = refusal(job)
        assert reason is not None, job
        assert "\n" not in reason, job
        with pytest.raises(Refused) as problem:
            await store.enqueue([new(queue="good"), job])
        assert str(problem.value) == reason, job
        assert await picture(store) == before, job


# --- what a user gives ------------------------------------------------------------------------


async def test_bad_arguments_are_refused(store: Store) -> None:
    await check_refused(store, *(new(args=make()) for make in BAD_VALUES.values()))


async def test_bad_meta_is_refused(store: Store) -> None:
    await check_refused(store, *(new(meta={"m": make()}) for make in BAD_VALUES.values()))


BAD_FIELDS: list[dict[str, Any]] = [
    {"meta": []},
    {"meta": None},
    {"meta": "text"},
    *({name: bad} for name in ("queue", "task", "key") for bad in ("", " a", "a ", "a\nb", "a\0", 5)),
    *({name: "n" * 201} for name in ("queue", "task", "key")),
    *({name: "\ud800"} for name in ("queue", "task", "key")),
    *({"task": f"a{char}b"} for char in "\x01\x1f\x7f\x80\x9f\u2028\u2029\udfff"),
    {"queue": None},
    {"task": None},
    {"task": b"send"},
    {"priority": 32768},
    {"priority": -32769},
    {"priority": 1.0},
    {"priority": True},
    {"priority": "1"},
    {"priority": None},
    {"queue": ["default"]},
    {"task": {}},
    {"priority": [1]},
    {"max_attempts": 0},
    {"max_attempts": 1001},
    {"max_attempts": -1},
    {"max_attempts": 2.5},
    {"max_attempts": True},
    {"run_at": datetime(2030, 1, 1)},
    {"run_at": datetime.fromisoformat("9999-01-01T00:00:00+00:00")},
    {"run_at": datetime.fromisoformat("1969-12-31T23:59:59.999999+00:00")},
    {"run_at": 0},
    {"run_at": "2030-01-01T00:00:00Z"},
    {"id": UUID("00000000-0000-4000-8000-000000000000")},
    {"id": "01890a5d-ac96-774b-bcce-b302099a8057"},
    {"id": 7},
    {"id": None},
]


async def test_a_bad_field_is_refused(store: Store) -> None:
    await check_refused(store, *(new(**{"task": "send", **bad}) for bad in BAD_FIELDS))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", -32768),
        ("priority", 32767),
        ("max_attempts", 1),
        ("max_attempts", 1000),
    ],
)
async def test_the_ends_of_each_range_are_allowed(store: Store, field: str, value: int) -> None:
    job = await look(store, await add_one(store, **{field: value}))
    assert getattr(job, field) == value


async def test_64_levels_are_allowed(store: Store) -> None:
    args, meta = nested(32, lambda inner: [{"a": inner}]), {"m": nested(63, lambda inner: [inner])}
    job = await add_one(store, args=args, meta=meta)
    found, claim = await look(store, job), await take_one(store)
    assert (found.args, found.meta) == (claim.args, claim.meta) == (args, meta)


@pytest.mark.parametrize("text", ["x" * (MEBIBYTE - 2), "é" * (MEBIBYTE // 2 - 1)], ids=len)
async def test_a_mebibyte_is_allowed(store: Store, text: str) -> None:
    job = await add_one(store, args=text)
    assert (await look(store, job)).args == text
    assert await end(store, await take_one(store), Succeeded(text)) is Verdict.ACCEPTED
    assert (await look(store, job)).result == text


NAMES = [
    "x" * 200,
    "🦊" * 200,
    "日本語",
    "e\u0301",
    "\u00a0nbsp\u3000",
    "\u202ertl",
    "' OR '1'='1",
    '"; drop table job; --',
    "%s %(x)s {0} {x} $1 :a ?",
    "back\\slash\\",
    "{tag}:x:*",
    "a,b|c;d",
    "null",
    "0",
    "-1",
    "__proto__",
    "../../etc",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:30])
async def test_any_printable_name_goes_all_the_way(store: Store, name: str) -> None:
    job = new(name, queue=name, key=name, meta={name: name}, args={name: [name]})
    await store.enqueue([job])
    assert not (await store.enqueue([new(queue=name, key=name)]))[0].created
    claim = await take_one(store, queue=name, worker=name, tasks=[name])
    assert (claim.id, claim.queue, claim.task, claim.key) == (job.id, name, name, name)
    assert (claim.args, claim.meta, claim.worker) == ({name: [name]}, {name: name}, name)
    assert await store.heartbeat(name, [claim], LEASE, {name: name}) == [Pulse.HELD]
    assert [(one.name, one.running, one.info) for one in await store.workers()] == [(name, 1, {name: name})]
    assert await end(store, claim, Retry(name, timedelta(0), name)) is Verdict.ACCEPTED
    claim = await take_one(store, queue=name, worker=name)
    assert await end(store, claim, Succeeded({name: name})) is Verdict.ACCEPTED
    which = Filter(queues=(name,), tasks=(name,), workers=(name,), keys=(name,))
    [found] = (await store.find(which)).jobs
    assert found.result == {name: name}
    assert [(one.error, one.traceback) for one in found.errors] == [(name, name)]
    await store.pause(name)
    assert [(one.queue, one.paused) for one in await store.counts()] == [(name, True)]


# --- what a handler gave ----------------------------------------------------------------------


@each_bad_value
async def test_a_result_that_cannot_be_stored_fails_the_job(store: Store, make: Callable[[], Any]) -> None:
    job = await add_one(store, max_attempts=5)
    claim = await take_one(store)
    assert await end(store, claim, Succeeded(make())) is Verdict.ACCEPTED
    after = await look(store, job)
    assert (after.state, after.result, after.locked_until) == (State.FAILED, None, None)
    [error] = after.errors
    assert error.error.startswith("the result cannot be stored: ")


async def test_a_bad_result_does_not_hold_back_the_others(store: Store) -> None:
    jobs = [await add_one(store) for _ in range(3)]
    claims = [await take_one(store) for _ in range(3)]
    results = [1, float("nan"), 3]
    items = [one.settled(Succeeded(value)) for one, value in zip(claims, results, strict=True)]
    assert await store.settle(items) == [Verdict.ACCEPTED] * 3
    assert [(await look(store, job)).state for job in jobs] == [
        State.SUCCEEDED,
        State.FAILED,
        State.SUCCEEDED,
    ]


class Unspeakable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError


BAD_TEXTS: dict[str, Any] = {
    "NUL": "a\0b",
    "surrogate": "a\ud800b",
    "long": "x" * 3_000_000,
    "not text": 5,
    "none": None,
    "an exception": ValueError("x"),
    "unspeakable": Unspeakable(),
    "empty": "",
    "lines": "a\nb\tc\x1b[31m",
}


@pytest.mark.parametrize("kind", [Failed, Retry])
@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=list(BAD_TEXTS))
async def test_an_error_that_cannot_be_stored_still_ends_the_attempt(store: Store, kind: Any, text: Any) -> None:
    job = await add_one(store, max_attempts=1)
    claim = await take_one(store)
    assert await end(store, claim, kind(error=text, traceback=text)) is Verdict.ACCEPTED
    after = await look(store, job)
    assert after.state is State.FAILED
    [error] = after.errors
    assert len(error.error) <= 2_000
    assert len(error.traceback) <= 20_000
    assert "\0" not in error.error + error.traceback


async def test_what_cannot_be_stored_of_an_error_is_replaced_and_the_rest_kept(
    store: Store,
) -> None:
    job = await add_one(store)
    await end(store, await take_one(store), Failed("a\0b\ud800c\nd", "x" * 20_001))
    [error] = (await look(store, job)).errors
    assert error.error == "a\ufffdb\ufffdc\nd"
    assert error.traceback == "x" * 19_999 + "…"


# --- fuzz -------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["\0", "a\0", "\ud800", "x\udfff", "\u2028", "'\"\\", "%s{}$1", "🦊", "\x7f", " "]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30])
    | st.floats()
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@fuzz
@given(args=values, meta=st.dictionaries(texts, values, max_size=2))
async def test_any_arguments_are_stored_as_they_are_or_refused(store: Store, args: Any, meta: dict[str, Any]) -> None:
    await check_either_way(store, new(args=args, meta=meta))


@fuzz
@given(queue=texts, task=texts, key=texts | st.none(), priority=st.integers(-40_000, 40_000))
async def test_any_names_are_stored_as_they_are_or_refused(
    store: Store, queue: str, task: str, key: str | None, priority: int
) -> None:
    await check_either_way(store, new(task, queue=queue, key=key, priority=priority))


async def check_either_way(store: Store, job: NewJob) -> None:
    """Refused in the words of dibs.limits and not stored, or stored as it is."""
    if refusal(job) is not None:
        await check_refused(store, job)
        return
    await store.enqueue([job])
    found = await look(store, job.id)
    assert (found.queue, found.task, found.key) == (job.queue, job.task, job.key)
    assert (found.args, found.meta, found.priority) == (job.args, job.meta, job.priority)
    claim = await take_one(store, queue=job.queue)
    assert (claim.id, claim.args, claim.meta) == (job.id, job.args, job.meta)
    await store.delete(only(job.id), force=True)


@fuzz
@given(result=values)
async def test_any_result_ends_the_job(store: Store, result: Any) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    assert await end(store, claim, Succeeded(result)) is Verdict.ACCEPTED
    after = await look(store, job)
    if refusal(new(args=result)) is None:
        assert (after.state, after.result) == (State.SUCCEEDED, result)
    else:
        assert (after.state, len(after.errors)) == (State.FAILED, 1)
    assert await store.prune(NOW) == 1


@fuzz
@given(error=texts, traceback=texts, worker=texts)
async def test_any_error_ends_the_job(store: Store, error: str, traceback: str, worker: str) -> None:
    job = await add_one(store)
    try:
        claim = await take_one(store, worker=worker)
    except Refused:
        claim = await take_one(store)
    assert await end(store, claim, Failed(error, traceback)) is Verdict.ACCEPTED
    [kept] = (await look(store, job)).errors
    bad = str.maketrans(dict.fromkeys(["\0", "\ud800", "\udfff"], "\ufffd"))
    assert (kept.error, kept.traceback) == (error.translate(bad), traceback.translate(bad))
    assert kept.worker == claim.worker
    assert await store.prune(NOW) == 1
    assert await every_job(store) == []
