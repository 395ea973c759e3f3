"""The stateful test: random operations on a store and on the model must give the same answers.

``agree`` drives a lab's store and a memory store side by side. Both get the same jobs (with the same
ids), the same calls and the same clock; every answer is compared, and after every step all that can
be seen of the two.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from msgspec.structs import replace

from dibs.job import FINISHED, Claim, Filter, NewFlow, NewJob, NewStep, Order, Retention, Settlement, State
from dibs.outcome import Failed, Succeeded
from dibs.testing.clock import START
from dibs.testing.draws import (
    ACTIONS,
    KINDS,
    MICROSECOND,
    SECOND,
    VERBS,
    ageings,
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
    scopes,
    shapes,
    some_limits,
    some_tasks,
    uniques,
    workers,
)
from dibs.testing.labs.base import Lab
from dibs.testing.story import Draw, Story, make_id, nth

STEPS = 50


def agree(factory: Callable[[], Lab], operations: int | None = None, *, shrink: bool = True) -> None:
    """Fail, with the shortest story found, if the lab's store and the model ever differ.

    About 1,200 operations (600 on a lab that is not tested at length), the same ones each time: a failure comes back
    when the test is run again. With ``DIBS_FAULTS=full`` 50,000 new ones each time; a failure then prints the line
    ``@reproduce_failure(…)`` to set above :class:`Agreement`.
    """
    full = os.environ.get("DIBS_FAULTS") == "full"
    usual = 1_200 if factory().at_length else 600
    chosen = settings(
        max_examples=(operations or (50_000 if full else usual)) // STEPS,
        stateful_step_count=STEPS,
        derandomize=not full,
        print_blob=True,
        report_multiple_bugs=False,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    with Agreement.on(factory) as machine:
        run_state_machine_as_test(machine, settings=chosen)


class Agreement(Story):
    """What happens in a story."""

    @initialize(wanted=st.lists(requests, min_size=3, max_size=6), limited=st.booleans(), data=st.data())
    def begin(self, wanted: list[dict[str, Any]], limited: bool, data: st.DataObject) -> None:
        for _ in range(2 * limited):
            self.limit(data.draw)
        self.tell("enqueue", [self._new(**one) for one in wanted])

    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def act(self, action: str, data: st.DataObject) -> None:
        getattr(self, action)(data.draw)

    # --- the life of a job --------------------------------------------------------------------

    def enqueue(self, draw: Draw) -> None:
        """New jobs, and some that were sent before."""
        again = draw(st.lists(number, max_size=2))
        jobs = [nth(self.made, n) for n in again if self.made]
        jobs += [self._new(**one) for one in draw(st.lists(requests, max_size=3))]
        self.tell("enqueue", jobs)

    def ask_for_the_same_key(self, draw: Draw) -> None:
        """Once or twice more, in one call; of a job that is still there, if one has a key."""
        keyed = [job for job in self.jobs[::-1] if job.key is not None]
        there = {"queue": "a", "key": "k1"}
        if keyed:
            job = nth(keyed, draw(number))
            there = {"queue": job.queue, "key": job.key or ""}
        wanted = draw(st.lists(st.tuples(requests, uniques), min_size=1, max_size=2))
        self.tell("enqueue", [self._new(**one | there | {"unique": unique}) for one, unique in wanted])

    def _new(
        self,
        offset: timedelta | None,
        lasts: timedelta | None,
        unique: dict[str, Any],
        shelf: int,
        **fields: Any,
    ) -> NewJob:
        now = self.clock.now
        job = NewJob(
            id=make_id(shelf, len(self.made)),
            args={"n": len(self.made)},
            meta={"shelf": shelf},
            run_at=None if offset is None else now + offset,
            expires_at=None if lasts is None else now + (offset or timedelta(0)) + lasts,
            **(unique if fields["key"] is not None else {}),
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
            claims = [nth(self.claims if stale else self.held, n) for n in draw(numbers)]
            worker, lease = other if stale else claims[0].worker, draw(leases)
            info = None if known else {"lease": lease.total_seconds()}
            said = {one.id: report for one in claims if (report := draw(reports)) is not None}
            self.tell("heartbeat", worker, claims, lease, info, said)

    def settle(self, draw: Draw) -> None:
        """Some of what is held; sometimes the call is sent twice."""
        if self.claims:
            items: dict[tuple[UUID, int, str], Settlement] = {}
            for n, outcome in draw(st.lists(st.tuples(number, outcomes), min_size=1, max_size=3)):
                claim = nth(self.held, n)
                items[claim.id, claim.epoch, claim.worker] = claim.settled(outcome)
            for _ in range(draw(st.sampled_from((1, 1, 2)))):
                self.tell("settle", list(items.values()))

    def settle_late_or_forged(self, draw: Draw) -> None:
        if self.claims:
            claim, outcome = nth(self.claims, draw(number)), draw(outcomes)
            epoch = claim.epoch + draw(st.sampled_from((0, 0, 0, -1, 1)))
            worker = draw(st.sampled_from((claim.worker, claim.worker, "ann")))
            self.tell("settle", [Settlement(claim.id, epoch, worker, outcome)])

    def settle_when_the_lease_ends(self, draw: Draw) -> None:
        """To the microsecond, or just before it."""
        ends = {job.id: job.locked_until for job in self.jobs if job.locked_until is not None}
        held = [one for one in self.held if ends.get(one.id, self.clock.now) > self.clock.now + MICROSECOND]
        if held:
            claim = nth(held, draw(number))
            self.move(ends[claim.id] - draw(st.sampled_from((0, 0, 1))) * MICROSECOND)
            self.tell("settle", [claim.settled(draw(outcomes))])

    def ask_for_a_cancel(self, draw: Draw) -> None:
        if self.claims:
            claim = nth(self.held, draw(number))
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
            self.tell("start", nth(self.started, draw(number)))
            return
        same = draw(st.sampled_from(({"queue": "a"}, {"queue": "b"}, {})))
        steps = tuple(
            self._step(draw, f"s{n}", *(f"s{i}" for i in needs), **same) for n, needs in enumerate(draw(shapes))
        )
        self._begin(draw, *steps)

    def _begin(self, draw: Draw, *steps: NewStep) -> UUID:
        n = len(self.started)
        flow = NewFlow(name=f"flow {n}", steps=steps, on_failure=draw(policies), id=make_id(4, n), meta={"n": n})
        self.started.append(flow)
        self.tell("start", flow)
        return flow.id

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
            claim = nth([one for one in self.held if one.flow] or self.held, draw(number))
            outcome = self._adding(draw, claim)
            for _ in range(draw(st.sampled_from((1, 1, 2)))):
                self.tell("settle", [claim.settled(outcome)])

    def replace_a_step(self, draw: Draw) -> None:
        """A flow of which one is removed that is needed, or needs others; then one adds another of its name."""
        due = {"queue": draw(queues), "offset": None, "lasts": None}
        steps = [self._step(draw, "s0", **due), self._step(draw, "s1", **due)]
        steps += [self._step(draw, "s2", "s0", "s1"), self._step(draw, "s3", "s2")]
        flow = self._begin(draw, *steps)
        claims = self.tell("claim", due["queue"], "ann", 10, 30 * SECOND, None)
        self.claims += claims
        mine = {claim.step: claim for claim in claims if claim.flow == flow}
        if mine.keys() >= {"s0", "s1"}:
            gone = draw(st.sampled_from(steps[1:3]))
            if gone.name == "s1":
                self.tell("settle", [mine["s1"].settled(draw(st.sampled_from((Succeeded("old"), Failed("boom")))))])
            self.tell("delete", Filter(ids=(gone.job.id,)))
            self.tell("settle", [mine["s0"].settled(Succeeded("more", self._in_place_of(draw, gone)))])

    def _in_place_of(self, draw: Draw, gone: NewStep) -> tuple[NewStep, ...]:
        """Another of its name, sometimes with its id, and one that needs it or that it needs."""
        needs, others = draw(st.sampled_from((((), (gone.name,)), (("s0",), (gone.name,)), (("s0", "y"), ()))))
        new, other = self._step(draw, gone.name, *needs), self._step(draw, "y", *others)
        if draw(st.booleans()):
            new = replace(new, job=replace(new.job, id=gone.job.id))
        return new, other

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
            flows = (nth(self.started, draw(st.sampled_from((0, 0, 1)))).id,)
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
            job = nth(self.made, draw(number)).id
            self.tell("get", job)
            self.tell("limits", job)

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
                fields = {"ids": tuple(nth(self.made, n).id for n in draw(numbers))}
            case "held" if self.claims:
                fields = {"ids": tuple(nth(self.held, n).id for n in draw(numbers))}
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
                fields = {"flows": (nth(self.started, draw(number)).id,)}
            case "times":
                what = draw(st.sampled_from(("created", "finished")))
                fields = {f"{what}_since": START + SECOND, f"{what}_before": self.clock.now}
        return Filter(**fields)

    def prune(self, draw: Draw) -> None:
        spans = st.sampled_from((None, timedelta(0), timedelta(0), SECOND))
        retention = Retention(succeeded=draw(spans), failed=draw(spans), cancelled=draw(spans))
        self.tell("prune", retention, draw(limits))

    def set_up_a_queue(self, draw: Draw) -> None:
        queue, what = draw(queues), draw(st.sampled_from(("pause", "resume", "fifo", "lifo", "ageing", "ageing")))
        if what in {"pause", "resume"}:
            self.tell(what, queue)
        elif what == "ageing":
            self.tell("configure", queue, ageing=draw(ageings))
        else:
            self.tell("configure", queue, order=Order(what))

    def limit(self, draw: Draw) -> None:
        """How many may run; sometimes none, sometimes by somebody who comes too late."""
        scope, limit, rank = draw(st.tuples(scopes, some_limits, st.sampled_from((0, 0, 0, 1))))
        self.is_limited = True
        self.tell("limit", scope, limit, rank=rank)

    def keep(self, draw: Draw) -> None:
        """What is no job: some is kept, some forgotten, now and then by somebody who comes too late."""
        what = st.sampled_from((None, {"n": 1}, {"n": 2.5, "ü": [None]}))
        values = draw(st.dictionaries(st.sampled_from(("x", "ü b")), what, max_size=2))
        self.tell("keep", draw(st.sampled_from(KINDS)), values, rank=draw(st.integers(0, 3)))
        self.both("kept", KINDS)
