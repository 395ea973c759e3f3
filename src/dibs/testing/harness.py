"""An app on a store in memory, with a clock that the test owns: enqueue, look, drain, crash."""

import threading
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from dibs.app import App
from dibs.clock import system_clock
from dibs.draining import Deadline, Drained
from dibs.errors import JobUnknown, Refused
from dibs.handle import Handle
from dibs.job import Claim, Filter, Job, Settlement, State
from dibs.limiting import is_full
from dibs.outcome import Verdict
from dibs.signals import Delay, span
from dibs.store import Store
from dibs.task import Task, Tasks
from dibs.testing.callers import Desk, in_a_loop
from dibs.testing.clock import FakeClock
from dibs.testing.expecting import Expected, listed
from dibs.testing.flaky import FlakyStore, Wrapped
from dibs.testing.ledger import Ledger
from dibs.testing.watching import Watch, for_tests, users_part
from dibs.worker import Worker

T = TypeVar("T")

Which = Handle[Any] | Job | UUID
"""A job, however you have it at hand."""

LEASE = timedelta(seconds=30)
"""How long a claim lasts, for tasks that do not say."""
PATIENCE = 60.0
"""Seconds of real time after which a drain gives up."""
MOVES = 10_000
"""How often ``drain(until_done=True)`` moves the clock before it gives up."""


@contextmanager
def use_memory(app: App, *, now: datetime | None = None) -> Iterator["Harness"]:
    """Until the block ends, the app and its tasks work on an empty store in memory, by a clock that stands still.

    Nothing of the app's own store is touched, wherever the code under test runs: in any thread, on any event loop. The
    clock starts at ``now``, or else at the next full second of real time.
    """
    start = now or system_clock().replace(microsecond=0) + timedelta(seconds=1)
    harness = Harness(app, FakeClock(start))
    with app.using(harness.store, clock=harness.clock):
        yield harness


class Harness:
    """What a test holds in its hands. Made by ``use_memory``, or by the fixture ``dibs_harness``.

    What looks or moves the clock is called plainly; what runs handlers is awaited, or given to ``sync``.
    """

    def __init__(self, app: App, clock: FakeClock) -> None:
        self.app = app
        self.clock = clock
        self._ledger = Ledger(clock=clock)
        self._flaky = FlakyStore(self._ledger)
        self._workers = 0

    @property
    def store(self) -> Store:
        """The store that the app is on: to pause a queue, to cancel, to look at anything else."""
        return self._flaky

    # --- time -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the clock shows."""
        return self.clock.now

    def advance(self, by: Delay) -> None:
        """Move the clock on, by a timedelta or seconds. Nothing runs until the next ``drain``."""
        self.clock.advance(span(by))

    # --- looking --------------------------------------------------------------------------------------------

    def enqueued(self, task: Task[..., Any] | str | None = None, *, queue: str | None = None) -> list[Job]:
        """What was enqueued since the beginning, or since ``forget``, in order; each job as it was then."""
        name = task.name if isinstance(task, Task) else task
        return [job for job in list(self._ledger.sent) if name in (None, job.task) and queue in (None, job.queue)]

    def forget(self) -> None:
        """Start a new list of what was enqueued. The jobs stay."""
        self._ledger.sent.clear()

    def job(self, which: Which) -> Job:
        """The job as it is now."""
        found = self._look(_id(which))
        if found is None:
            raise JobUnknown(f"there is no job {_id(which)} in this test's store")
        return found

    def jobs(self, task: Task[..., Any] | str | None = None, *, state: State | str | None = None) -> list[Job]:
        """The jobs that there are, as they are now, oldest first."""
        name = task.name if isinstance(task, Task) else task
        which = Filter(
            tasks=None if name is None else (name,),
            states=None if state is None else (State(state),),
        )
        return self._ledger.jobs(which)

    def failed(self, task: Task[..., Any] | str | None = None) -> list[Job]:
        """The jobs that failed for good; ``job.errors`` tells how their attempts ended."""
        return self.jobs(task, state=State.FAILED)

    def assert_enqueued(
        self,
        task: Task[..., Any] | str | None = None,
        /,
        *,
        times: int | None = None,
        args: Mapping[str, Any] | None = None,
        **expected: Any,
    ) -> list[Job]:
        """Fail unless such a job was enqueued: ``assert_enqueued(send_mail, to="ada@example.org", queue="mail")``.

        Named are arguments of the task, and the options queue, key, priority, delay, run_at, max_attempts, meta. Those
        not named may be anything. Arguments are compared as the handler would get them, defaults included; ``args`` is
        for those that are called like an option. ``times``: exactly so often; otherwise once or more. Answers the jobs.
        """
        __tracebackhide__ = True
        wanted = Expected.of(self.app.tasks, task, args or {}, expected)
        sent = self.enqueued()
        found = [job for job in sent if wanted.matches(job)]
        if times is None and not found:
            raise AssertionError(f"{wanted} was expected, but {listed(wanted, sent, compare=True)}")
        if times is not None and len(found) != times:
            says = f"{wanted} was expected {_times(times)} and enqueued {_times(len(found))}"
            raise AssertionError(f"{says}; {listed(wanted, sent, compare=True)}")
        return found

    def assert_not_enqueued(
        self,
        task: Task[..., Any] | str | None = None,
        /,
        *,
        args: Mapping[str, Any] | None = None,
        **expected: Any,
    ) -> None:
        """Fail if such a job was enqueued; without anything said, if any job was."""
        __tracebackhide__ = True
        wanted = Expected.of(self.app.tasks, task, args or {}, expected)
        found = [job for job in self.enqueued() if wanted.matches(job)]
        if found:
            raise AssertionError(f"{wanted.as_none()} was expected, but {listed(wanted, found, compare=False)}")

    # --- running --------------------------------------------------------------------------------------------

    async def drain(
        self, *, raising: bool = True, until_done: bool = False, concurrency: int = 1, timeout: Delay | None = PATIENCE
    ) -> Drained:
        """Have a worker run what is due, and what that enqueues, until nothing due is left.

        ``raising``: the first exception of a handler, recorded with its job as always, ends the drain and is raised
        here; False leaves it with the job, as a worker would. ``until_done``: when nothing is due, move the clock to
        when something is, until no unfinished job is left. Jobs run one after the other, in their order, unless
        ``concurrency`` says otherwise. ``timeout`` is in real time. Limits count if they are in the store
        (``app.limits.set``): what they hold back is left, and counted as ``held_back``.
        """
        __tracebackhide__ = True
        deadline, total, moves = Deadline(timeout), Drained(), 0
        while moments := self._ledger.next_moments(frozenset(self.app.tasks.by_name)):
            queues = sorted({queue for moment, queue in moments if moment <= self.now})
            if queues:
                before, due = total, self._due()
                total = await self._drain_once(queues, total, deadline, raising, concurrency)
                if total != before or self._due() != due:
                    continue
                moments = [(moment, queue) for moment, queue in moments if moment > self.now] + self._starts(due)
                total = msgspec.structs.replace(total, held_back=len(due))
            if not until_done:
                break
            if moves == MOVES or not moments:
                after = f"after {moves:,} moves of the clock" if moments else "that limits hold back for ever"
                raise AssertionError(f"jobs are left {after}: {self._left()}")
            total = msgspec.structs.replace(total, held_back=0)
            self.clock.now, moves = min(moments)[0], moves + 1
        return total

    def _due(self) -> list[Job]:
        """The jobs that a worker could run now, but for limits."""
        paused = {each.queue for each in self._ledger.at_once(self._ledger.counts()) if each.paused}
        tasks = self.app.tasks.by_name
        queued = self.jobs(state=State.QUEUED)
        return [job for job in queued if job.task in tasks and job.run_at <= self.now and job.queue not in paused]

    def _starts(self, held: Sequence[Job]) -> list[tuple[datetime, str]]:
        """When rates let jobs start that they hold back."""
        found = []
        for job in held:
            uses = self._ledger.at_once(self._ledger.limits(job.id))
            starts = [use.next_start for use in uses if use.next_start is not None]
            if starts and not any(map(is_full, uses)):
                found.append((max(starts), job.queue))
        return found

    async def _drain_once(
        self, queues: Sequence[str], total: Drained, deadline: Deadline, raising: bool, concurrency: int
    ) -> Drained:
        __tracebackhide__ = True
        tasks = for_tests(self.app.tasks)
        named = list(dict.fromkeys([*(each for each in self.app.queues() if each in queues), *queues]))
        watch = Watch(tasks) if raising else None
        worker = self._worker(tasks, self._flaky, named, concurrency=concurrency)
        if watch is not None:
            watch.stop = worker.stop
        with deadline.stopping(worker):
            total = total.plus(await worker.run())
        if watch is not None:
            watch.raise_problem(self._look)
        return total

    def _worker(self, tasks: Tasks, store: Store, queues: Sequence[str], **settings: Any) -> Worker:
        self._workers += 1
        usual = {
            "name": f"worker-{self._workers}",
            "lease": LEASE,
            "prefetch": 0,
            "retention": None,
            "until_empty": True,
        }
        return Worker(tasks, lambda: store, queues=queues, **{**usual, **settings})

    def _look(self, id: UUID) -> Job | None:
        return self._ledger.at_once(self._ledger.get(id))

    def _left(self) -> str:
        left = self.jobs(state=State.QUEUED)
        return ", ".join(sorted({job.task for job in left}))

    @contextmanager
    def working(self, *, raising: bool = True, concurrency: int = 100) -> Iterator[None]:
        """While the block runs, have a worker run what is due: for code under test that waits for a job's result.

        Handlers run on the loop of ``app.sync`` and in threads. When the block ends, what runs is finished, and with
        ``raising`` the first exception of a handler is raised.
        """
        __tracebackhide__ = True
        tasks, there = for_tests(self.app.tasks), [job.queue for job in self.jobs(state=State.QUEUED)]
        watch = Watch(tasks) if raising else None
        queues = list(dict.fromkeys([*self.app.queues(), *there]))
        worker = self._worker(tasks, self._flaky, queues, concurrency=concurrency, until_empty=False)
        thread = threading.Thread(target=self.app.sync, args=[worker.run()], name="dibs-test-worker", daemon=True)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join()
        if watch is not None:
            watch.raise_problem(self._look)

    def sync(self, awaitable: Awaitable[T]) -> T:
        """Wait for anything that would be awaited, in a test without an event loop: ``harness.sync(harness.drain())``.

        Plain handlers run in the test's own thread meanwhile, so they see what it has open: Django's test transaction,
        an SQLite connection, a debugger. Handlers that are ``async def`` run on the loop of ``app.sync``.
        """
        __tracebackhide__ = True
        if in_a_loop():
            return self.app.sync(awaitable)  # which says what to do instead
        try:
            return Desk().wait_for(awaitable, self.app.sync)
        except BaseException as error:
            raise error.with_traceback(users_part(error.__traceback__) or error.__traceback__) from error.__cause__

    # --- trouble --------------------------------------------------------------------------------------------

    async def crash(self, which: Which, *, after: Literal["claim", "run"] = "run") -> Job:
        """Have a worker claim this job and die: before its handler ran, or after, before it could say so.

        The job is left running, with a lease that nobody renews: ``advance`` past it (``job.locked_until``), and the
        next ``drain`` runs the job again, as another attempt with a higher epoch. Answers the job.
        """
        if after not in ("claim", "run"):
            raise ValueError(f'after must be "claim" or "run", not {after!r}')
        self._workers += 1
        name, job = f"crashed-{self._workers}", self.job(which)
        task = self.app.tasks.by_name.get(job.task)
        if task is None:
            raise Refused(f"job {job.id} cannot be claimed: this app has no task {job.task}")
        claim = self._ledger.claim_one(job.id, name, task.defaults.lease or LEASE)
        if after == "run":
            await self._run_and_die(claim)
        return self.job(job)

    async def _run_and_die(self, claim: Claim) -> None:
        tasks = for_tests(self.app.tasks)
        tasks.by_name = {name: task for name, task in tasks.by_name.items() if name == claim.task}
        tasks.hooks = {event: hooks for event, hooks in tasks.hooks.items() if event in ("startup", "started")}
        await self._worker(tasks, _Dying(self._ledger, claim), [claim.queue], name=claim.worker, concurrency=1).run()

    def fail_next(self, verb: str, *, times: int = 1, after_effect: bool = False) -> None:
        """Have the next calls of a verb of the store raise ``StoreUnavailable``: ``fail_next("enqueue")``.

        Before anything happened; or with ``after_effect`` after all did, when only the answer got lost.
        """
        self._flaky.fail_next(verb, times=times, after_effect=after_effect)


class _Dying(Wrapped):
    """The store as a worker sees it that has one claim, and whose words never arrive once its handler has run."""

    def __init__(self, store: Store, claim: Claim) -> None:
        super().__init__(store)
        self._claims = [claim]

    async def claim(self, *_: Any, **__: Any) -> list[Claim]:
        claims, self._claims = self._claims, []
        return claims

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        return [Verdict.LOST] * len(settlements)


def _id(which: Which) -> UUID:
    return which if isinstance(which, UUID) else which.id


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
