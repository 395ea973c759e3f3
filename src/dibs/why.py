"""Why a job is not running: what exactly keeps it, by name and with times."""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, cast
from uuid import UUID

import msgspec

from dibs.admin import Admin, Queue, Worker
from dibs.clock import span_micros, to_micros
from dibs.flow import needed
from dibs.handle import has_expired
from dibs.holding import Room, held_back
from dibs.job import FINISHED, NOT_STARTED, Filter, Job, OnFailure, Order, Page, State
from dibs.overview import queues_of
from dibs.redaction import Redaction
from dibs.schedule import tick_of
from dibs.store import CHUNK, Store
from dibs.wording import clock, some, when

LOOKED_AT = 10_000
"""The most queued jobs that are compared to count those ahead."""
PATIENCE = 0.1
"""Seconds after which nobody goes on comparing."""


class Reason(StrEnum):
    """What keeps a job, in one word for programs."""

    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    KEY_BUSY = "key_busy"
    WAITING_FOR_STEP = "waiting_for_step"
    LEASED = "leased"
    CANCEL_ASKED = "cancel_asked"
    LEASE_EXPIRED = "lease_expired"
    QUEUE_PAUSED = "queue_paused"
    NOT_DUE = "not_due"
    NO_WORKER = "no_worker"
    TASK_UNKNOWN = "task_unknown"
    HELD_BACK = "held_back"
    WORKERS_BUSY = "workers_busy"
    BEHIND_OTHERS = "behind_others"
    NEXT_IN_LINE = "next_in_line"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a job from running, for people (``sentence``) and for programs (the rest)."""

    id: UUID
    reason: Reason
    """The first of all: the others do not matter before it is gone."""
    sentence: str
    also: tuple[Reason, ...] = ()
    """What would keep it besides."""
    state: State | None = None
    until: datetime | None = None
    """When it is due, when its lease ends, when a rate lets it start, or how long its key is busy."""
    worker: str | None = None
    """Who holds it."""
    ahead: int | None = None
    """How many jobs come first; None if nobody counted that far."""
    expires_at: datetime | None = None
    """When it ends cancelled, unless it has started by then."""


class _Block(msgspec.Struct, frozen=True):
    reason: Reason
    text: str
    until: datetime | None = None
    ahead: int | None = None


class _Hiding:
    """A store whose jobs are redacted when they are looked at: so no sentence repeats what is secret."""

    def __init__(self, store: Store, redaction: Redaction) -> None:
        self._store = store
        self._redaction = redaction

    async def get(self, job: UUID) -> Job | None:
        found = await self._store.get(job)
        return None if found is None else self._redaction.job(found)

    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        page = await self._store.find(which, after, limit, most=most)
        return Page(tuple(self._redaction.job(job) for job in page.jobs), page.after)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)


async def why(store: Store, id: UUID, now: datetime, redaction: Redaction | None = None) -> Explanation:
    """Name what keeps the job from running, as it is at ``now``; with no argument in it that ``redaction`` hides."""
    store = cast(Store, _Hiding(store, redaction or Redaction()))
    job = await store.get(id)
    if job is None:
        sentence = f"There is no job {id}: it was never stored here, or it was deleted or pruned."
        return Explanation(id=id, reason=Reason.UNKNOWN, sentence=sentence)
    if job.state in FINISHED:
        return _explain(job, [await _finished(store, job, now), *_window(job, now)], now)
    if job.state is State.WAITING:
        return _explain(job, [await _needs(store, job, now)], now)
    admin = Admin(store, lambda: now)
    workers = await admin.workers()
    if job.state is State.RUNNING:
        cause = await _stopped_by(store, job, now) if job.cancel_asked else ""
        blocks = list(_running(job, workers, now, cause))
        if blocks[0].reason is Reason.LEASE_EXPIRED:
            blocks += await _limited(store, job, now)
        return _explain(job, blocks, now)
    queues = {queue.name: queue for queue in queues_of(await store.counts(most=LOOKED_AT + 1), workers)}
    blocks = list(_queued(job, queues.get(job.queue), workers, now))
    if job.run_at <= now and not (blocks and blocks[0].reason is Reason.EXPIRED):
        blocks += await _limited(store, job, now)
    if not blocks:
        blocks = [await _in_line(admin, job, queues[job.queue], workers, now)]
    return _explain(job, blocks, now)


def _explain(job: Job, blocks: Sequence[_Block], now: datetime) -> Explanation:
    first, *others = blocks
    sentence = "; besides, ".join(block.text for block in blocks)
    expires = job.expires_at if job.state in NOT_STARTED else None
    if expires is not None and expires > now:
        sentence += f"; unless it has started by {when(expires, now)}, it ends cancelled"
    return Explanation(
        id=job.id,
        reason=first.reason,
        sentence=f"{sentence[0].upper()}{sentence[1:]}.",
        also=tuple(block.reason for block in others),
        state=job.state,
        until=first.until,
        worker=job.worker if job.state is State.RUNNING else None,
        ahead=first.ahead,
        expires_at=expires,
    )


async def _finished(store: Store, job: Job, now: datetime) -> _Block:
    attempts = f"{job.attempts} attempt{'' if job.attempts == 1 else 's'}"
    at = "" if job.finished_at is None else f" {when(job.finished_at, now)}"
    match job.state:
        case State.SUCCEEDED:
            return _Block(Reason.SUCCEEDED, f"it succeeded{at}, after {attempts}, on worker {job.worker}")
        case State.FAILED:
            again = f"dibs jobs requeue {job.id} runs it again"
            if job.flow is not None:
                named = await _named(store, job)
                again = f"dibs flows retry {job.flow} goes on with flow {named.partition(' (')[0]} from here"
            return _Block(Reason.FAILED, f"it failed{at}, after {attempts}: {_error(job)} ({again})")
        case _ if has_expired(job) and job.expires_at is not None:
            by = when(job.expires_at, now)
            return _Block(Reason.EXPIRED, f"it expired: it had not started by {by}, and ended cancelled{at}")
        case _:
            return _Block(Reason.CANCELLED, f"it was cancelled{at}{await _stopped_by(store, job, now)}")


def _window(job: Job, now: datetime) -> Iterator[_Block]:
    """A finished job whose key is still busy stands for whatever is enqueued with it."""
    if job.key is not None and job.unique_until is not None and job.unique_until > now:
        text = f"its key {job.key} is busy in queue {job.queue} until {when(job.unique_until, now)}"
        yield _Block(Reason.KEY_BUSY, f"{text}: what is enqueued with it before is answered with this job")


# --- steps --------------------------------------------------------------------------------------------------


async def _steps(store: Store, flow: UUID) -> dict[str, Job]:
    steps: dict[str, Job] = {}
    async for job in Admin(store).every(Filter(flows=(flow,))):
        steps[job.step or str(job.id)] = job
    return steps


async def _needs(store: Store, job: Job, now: datetime) -> _Block:
    """Which steps a waiting one needs, and what became of them."""
    steps = {} if job.flow is None else await _steps(store, job.flow)
    job = next((step for step in steps.values() if step.id == job.id), job)  # as it was when they were looked at
    there = needed(job, steps)
    gone = [name for name in job.needs if name not in there and name not in job.inputs]
    # What is gone or failed comes first, as nothing changes before somebody does something about it; then what runs.
    names = gone + [step.step or "?" for step in _open(there.values())]
    if not names:
        return _Block(Reason.WAITING_FOR_STEP, f"it is a step of flow {job.flow} and is about to be queued")
    first, *others = names
    how = _how(there[first], steps, now) if first in there else _without(job)
    text = f"it needs step {first} of flow {await _named(store, job)}, {how}"
    if others:
        text += f"; it needs {some(others)} as well"
    return _Block(Reason.WAITING_FOR_STEP, text)


def _without(job: Job) -> str:
    """How a step can run that waits for one that is gone: a requeue looks again at what is there."""
    again = f"dibs jobs cancel {job.id} and then dibs flows retry {job.flow} run it without"
    return f"which was deleted or pruned and had not succeeded ({again})"


_HOPELESS = (State.FAILED, State.CANCELLED, State.RUNNING, State.QUEUED, State.WAITING, State.SUCCEEDED)


def _open(steps: Iterable[Job]) -> list[Job]:
    """Those that have not succeeded, the ones that hold up most first."""
    waited_for = [step for step in steps if step.state is not State.SUCCEEDED]
    return sorted(waited_for, key=lambda step: (_HOPELESS.index(step.state), _place(step, Order.FIFO)))


def _how(step: Job, steps: dict[str, Job], now: datetime) -> str:
    """How a step is that another one waits for."""
    at = "" if step.finished_at is None else f" {when(step.finished_at, now)}"
    match step.state:
        case State.RUNNING:
            since = "" if step.started_at is None else f" since {when(step.started_at, now)}"
            return f"which is running on worker {step.worker}{since}"
        case State.QUEUED if step.run_at > now:
            return f"which is not due until {when(step.run_at, now)}"
        case State.QUEUED:
            return f"which is queued in {step.queue} (dibs why {step.id})"
        case State.FAILED:
            return f"which failed{at}: {_error(step)} (dibs flows retry {step.flow} runs it again)"
        case State.CANCELLED:
            return f"which was cancelled{at} (dibs flows retry {step.flow} runs it again)"
    root = _root(step, steps)
    if root is step:
        return "which is waiting, too"
    return f"which waits in the end for step {root.step}, {_how(root, steps, now)}"


def _root(step: Job, steps: dict[str, Job]) -> Job:
    """What a waiting step waits for in the end: the first unfinished one up its line that is not waiting itself."""
    seen = set[UUID]()  # a circle cannot be stored; what cannot be must not hang the answer
    while step.state is State.WAITING and step.id not in seen:
        seen.add(step.id)
        step = next(iter(_open(needed(step, steps).values())), step)
    return step


async def _stopped_by(store: Store, job: Job, now: datetime) -> str:
    """Why a step was cancelled, or asked to stop: because of another one, as far as anybody can tell."""
    flow = None if job.flow is None else await store.flow(job.flow)
    if flow is None:
        return ""
    steps = await _steps(store, flow.id)
    if flow.on_failure is OnFailure.CONTINUE:
        steps = _behind(job, steps)
    ended = [(step.finished_at, step) for step in steps.values() if step.finished_at and step.id != job.id]
    causes = [(at, step) for at, step in ended if _harms(step) and at <= (job.finished_at or now)]
    again = f" (dibs flows retry {flow.id} runs it again)" if job.state in FINISHED else ""
    if not causes:
        return f", as a step of flow {flow.name}{again}"
    at, first = min(causes, key=lambda cause: cause[0])
    how = f"failed {when(at, now)}: {_error(first)}" if first.state is State.FAILED else f"expired {when(at, now)}"
    return f", because step {first.step} of flow {flow.name} {how}{again}"


def _harms(step: Job) -> bool:
    return step.state is State.FAILED or has_expired(step)


def _behind(job: Job, steps: dict[str, Job]) -> dict[str, Job]:
    """What a step needs, and what that needs, and so on."""
    found: dict[str, Job] = {}
    behind = [job]
    for step in behind:
        more = {name: need for name, need in needed(step, steps).items() if name not in found}
        found |= more
        behind += more.values()
    return found


async def _named(store: Store, job: Job) -> str:
    flow = None if job.flow is None else await store.flow(job.flow)
    return str(job.flow) if flow is None else f"{flow.name} ({flow.id})"


def _error(job: Job) -> str:
    return job.errors[-1].error.partition("\n")[0].rstrip(".") if job.errors else "no error was recorded"


# --- jobs that run or are queued ----------------------------------------------------------------------------


def _running(job: Job, workers: Sequence[Worker], now: datetime, cause: str) -> Iterator[_Block]:
    until = job.locked_until or now
    holder = f"worker {job.worker}"
    if until > now:
        started = "" if job.started_at is None else f" since {when(job.started_at, now)}"
        if job.cancel_asked:
            learns = "the worker learns of it in a moment, or at its next heartbeat"
            text = f"it runs on {holder}, a cancel was asked{cause}: {learns}"
            yield _Block(Reason.CANCEL_ASKED, f"{text} (lease until {clock(until)})", until)
        else:
            text = f"it is running: leased by {holder}{started}, until {clock(until)} unless renewed"
            yield _Block(Reason.LEASED, text, until)
        return
    after = "the next claim runs it again"
    if job.cancel_asked:
        after = "the next claim or sweep ends it as cancelled"
    elif job.attempts >= job.max_attempts:
        after = f"the next claim or sweep fails it, as all {job.max_attempts} attempts are used"
    elif job.expires_at is not None and job.expires_at <= now:
        after = f"the next claim or sweep ends it as cancelled, as it expired {when(job.expires_at, now)}"
    yield _Block(Reason.LEASE_EXPIRED, f"the lease of {holder} expired {when(until, now)}, {after}", until)
    # Who only ever claimed, and let the lease go, is no sign of life.
    yield from _unserved(job, [worker for worker in workers if worker.name != job.worker or worker.seen_at])


def _queued(job: Job, queue: Queue | None, workers: Sequence[Worker], now: datetime) -> Iterator[_Block]:
    if job.expires_at is not None and job.expires_at <= now:
        text = f"it expired: it had not started by {when(job.expires_at, now)}"
        yield _Block(Reason.EXPIRED, f"{text}, so the next claim or sweep ends it as cancelled")
        return
    if job.run_at > now:
        about = f" (attempt {job.attempts + 1} of {job.max_attempts})" if job.attempts else _spread(job)
        yield _Block(Reason.NOT_DUE, f"it is not due until {when(job.run_at, now)}{about}", job.run_at)
    if queue is not None and queue.paused:
        text = f"queue {job.queue} is paused (dibs queues resume {job.queue})"
        yield _Block(Reason.QUEUE_PAUSED, text)
    yield from _unserved(job, workers)


def _spread(job: Job) -> str:
    tick = tick_of(job)
    return "" if tick is None else f" (schedule {tick.schedule} made it for its tick {tick.at} and spreads its jobs)"


def _unserved(job: Job, workers: Sequence[Worker]) -> Iterator[_Block]:
    serving = [worker for worker in workers if worker.live and worker.serves(job.queue)]
    if not serving:
        text = f"no live worker serves queue {job.queue}"
        gone = [worker.name for worker in workers if not worker.live and worker.serves(job.queue)]
        yield _Block(Reason.NO_WORKER, f"{text} (gone: {some(gone)})" if gone else text)
    elif not any(worker.knows(job.task) for worker in serving):
        names = some([worker.name for worker in serving])
        text = f"none of the live workers of queue {job.queue} ({names}) knows task {job.task}"
        yield _Block(Reason.TASK_UNKNOWN, text)


async def _limited(store: Store, job: Job, now: datetime) -> list[_Block]:
    held = await held_back(store, job, now)
    return [] if held is None else [_Block(Reason.HELD_BACK, held.text, held.until)]


async def _in_line(admin: Admin, job: Job, queue: Queue, workers: Sequence[Worker], now: datetime) -> _Block:
    able = [worker for worker in workers if worker.live and worker.serves(job.queue) and worker.knows(job.task)]
    counted = await _ahead(admin, job, queue, able, now)
    if counted is None:
        others = f"{queue.due - 1:,} other" if State.QUEUED not in queue.more else f"more than {queue.due - 1:,}"
        text = f"it is behind some of the {others} due jobs of queue {job.queue}"
        return _Block(Reason.BEHIND_OTHERS, f"{text}, which {some([worker.name for worker in able])} works through")
    ahead, held = counted
    passes = "" if not held else f" (not counting {held:,} that limits hold back)"
    if ahead:
        others = "one other" if ahead == 1 else f"{ahead:,} others"
        aged = "" if queue.ageing is None else f", where {_length(queue.ageing)} of waiting are worth one priority"
        return _Block(Reason.BEHIND_OTHERS, f"it is behind {others} in queue {job.queue}{passes}{aged}", ahead=ahead)
    if all(worker.full for worker in able):
        busy = some([f"{worker.name} holds {worker.running}, runs {worker.concurrency} at once" for worker in able])
        text = f"it is next in queue {job.queue}{passes}, but every worker that could run it is full: {busy}"
        return _Block(Reason.WORKERS_BUSY, text, ahead=0)
    names = some([worker.name for worker in able])
    text = f"it is next in queue {job.queue}{passes}: {names} takes it in a moment"
    return _Block(Reason.NEXT_IN_LINE, text, ahead=0)


async def _ahead(admin: Admin, job: Job, queue: Queue, able: Sequence[Worker], now: datetime) -> tuple[int, int] | None:
    """How many due jobs the same workers take before this one, and how many they would but for limits.

    None if there are too many to look at, or they are hard to find among others.
    """
    if State.QUEUED in queue.more or queue.states[State.QUEUED] > LOOKED_AT:
        return None
    mine, ahead, held = _place(job, queue.order, queue.ageing), 0, 0
    room, until = await Room.of(admin.store, job.queue), time.monotonic() + PATIENCE
    which, after = Filter(queues=(job.queue,), states=(State.QUEUED,)), None
    while True:
        page = await admin.store.find(which, after, CHUNK, most=LOOKED_AT)
        for other in page.jobs:
            if other.run_at > now or _place(other, queue.order, queue.ageing) >= mine:
                continue
            if any(worker.knows(other.task) for worker in able):
                free = await room.has(other)
                ahead, held = ahead + free, held + (not free)
        after = page.after
        if after is None:
            return ahead, held
        if time.monotonic() > until:
            return None


def _place(job: Job, order: Order, ageing: timedelta | None = None) -> tuple[int, int, int]:
    """Where it stands in the line: of two jobs the one with the smaller place is taken first."""
    due, number = to_micros(job.run_at), job.id.int
    if ageing is not None:
        return 0, due + job.priority * span_micros(ageing), number
    return (job.priority, -due, -number) if order is Order.LIFO else (job.priority, due, number)


def _length(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
