"""The stateful test: random operations on a store and on the model must give the same answers.

``agree`` drives a lab's store and a memory store side by side. Both get the same jobs (with the same
ids), the same calls and the same clock; every answer is compared, and after every step all that can
be seen of the two.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dibs.job import Claim, Filter, Job, NewJob, Order, Retention, Settlement, State
from dibs.outcome import Cancelled, Failed, Outcome, Released, Retry, Snoozed, Succeeded
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import START, FakeClock
from dibs.testing.labs.base import Lab

T = TypeVar("T")

STEPS = 50
HANDLES = 3
REMEMBERED = 40

MICROSECOND, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
QUEUES = ("a", "b", "ü b")
TASKS = ("t1", "t2", "t3")
WORKERS = ("ann", "bob")
KEYS = (None, None, "k1", "k2")
LEASES = (SECOND, 2 * SECOND, 30 * SECOND)
OFFSETS = (None, None, -5 * SECOND, timedelta(0), MICROSECOND, SECOND, 5 * SECOND)
MOVES = (MICROSECOND, SECOND / 2, SECOND, 2 * SECOND, 30 * SECOND, timedelta(hours=1), timedelta(1))
OUTCOMES: tuple[Outcome, ...] = (
    Succeeded({"n": 1}),
    Succeeded(float("inf")),
    Retry("boom"),
    Retry("boom", SECOND, "Traceback"),
    Failed("boom"),
    Cancelled(),
    Released(),
    Snoozed(2 * SECOND),
)

VERBS = ("cancel", "cancel", "requeue", "requeue", "reschedule", "reprioritise", "delete")

limits = st.sampled_from((1, 2, 3, 10))
queues = st.sampled_from(QUEUES)
workers = st.sampled_from(WORKERS)
leases = st.sampled_from(LEASES)
outcomes = st.sampled_from(OUTCOMES)
offsets = st.sampled_from(OFFSETS)
number = st.sampled_from((0, 0, 1, 1, 2, 3, 5, 8, 13, 21, 34))  # which of the latest jobs or claims
numbers = st.lists(number, min_size=1, max_size=4)
requests = st.fixed_dictionaries(
    {
        "queue": queues,
        "task": st.sampled_from(TASKS),
        "key": st.sampled_from(KEYS),
        "priority": st.integers(-1, 1),
        "max_attempts": st.integers(1, 3),
        "offset": offsets,
        "shelf": st.sampled_from((2, 2, 2, 1, 3)),
    }
)
some_tasks = st.sampled_from((("t1",), ("t2", "t1"), ("t3",), ()))
choices = st.sampled_from(
    (
        "held",
        "held",
        "held",
        "ids",
        "ids",
        "queues",
        "tasks",
        "states",
        "workers",
        "keys",
        "created",
        "finished",
        "all",
    )
)


def agree(factory: Callable[[], Lab], operations: int | None = None) -> None:
    """Fail, with the shortest story found, if the lab's store and the model ever differ.

    About 5,000 operations, the same ones each time: a failure comes back when the test is run again.
    With ``DIBS_FAULTS=full`` 50,000 new ones each time; a failure then prints the line
    ``@reproduce_failure(…)`` to set above :class:`Agreement`.
    """
    full = os.environ.get("DIBS_FAULTS") == "full"
    machine = type("Agreement", (Agreement,), {"factory": staticmethod(factory)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=(operations or (50_000 if full else 5_000)) // STEPS,
            stateful_step_count=STEPS,
            derandomize=not full,
            print_blob=True,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


class Agreement(RuleBasedStateMachine):
    """Two stores, one story."""

    factory: ClassVar[Callable[[], Lab]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock(START)
        self.model: Store = MemoryStore(clock=self.clock)
        self.lab = type(self).factory()
        self.handles: list[Store] = []
        self.steps = 0
        self.made: list[NewJob] = []
        self.claims: list[Claim] = []
        self.jobs: tuple[Job, ...] = ()
        self.run(self._start())

    async def _start(self) -> None:
        await self.lab.start()
        await self.lab.set_clock(self.clock.now)
        self.handles = [await self.lab.open() for _ in range(HANDLES)]

    def teardown(self) -> None:
        try:
            if self.handles:
                self.compare_tables()
        finally:
            self.run(self.lab.stop())
            self.runner.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def both(self, verb: str, *args: Any, **options: Any) -> Any:
        """Ask the model and one of the handles the same thing."""
        self.steps += 1
        handle = self.handles[self.steps % HANDLES]
        expected = self.run(getattr(self.model, verb)(*args, **options))
        answer = self.run(getattr(handle, verb)(*args, **options))
        assert answer == expected, f"{verb}: the model answers {expected}, the store {answer}"
        return expected

    # --- what must be equal after every step --------------------------------------------------

    @invariant()
    def compare_jobs(self) -> None:
        page = self.both("find", Filter(), limit=1_000)
        self.jobs = page.jobs
        if self.steps % 4 == 0:
            self.compare_tables()

    def compare_tables(self) -> None:
        self.both("counts")
        self.both("workers")

    # --- time ---------------------------------------------------------------------------------

    @rule(span=st.sampled_from(MOVES))
    def advance(self, span: timedelta) -> None:
        self.move(self.clock.now + span)

    @rule(early=st.booleans())
    def advance_to_the_next_instant_that_matters(self, early: bool) -> None:
        moments = [job.locked_until or job.run_at for job in self.jobs if job.finished_at is None]
        coming = [moment for moment in moments if moment > self.clock.now + MICROSECOND]
        if coming:
            self.move(min(coming) - MICROSECOND * early)

    def move(self, now: datetime) -> None:
        self.clock.now = now
        self.run(self.lab.set_clock(now))

    # --- the life of a job --------------------------------------------------------------------

    @initialize(wanted=st.lists(requests, min_size=3, max_size=6))
    def begin(self, wanted: list[dict[str, Any]]) -> None:
        self.enqueue(wanted, [])

    @rule(wanted=st.lists(requests, max_size=3), again=st.lists(number, max_size=2))
    def enqueue(self, wanted: list[dict[str, Any]], again: list[int]) -> None:
        """New jobs, and some that were sent before."""
        jobs = [_nth(self.made, n) for n in again if self.made]
        jobs += [self._new(**one) for one in wanted]
        self.both("enqueue", jobs)

    def _new(self, offset: timedelta | None, shelf: int, **fields: Any) -> NewJob:
        job = NewJob(
            id=_id(shelf, len(self.made)),
            args={"n": len(self.made)},
            meta={"shelf": shelf},
            run_at=None if offset is None else self.clock.now + offset,
            **fields,
        )
        self.made.append(job)
        return job

    @rule(worker=workers, limit=limits, lease=leases)
    def claim(self, worker: str, limit: int, lease: timedelta) -> None:
        for queue in QUEUES:
            self._claim(queue, worker, limit, lease, None)

    @rule(queue=queues, worker=workers, limit=limits, lease=leases, tasks=some_tasks)
    def claim_known_tasks(self, queue: str, worker: str, limit: int, lease: timedelta, tasks: tuple[str, ...]) -> None:
        self._claim(queue, worker, limit, lease, tasks)

    def _claim(self, *what: Any) -> None:
        self.claims += self.both("claim", *what)

    @property
    def held(self) -> list[Claim]:
        """The claims of running jobs, or, if none is running, all that there were."""
        owners = {(job.id, job.epoch) for job in self.jobs if job.state is State.RUNNING}
        return [one for one in self.claims if (one.id, one.epoch) in owners] or self.claims

    @precondition(lambda self: self.claims)
    @rule(stale=st.booleans(), other=workers, which=numbers, lease=leases, known=st.booleans())
    def heartbeat(self, stale: bool, other: str, which: list[int], lease: timedelta, known: bool) -> None:
        claims = [_nth(self.claims if stale else self.held, n) for n in which]
        worker = other if stale else claims[0].worker
        info = None if known else {"lease": lease.total_seconds()}
        self.both("heartbeat", worker, claims, lease, info)

    @precondition(lambda self: self.claims)
    @rule(n=number, lease=leases)
    def ask_for_a_cancel(self, n: int, lease: timedelta) -> None:
        claim = _nth(self.held, n)
        self.both("cancel", Filter(ids=(claim.id,)))
        self.both("heartbeat", claim.worker, [claim], lease)

    @precondition(lambda self: self.claims)
    @rule(which=st.lists(st.tuples(number, outcomes), min_size=1, max_size=4), twice=st.booleans())
    def settle(self, which: list[tuple[int, Outcome]], twice: bool) -> None:
        items: dict[tuple[UUID, int, str], Settlement] = {}
        for n, outcome in which:
            claim = _nth(self.held, n)
            items[claim.id, claim.epoch, claim.worker] = claim.settled(outcome)
        for _ in range(1 + twice):
            self.both("settle", list(items.values()))

    @precondition(lambda self: self.claims)
    @rule(n=number, outcome=outcomes, forged=st.sampled_from((None, None, "ann", -1, 1)))
    def settle_late_or_forged(self, n: int, outcome: Outcome, forged: str | int | None) -> None:
        claim = _nth(self.claims, n)
        epoch = claim.epoch + forged if isinstance(forged, int) else claim.epoch
        worker = forged if isinstance(forged, str) else claim.worker
        items = [Settlement(claim.id, epoch, worker, outcome)]
        self.both("settle", items)

    # --- looking ------------------------------------------------------------------------------

    @rule(data=st.data(), choice=choices, limit=limits)
    def find_page_by_page(self, data: st.DataObject, choice: str, limit: int) -> None:
        which, after = self._filter(data, choice), None
        for _ in range(3):
            after = self.both("find", which, after, limit).after
            if after is None:
                break

    # --- an operator --------------------------------------------------------------------------

    @rule(
        data=st.data(),
        choice=choices,
        verb=st.sampled_from(VERBS),
        limit=limits,
        dry_run=st.sampled_from((False, False, False, True)),
    )
    def change(self, data: st.DataObject, choice: str, verb: str, limit: int, dry_run: bool) -> None:
        which = self._filter(data, choice)
        extra: list[Any] = []
        options: dict[str, Any] = {"dry_run": dry_run, "limit": limit}
        if verb in {"cancel", "delete"}:
            options["force"] = data.draw(st.booleans(), "force")
        elif verb == "reprioritise":
            extra = [data.draw(st.integers(-1, 1), "priority")]
        elif verb == "reschedule":
            extra = [self.clock.now + (data.draw(offsets, "offset") or timedelta(0))]
        note(f"{verb}({which}, {extra}, {options})")
        answer = self.both(verb, which, *extra, **options)
        if answer.after is not None:
            options["after"] = answer.after
            self.both(verb, which, *extra, **options)

    def _filter(self, data: st.DataObject, choice: str) -> Filter:
        fields: dict[str, Any] = {"everything": True}
        match choice:
            case "ids" if self.made:
                fields = {"ids": tuple(_nth(self.made, n).id for n in data.draw(numbers, "jobs"))}
            case "held" if self.claims:
                fields = {"ids": tuple(_nth(self.held, n).id for n in data.draw(numbers, "claims"))}
            case "queues":
                fields = {"queues": (data.draw(queues, "queue"),)}
            case "tasks":
                fields = {"tasks": ("t1", "t3"), "queues": ("a", "b")}
            case "states":
                states = st.lists(st.sampled_from(State), max_size=2)
                fields = {"states": tuple(data.draw(states, "states"))}
            case "workers":
                fields = {"workers": (data.draw(workers, "worker"),)}
            case "keys":
                fields = {"keys": ("k1",)}
            case "created":
                fields = {"created_since": START + SECOND, "created_before": self.clock.now}
            case "finished":
                fields = {"finished_since": START, "finished_before": self.clock.now}
        return Filter(**fields)

    @rule(
        action=st.sampled_from(("sweep", "sweep", "prune", "prune", "get", "pause", "resume", "order")),
        limit=limits,
        span=st.sampled_from((timedelta(0), timedelta(0), SECOND, timedelta(hours=1))),
        queue=queues,
    )
    def keep_house(self, action: str, limit: int, span: timedelta, queue: str) -> None:
        match action:
            case "sweep":
                self.both("sweep", limit)
            case "prune":
                retention = Retention(succeeded=span, failed=None if limit == 1 else span)
                self.both("prune", retention, limit)
            case "get" if self.made:
                self.both("get", _nth(self.made, limit).id)
            case "pause":
                self.both("pause", queue)
            case "resume":
                for each in QUEUES:
                    self.both("resume", each)
            case "order":
                order = Order.LIFO if limit > 1 else Order.FIFO
                self.both("configure", queue, order=order)


def _nth(remembered: Sequence[T], n: int) -> T:
    """One of the latest, counted from the newest; numbers too large go round."""
    recent = remembered[-REMEMBERED:]
    return recent[-1 - n % len(recent)]


def _id(shelf: int, count: int) -> UUID:
    """A UUIDv7 like any other, the same in every run. A higher shelf sorts behind a lower one."""
    millis = int(START.timestamp() * 1_000)
    return UUID(int=millis << 80 | 7 << 76 | 0b10 << 62 | shelf << 40 | count)
