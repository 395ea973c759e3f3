"""The few words that the contract is written in."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from dibs.job import (
    Changed,
    Claim,
    Enqueued,
    Filter,
    Job,
    NewJob,
    QueueCounts,
    State,
    WorkerInfo,
)
from dibs.outcome import (
    Cancelled,
    Failed,
    Outcome,
    Pulse,
    Released,
    Retry,
    Snoozed,
    Succeeded,
    Verdict,
)
from dibs.scope import LimitUse, Scope
from dibs.store import Store

LEASE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
ALL = Filter(everything=True)

OUTCOMES: tuple[Outcome, ...] = (
    Succeeded({"n": 1}),
    Retry("boom", timedelta(seconds=5), "Traceback"),
    Failed("boom", "Traceback"),
    Cancelled(),
    Released(),
    Snoozed(timedelta(seconds=5)),
)


def named(outcome: Outcome) -> str:
    """What a parametrised outcome is called in a test's id."""
    return type(outcome).__name__.lower()


def new(task: str = "send", **fields: Any) -> NewJob:
    """A job to enqueue."""
    return NewJob(task=task, **fields)


async def add(store: Store, count: int = 1, **fields: Any) -> list[UUID]:
    """Enqueue that many equal jobs in one call; their ids, in order."""
    answers = await store.enqueue([new(**fields) for _ in range(count)])
    assert all(answer.created for answer in answers)
    return [answer.id for answer in answers]


async def add_one(store: Store, **fields: Any) -> UUID:
    """Enqueue one job."""
    [job] = await add(store, **fields)
    return job


async def enqueue_one(store: Store, job: NewJob) -> Enqueued:
    """Enqueue this job; the store's answer."""
    [answer] = await store.enqueue([job])
    return answer


async def take(
    store: Store,
    limit: int = 100,
    *,
    worker: str = "ann",
    queue: str = "default",
    lease: timedelta = LEASE,
    tasks: Collection[str] | None = None,
) -> list[Claim]:
    """Claim."""
    return await store.claim(queue, worker, limit, lease, tasks)


async def take_one(store: Store, **options: Any) -> Claim:
    """Claim one job, which must be there."""
    [claim] = await take(store, 1, **options)
    return claim


async def taken(store: Store, limit: int = 100, **options: Any) -> list[UUID]:
    """The ids that a claim gets, in the order in which it gets them."""
    return [claim.id for claim in await take(store, limit, **options)]


async def end(store: Store, claim: Claim, outcome: Outcome) -> Verdict:
    """Settle one claim."""
    [verdict] = await store.settle([claim.settled(outcome)])
    return verdict


async def beat(store: Store, claim: Claim, lease: timedelta = LEASE) -> Pulse:
    """One heartbeat for one claim, by its worker."""
    [pulse] = await store.heartbeat(claim.worker, [claim], lease)
    return pulse


async def finish(store: Store, job: UUID, outcome: Outcome | None = None, **options: Any) -> None:
    """Claim this job, the only one that is due, and settle it."""
    claim = await take_one(store, **options)
    assert claim.id == job
    assert await end(store, claim, outcome or Succeeded()) is Verdict.ACCEPTED


async def look(store: Store, job: UUID) -> Job:
    """The job, which must be there."""
    found = await store.get(job)
    assert found is not None, f"the store lost job {job}"
    return found


async def state(store: Store, job: UUID) -> State:
    """Where the job stands."""
    return (await look(store, job)).state


async def every_job(store: Store) -> list[Job]:
    """All jobs, newest id first."""
    page = await store.find(Filter(), limit=10_000)
    assert page.after is None
    return list(page.jobs)


async def picture(store: Store) -> tuple[list[Job], list[QueueCounts], list[WorkerInfo]]:
    """All that can be seen of a store: equal pictures mean that nothing changed."""
    return await every_job(store), await store.counts(), await store.workers()


def only(*jobs: UUID) -> Filter:
    """A filter for just these jobs."""
    return Filter(ids=jobs)


def changed(count: int) -> Changed:
    """What a bulk verb answers when that was the last chunk."""
    return Changed(count, None)


QUEUE = Scope(queue="default")
EACH_KEY = Scope(queue="default", each_key=True)
TASK = Scope(task="send")


async def use(store: Store, scope: Scope = QUEUE, job: UUID | None = None) -> LimitUse:
    """How far this limit, which must be set, is used; for a job, if one is given."""
    [found] = [one for one in await store.limits(job) if one.scope == scope]
    return found


async def running(store: Store, scope: Scope = QUEUE, job: UUID | None = None) -> int | None:
    """How many jobs of the scope run, as the limit counts them."""
    return (await use(store, scope, job)).running
