"""A store as a shop has it after some weeks: many jobs that ended, many that wait, and something of everything else."""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from bench.lib.progress import say
from dibs import App, NewJob, Store
from dibs.ids import new_id
from dibs.job import Claim, Filter, NewFlow, NewStep, State
from dibs.outcome import Cancelled, Failed, Outcome, Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.telemetry import slots
from dibs.telemetry.slots import INDEX, SLOT, TOGETHER
from dibs.telemetry.tally import Figures

LEASE = timedelta(hours=6)
QUEUES = {"orders": 50, "mail": 25, "images": 15, "reports": 9, "rare": 1}
TASKS = ("charge", "send_mail", "resize", "report", "sync_stock", "index_page", "webhook", "export", "cleanup", "once")
WORKERS = tuple(f"worker-{number}" for number in range(1, 9))
ERRORS = (
    "TimeoutError: the bank did not answer within {n} s",
    "ValueError: order {n} has no address",
    "ConnectionError: cannot reach 10.0.0.{n}:5432",
    "KeyError: 'sku-{n}'",
    "PermissionError: customer {n} may not do that",
    "OSError: [Errno 28] No space left on device: '/data/{n}.png'",
    "RuntimeError: image {n} is no image",
    "AssertionError: {n} is not {n}",
)
TRACE = "Traceback (most recent call last):\n" + "".join(
    f'  File "shop/{name}.py", line {at}, in {name}\n    return {name}(order, cents)\n'
    for at, name in enumerate(("run", "handle", "charge", "ask", "send", "receive", "check", "raise_it"), 17)
)
CHUNK = 5_000


class Landmarks(msgspec.Struct, kw_only=True):
    """What pages are asked about."""

    queued: UUID
    """In the middle of a line of half a million."""
    in_short_line: UUID
    """In one of ten thousand."""
    failed: UUID
    succeeded: UUID
    running: UUID
    waiting: UUID
    flow: UUID
    key: str
    middle: UUID
    """Half of all jobs are newer."""


async def filled(url: str, jobs: int) -> None:
    """Put so many jobs that ended and so many that wait into an empty store."""
    chance = random.Random(5)
    app = App(url)
    async with app:
        store = await app.store()
        await _heartbeats(store)
        await _ended(store, jobs, chance)
        await _flows(store, min(5_000, jobs // 100))
        await _waiting(store, jobs, chance)
        await _rest(app, store)


async def landmarks(store: Store) -> Landmarks:
    """Found again in a store that was filled before; its workers live for another hour."""
    await _heartbeats(store)

    async def one(state: State, after: UUID | None = None, queue: str = "orders") -> UUID:
        return (await store.find(Filter(states=(state,), queues=(queue,)), after, 1)).jobs[0].id

    middle = (await store.find(Filter(states=(State.QUEUED,), tasks=("once",)), None, 1)).jobs[0]
    flow = (await store.flows(None, None, 1)).flows[0].id
    return Landmarks(
        queued=await one(State.QUEUED, middle.id),
        in_short_line=await one(State.QUEUED, middle.id, "rare"),
        failed=await one(State.FAILED),
        succeeded=await one(State.SUCCEEDED),
        running=await one(State.RUNNING),
        waiting=await one(State.WAITING),
        flow=flow,
        key=middle.key or "",
        middle=middle.id,
    )


# --- jobs -------------------------------------------------------------------------------------------------------


def _jobs(count: int, chance: random.Random, later: float = 0.0) -> Iterator[list[NewJob]]:
    now = datetime.now(UTC)
    names, weights = list(QUEUES), list(QUEUES.values())
    for start in range(0, count, CHUNK):
        made = []
        for number in range(start, min(start + CHUNK, count)):
            [queue] = chance.choices(names, weights)
            made.append(
                NewJob(
                    task=chance.choice(TASKS[:-1]),
                    queue=queue,
                    args={"order": number, "cents": chance.randrange(10**6), "to": f"somebody-{number}@example.org"},
                    meta={"tenant": number % 500},
                    priority=chance.choice((0, 0, 0, -10, 10)),
                    max_attempts=3,
                    key=f"key-{new_id()}" if chance.random() < 0.05 else None,
                    limit_key=f"tenant-{number % 500}" if queue == "reports" else None,
                    run_at=now + timedelta(hours=12, seconds=number) if chance.random() < later else None,
                )
            )
        yield made


async def _ended(store: Store, jobs: int, chance: random.Random) -> None:
    done = 0
    for chunk in _jobs(jobs, chance):
        await store.enqueue(chunk)
        for queue in QUEUES:
            while claims := await store.claim(queue, chance.choice(WORKERS), 1_000, LEASE):
                await store.settle([claim.settled(_outcome(claim, chance)) for claim in claims])
        done += len(chunk)
        if done % 100_000 < CHUNK:
            say(f"{done:,} jobs ended")


def _outcome(claim: Claim, chance: random.Random) -> Outcome:
    sort = chance.random()
    if sort < 0.90:
        return Succeeded({"ok": True, "at": claim.epoch, "text": "thank you"})
    if sort < 0.98:
        return Failed(chance.choice(ERRORS).format(n=chance.randrange(1_000)), TRACE)
    return Cancelled()


async def _waiting(store: Store, jobs: int, chance: random.Random) -> None:
    half = jobs // 2
    for part in (half, jobs - half):
        done = 0
        for chunk in _jobs(part, chance, later=0.2):
            await store.enqueue(chunk)
            done += len(chunk)
            if done % 100_000 < CHUNK:
                say(f"{done:,} more jobs wait")
        if part == half:
            await store.enqueue([NewJob(task="once", queue="orders", key=f"once-{new_id()}")])
    for worker in WORKERS:
        await store.claim("orders", worker, 25, LEASE)


async def _flows(store: Store, count: int) -> None:
    """Some that ended, some that stopped at a failure, some that wait."""

    def flow(number: int) -> NewFlow:
        def job(name: str) -> NewJob:
            return NewJob(task=f"{name}_page", queue="images", args={"page": number})

        steps = (
            NewStep(name="fetch", job=job("fetch")),
            NewStep(name="parse", job=job("parse"), needs=("fetch",)),
            NewStep(name="check", job=job("check"), needs=("fetch",)),
            NewStep(name="index", job=NewJob(task="index_page", queue="orders"), needs=("parse", "check")),
        )
        return NewFlow(name="import", steps=steps)

    for start in range(0, count, 100):
        await asyncio.gather(*(store.start(flow(number)) for number in range(start, min(start + 100, count))))
        while start < count // 2 and start + 100 < count and await _worked(store):
            pass
    say(f"{count:,} flows")


async def _worked(store: Store) -> int:
    claims = await store.claim("images", WORKERS[0], 1_000, LEASE)
    outcomes = [Failed(ERRORS[1].format(n=7)) if claim.id.int % 97 == 0 else Succeeded(1) for claim in claims]
    await store.settle([claim.settled(how) for claim, how in zip(claims, outcomes, strict=True)])
    return len(claims)


# --- the rest ---------------------------------------------------------------------------------------------------


async def _heartbeats(store: Store) -> None:
    for worker in WORKERS:
        info = {"queues": list(QUEUES), "tasks": None, "concurrency": 25, "lease": 3_600}
        await store.heartbeat(worker, [], LEASE, info)


async def _rest(app: App, store: Store) -> None:
    await store.limit(Scope(queue="mail"), Limit(rate=Rate(100, timedelta(minutes=1))), rank=1)
    await store.limit(Scope(queue="reports", each_key=True), Limit(concurrency=2), rank=1)
    await store.limit(Scope(task="export"), Limit(concurrency=10), rank=1)
    for number in range(20):
        await app.schedules.add(f"nightly-{number}", NewJob(task="cleanup"), cron=f"{number} 3 * * *")
    await _samples(store, datetime.now(UTC))


async def _samples(store: Store, now: datetime) -> None:
    """Two days of what workers recorded."""
    places = {(queue, task): Figures(started=90, succeeded=80, failed=7) for queue in QUEUES for task in TASKS}
    depths = {queue: {"due": 1_000 * share, "scheduled": 50} for queue, share in QUEUES.items()}
    at = slots.begin(now)
    for _ in range(int(timedelta(days=2) / SLOT)):
        at -= SLOT
        await store.keep(slots.sample(at), {TOGETHER: slots.pack(places)})
        await store.keep(slots.depth(at), {slots.name(at): depths})
        await store.keep(INDEX, {slots.name(at): {"together": True}})
