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
    rule,
    run_state_machine_as_test,
)

from dibs.errors import Refused
from dibs.job import FINISHED, Claim, Filter, Job, NewFlow, NewJob, NewStep, Order, Retention, Settlement, State
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.testing.clock import START, FakeClock
from dibs.testing.draws import (
    ACTIONS,
    KINDS,
    MICROSECOND,
    MOVES,
    SECOND,
    VERBS,
    choices,
    leases,
    limits,
    number,
    numbers,
    offsets,
    outcomes,
    policies,
    queues,
    reports,
    requests,
    shapes,
    some_tasks,
    workers,
)
from dibs.testing.labs.base import Lab

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]

STEPS = 50
HANDLES = 3
REMEMBERED = 40


def agree(factory: Callable[[], Lab], operations: int | None = None, *, shrink: bool = True) -> None:
    """Fail, with the shortest story found, if the lab's store and the model ever differ.

    About 5,000 operations (1,000 on a lab that is not tested at length), the same ones each time: a failure comes back
    when the test is run again. With ``DIBS_FAULTS=full`` 50,000 new ones each time; a failure then prints the line
    ``@reproduce_failure(…)`` to set above :class:`Agreement`.
    """
    full = os.environ.get("DIBS_FAULTS") == "full"
    usual = 5_000 if factory().at_length else 1_000
    machine = type("Agreement", (Agreement,), {"factory": staticmethod(factory)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=(operations or (50_000 if full else usual)) // STEPS,
            stateful_step_count=STEPS,
            derandomize=not full,
            print_blob=True,
            report_multiple_bugs=False,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
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
        self.calls = self.steps = 0
        self.made: list[NewJob] = []
        self.started: list[NewFlow] = []
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
        self.calls += 1
        handle = self.handles[self.calls % HANDLES]
        expected = self.run(_answer(getattr(self.model, verb)(*args, **options)))
        answer = self.run(_answer(getattr(handle, verb)(*args, **options)))
        assert answer == expected, f"{verb}: the model answers {expected}, the store {answer}"
        return expected

    def tell(self, verb: str, *args: Any, **options: Any) -> Any:
        """The same, as a step of the story that a failure prints."""
        said = [*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())]
        note(f"    {verb}({', '.join(said)})")
        return self.both(verb, *args, **options)

    @initialize(wanted=st.lists(requests, min_size=3, max_size=6))
    def begin(self, wanted: list[dict[str, Any]]) -> None:
        self.tell("enqueue", [self._new(**one) for one in wanted])

    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def act(self, action: str, data: st.DataObject) -> None:
        getattr(self, action)(data.draw)

    @invariant()
    def compare(self) -> None:
        """After every step both show the same jobs and flows; after every fourth the same tables, too."""
        self.steps += 1
        self.jobs = self.both("find", Filter(), limit=1_000).jobs
        if self.started:
            self.both("flows", limit=1_000)
        if self.steps % 4 == 0:
            self.compare_tables()

    def compare_tables(self) -> None:
        self.both("counts")
        self.both("workers")
        self.both("kept", KINDS)

    # --- time ---------------------------------------------------------------------------------

    def move(self, now: datetime) -> None:
        note(f"    the clock shows {now}")
        self.clock.now = now
        self.run(self.lab.set_clock(now))

    def advance(self, draw: Draw) -> None:
        self.move(self.clock.now + draw(st.sampled_from(MOVES)))

    def advance_to_an_instant_that_matters(self, draw: Draw) -> None:
        """The next end of a lease or the next time at which a job is due; or just before it."""
        moments = [job.locked_until or job.run_at for job in self.jobs if job.finished_at is None]
        coming = [moment for moment in moments if moment > self.clock.now + MICROSECOND]
        if coming:
            self.move(min(coming) - draw(st.sampled_from((0, 0, 1))) * MICROSECOND)

    # --- the life of a job --------------------------------------------------------------------

    def enqueue(self, draw: Draw) -> None:
        """New jobs, and some that were sent before."""
        again = draw(st.lists(number, max_size=2))
        jobs = [_nth(self.made, n) for n in again if self.made]
        jobs += [self._new(**one) for one in draw(st.lists(requests, max_size=3))]
        self.tell("enqueue", jobs)

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

    def claim(self, draw: Draw) -> None:
        worker, limit, lease, tasks = draw(st.tuples(workers, limits, leases, some_tasks))
        busy = {job.queue for job in self.jobs if job.finished_at is None}
        queue = draw(st.sampled_from([*sorted(busy), "a"]))
        self.claims += self.tell("claim", queue, worker, limit, lease, tasks)

    @property
    def held(self) -> list[Claim]:
        """The claims of running jobs, or, if none is running, all that there were."""
        owners = {(job.id, job.epoch) for job in self.jobs if job.state is State.RUNNING}
        return [one for one in self.claims if (one.id, one.epoch) in owners] or self.claims

    def heartbeat(self, draw: Draw) -> None:
        if self.claims:
            stale, other, known = draw(st.tuples(st.booleans(), workers, st.booleans()))
            claims = [_nth(self.claims if stale else self.held, n) for n in draw(numbers)]
            worker, lease = other if stale else claims[0].worker, draw(leases)
            info = None if known else {"lease": lease.total_seconds()}
            said = {one.id: report for one in claims if (report := draw(reports)) is not None}
            self.tell("heartbeat", worker, claims, lease, info, said)

    def settle(self, draw: Draw) -> None:
        """Some of what is held; sometimes the call is sent twice."""
        if self.claims:
            items: dict[tuple[UUID, int, str], Settlement] = {}
            for n, outcome in draw(st.lists(st.tuples(number, outcomes), min_size=1, max_size=3)):
                claim = _nth(self.held, n)
                items[claim.id, claim.epoch, claim.worker] = claim.settled(outcome)
            for _ in range(draw(st.sampled_from((1, 1, 2)))):
                self.tell("settle", list(items.values()))

    def settle_late_or_forged(self, draw: Draw) -> None:
        if self.claims:
            claim, outcome = _nth(self.claims, draw(number)), draw(outcomes)
            epoch = claim.epoch + draw(st.sampled_from((0, 0, 0, -1, 1)))
            worker = draw(st.sampled_from((claim.worker, claim.worker, "ann")))
            self.tell("settle", [Settlement(claim.id, epoch, worker, outcome)])

    def ask_for_a_cancel(self, draw: Draw) -> None:
        if self.claims:
            claim = _nth(self.held, draw(number))
            self.tell("cancel", Filter(ids=(claim.id,)))
            self.tell("heartbeat", claim.worker, [claim], draw(leases))

    def sweep(self, draw: Draw) -> None:
        """Often when several leases have expired, and for fewer than that."""
        if draw(st.booleans()):
            self.move(max([self.clock.now, *(job.locked_until for job in self.jobs if job.locked_until)]))
        self.tell("sweep", draw(st.sampled_from((1, 1, 2, 10))))

    # --- flows --------------------------------------------------------------------------------

    def start(self, draw: Draw) -> None:
        """A new flow, most often in one queue; or one that was sent before."""
        if self.started and draw(st.sampled_from((False, False, False, True))):
            self.tell("start", _nth(self.started, draw(number)))
            return
        same = draw(st.sampled_from(({"queue": "a"}, {"queue": "b"}, {})))
        steps = tuple(
            self._step(draw, f"s{n}", *(f"s{i}" for i in needs), **same) for n, needs in enumerate(draw(shapes))
        )
        n = len(self.started)
        flow = NewFlow(name=f"flow {n}", steps=steps, on_failure=draw(policies), id=_id(4, n), meta={"n": n})
        self.started.append(flow)
        self.tell("start", flow)

    def _step(self, draw: Draw, name: str, *needs: str, **fields: Any) -> NewStep:
        return NewStep(name=name, job=self._new(**draw(requests) | {"key": None} | fields), needs=needs)

    def _adding(self, draw: Draw, claim: Claim) -> Succeeded:
        """A success with steps: good ones, known names, unknown needs, and perhaps no flow to add them to."""
        name = draw(st.sampled_from((f"x{len(self.made)}", f"x{len(self.made)}", "x", "s1")))
        needs = draw(st.sampled_from(((), (claim.step or "s0",), (claim.step or "s0",), ("s0",))))
        steps = [self._step(draw, name, *needs)]
        if draw(st.booleans()):
            steps.append(self._step(draw, "y", name))
        return Succeeded({"n": len(self.made)}, tuple(steps))

    def settle_with_steps(self, draw: Draw) -> None:
        """Steps that come later; sometimes the call is sent twice."""
        if self.claims:
            claim = _nth([one for one in self.held if one.flow] or self.held, draw(number))
            outcome = self._adding(draw, claim)
            for _ in range(draw(st.sampled_from((1, 1, 2)))):
                self.tell("settle", [claim.settled(outcome)])

    def work_a_while(self, draw: Draw) -> None:
        """Claim what is due in every queue, and end most of it, most of that well: so flows come to their ends."""
        for queue in sorted({job.queue for job in self.jobs if job.finished_at is None}):
            claims = self.tell("claim", queue, "ann", 5, 30 * SECOND, None)
            self.claims += claims
            items = []
            for claim in claims:
                match draw(st.sampled_from(("well", "well", "well", "well", "somehow", "not yet", "more"))):
                    case "well":
                        items.append(claim.settled(Succeeded(str(claim.step))))
                    case "somehow":
                        items.append(claim.settled(draw(outcomes)))
                    case "more":
                        items.append(claim.settled(self._adding(draw, claim)))
            self.tell("settle", items)

    def change_a_flow(self, draw: Draw) -> None:
        """What operators do: cancel it, try again from the failed step, run it whole again."""
        if self.started:
            flows = (_nth(self.started, draw(st.sampled_from((0, 0, 1)))).id,)
            match draw(st.sampled_from(("cancel", "again", "again", "whole", "delete"))):
                case "again":
                    self.tell("requeue", Filter(flows=flows, states=(State.FAILED, State.CANCELLED)))
                case "whole":
                    self.tell("requeue", Filter(flows=flows), limit=draw(limits))
                case "cancel":
                    self.tell("cancel", Filter(flows=flows), force=draw(st.booleans()))
                case "delete":
                    self.tell("delete", Filter(flows=flows), limit=draw(limits))

    # --- an operator --------------------------------------------------------------------------

    def look(self, draw: Draw) -> None:
        """Page by page."""
        which, limit, after = self._filter(draw), draw(limits), None
        for _ in range(3):
            if (after := self.tell("find", which, after, limit).after) is None:
                break
        if self.made:
            self.tell("get", _nth(self.made, draw(number)).id)

    def change(self, draw: Draw) -> None:
        verb, which, extra = draw(st.sampled_from(VERBS)), self._filter(draw), []
        dry_run = draw(st.sampled_from((False, False, False, True)))
        options: dict[str, Any] = {"dry_run": dry_run, "limit": draw(limits)}
        if verb in {"cancel", "delete"}:
            options["force"] = draw(st.booleans())
        elif verb == "reprioritise":
            extra = [draw(st.integers(-1, 1))]
        elif verb == "reschedule":
            extra = [self.clock.now + (draw(offsets) or timedelta(0))]
        answer = self.tell(verb, which, *extra, **options)
        if answer.after is not None:
            self.tell(verb, which, *extra, **options, after=answer.after)

    def requeue_what_is_finished(self, draw: Draw) -> None:
        states = draw(st.sampled_from(((State.FAILED,), tuple(sorted(FINISHED)))))
        self.tell("requeue", Filter(states=states), limit=draw(limits))

    def _filter(self, draw: Draw) -> Filter:
        fields: dict[str, Any] = {"everything": True}
        match draw(choices):
            case "ids" if self.made:
                fields = {"ids": tuple(_nth(self.made, n).id for n in draw(numbers))}
            case "held" if self.claims:
                fields = {"ids": tuple(_nth(self.held, n).id for n in draw(numbers))}
            case "queues":
                fields = {"queues": (draw(queues),)}
            case "tasks":
                fields = {"tasks": ("t1", "t3"), "queues": ("a", "b")}
            case "states":
                fields = {"states": tuple(draw(st.lists(st.sampled_from(State), max_size=2)))}
            case "workers":
                fields = {"workers": (draw(workers),)}
            case "keys":
                fields = {"keys": ("k1",)}
            case "flows" if self.started:
                fields = {"flows": (_nth(self.started, draw(number)).id,)}
            case "times":
                what = draw(st.sampled_from(("created", "finished")))
                fields = {f"{what}_since": START + SECOND, f"{what}_before": self.clock.now}
        return Filter(**fields)

    def prune(self, draw: Draw) -> None:
        spans = st.sampled_from((None, timedelta(0), timedelta(0), SECOND))
        retention = Retention(succeeded=draw(spans), failed=draw(spans), cancelled=draw(spans))
        self.tell("prune", retention, draw(limits))

    def set_up_a_queue(self, draw: Draw) -> None:
        queue, what = draw(queues), draw(st.sampled_from(("pause", "resume", "fifo", "lifo")))
        if what in {"pause", "resume"}:
            self.tell(what, queue)
        else:
            self.tell("configure", queue, order=Order(what))

    def keep(self, draw: Draw) -> None:
        """What is no job: some is kept, some forgotten, now and then by somebody who comes too late."""
        what = st.sampled_from((None, {"n": 1}, {"n": 2.5, "ü": [None]}))
        values = draw(st.dictionaries(st.sampled_from(("x", "ü b")), what, max_size=2))
        self.tell("keep", draw(st.sampled_from(KINDS)), values, rank=draw(st.integers(0, 3)))
        self.both("kept", KINDS)


async def _answer(call: Coroutine[Any, Any, Any]) -> Any:
    """What the store says, or the words in which it refuses."""
    try:
        return await call
    except Refused as problem:
        return str(problem)


def _nth(remembered: Sequence[T], n: int) -> T:
    """One of the latest, counted from the newest; numbers too large go round."""
    recent = remembered[-REMEMBERED:]
    return recent[-1 - n % len(recent)]


def _id(shelf: int, count: int) -> UUID:
    """A UUIDv7 like any other, the same in every run. A higher shelf sorts behind a lower one."""
    millis = int(START.timestamp() * 1_000)
    return UUID(int=millis << 80 | 7 << 76 | 0b10 << 62 | shelf << 40 | count)
