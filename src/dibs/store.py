"""The store contract: what every store promises, and all that the rest of dibs knows about one.

Each verb is atomic: one transaction, one script or one hold of a lock. A crash in the middle of a verb leaves
the state before it or the state after it. Values go in, values come out; the store's own clock is the only
clock for leases and due times. ``dibs.testing.contract`` is this page as tests.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from dibs.job import (
    Changed,
    Claim,
    Counted,
    Enqueued,
    Filter,
    Flow,
    FlowPage,
    FlowState,
    Job,
    Kept,
    NewFlow,
    NewJob,
    Order,
    Page,
    QueueCounts,
    Report,
    Retention,
    Settlement,
    WorkerInfo,
)
from dibs.outcome import Pulse, Verdict
from dibs.scope import Limit, LimitUse, Scope

CHUNK = 1_000
"""How many jobs a bulk verb changes in one atomic step, unless told otherwise."""


class Store(Protocol):
    """Where jobs live. Every verb may raise ``Refused`` (nothing happened) or ``StoreUnavailable``."""

    # --- coming and going -----------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Connect and check that the store can be worked with: reachable, right schema, right settings.

        Creates nothing on a server unless the URL says ``migrate=auto``. Calling it again is harmless.
        """

    async def close(self) -> None:
        """Give back every connection and thread. Claims that are held stay held until their leases end."""

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        """Return those of ``queues`` that may have due work, as soon as one may; none after ``timeout``.

        Waking early is allowed, and so is naming a queue whose work somebody else just took, or whose jobs a limit
        holds back. A job that becomes due is noticed without anybody's help within about a second.

        With ``worker`` it returns, too, as soon as a claim of that worker is asked to end: time for a heartbeat.
        """

    # --- the life of a job ----------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all of the jobs, or none if one is refused; answers come in the order of ``jobs``.

        A job whose id is known, or whose key is busy (an unfinished job of its queue has it, or one that is still to
        be unique for some time), is not stored: the answer names the job that is there, with ``created=False``. So
        sending a call again is harmless.

        If the key is busy with a queued job, ``on_conflict`` may give that job the task, arguments, priority, run_at,
        max_attempts, meta, expiry, limit key and window of the new one, and its attempts begin at 0 again; id, epoch,
        created time and errors stay. ``debounce`` takes the later of the two run_at, the new one being at most
        ``max_delay`` after the job was created. The answer then says ``changed=True``.
        """

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        """Take up to ``limit`` due jobs of the queue for ``worker``, first in the order first.

        The order is priority, then ``run_at``, then id (in a lifo queue: priority, then the newest; in one that ages:
        ``run_at`` + priority x ageing, then id). Only jobs of the given ``tasks`` are looked at, others are left alone.
        Each claim counts an attempt, raises the epoch and holds the job until now + ``lease``. A paused queue gives
        nothing.

        An expired running job that is passed on the way stands in its place in the order: it is claimed again,
        or, with no attempts left, failed ("lease expired"), or, if a cancel was asked, cancelled. A job that is passed
        whose ``expires_at`` has come is cancelled, whether it is queued or its lease expired.

        A job that comes under limits (see ``limit``) is claimed only if each of them has room for it, beside what is
        running and what this call has claimed before it. If one has none, the job is left as it is and those behind it
        are looked at.

        A job that another call is changing at this very moment may be passed over: a claim does not wait.
        """

    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        """Renew the leases to now + ``lease`` and say of each claim: held, cancel asked, or lost.

        Never shortens a lease, never revives a job, and a lost claim changes nothing. Records that the worker
        was seen, also with no claims; ``info`` (what it serves, where it runs) replaces what was known.

        ``reports``, by job: what the handlers have said. The report of a claim that is held replaces what was
        known of its job, and ``get`` and ``find`` show it, while the job runs and after it ended, until a later
        claim reports. Reports of jobs that no held claim of this call is for are ignored. Nothing that a handler
        said is refused: progress is brought into 0 to 1, texts are cleaned and cut, the last hundred lines kept.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        """Record how claims ended; each answers for itself: accepted or lost.

        Accepted if the job is running with that epoch and worker and its lease is valid; or if that same claim
        was settled the same way before and the job was not claimed, cancelled, requeued or deleted since (the
        first answer may have got lost). Otherwise lost, and nothing changed.

        A retry with no attempts left fails the job. If a cancel was asked, retry, release and snooze end it
        cancelled. A result that cannot be stored fails the job with that reason.

        The items take effect one after another, in their order. What follows for the flow of a step that ended (see
        ``start``) is part of the call. ``Succeeded.steps`` are added to the step's flow by the same stroke: their names
        must be new in it, and they may need each other and the step that adds them. Steps that cannot be added fail the
        job with that reason instead, and none is added. Steps that are added by a step whose cancel was asked are
        cancelled at once.
        """

    async def sweep(self, limit: int = CHUNK, *, not_within: timedelta | None = None) -> int:
        """Do what a claim does to expired jobs where nobody claims, in every queue, up to ``limit`` of them.

        One with attempts left goes back to queued, in its place; one with none is failed; one whose cancel was
        asked is cancelled, and so is one whose ``expires_at`` has come, and every queued job, due or not, of which that
        is true: first expired leases, longest expired first, then queued jobs by ``expires_at``, then by id. Returns
        how many there were.

        With ``not_within`` nothing need be done if a sweep has looked at all of it within that time: of many workers
        not each has to do what another has just done.
        """

    # --- flows ----------------------------------------------------------------------------------------------

    async def start(self, flow: NewFlow) -> Enqueued:
        """Store a flow with all of its steps, or nothing. A known id stores nothing and answers ``created=False``.

        A step with needs is waiting until the last of them has succeeded, and is queued by that very settle, with
        their results as its ``inputs``. A step that fails, or is cancelled, ends the flow and cancels its other steps
        (those that run are asked), or, with ``OnFailure.CONTINUE``, cancels only what needs it. The flow is finished
        when its last step is: failed if one failed, else cancelled if one was cancelled, else succeeded.

        A requeue of steps lets the flow run again: they wait for what they need and has not succeeded.

        A need is on the job that has the name when the step is stored. When that is deleted or pruned, whoever comes
        with its name or its id later is another one, and is needed only by steps that are added with it or by it.
        """

    async def flow(self, flow: UUID) -> Flow | None:
        """The flow as it is now, or None if there is none (any more)."""

    async def flows(
        self, states: Collection[FlowState] | None = None, after: UUID | None = None, limit: int = 100
    ) -> FlowPage:
        """The flows in any of these states, newest id first, starting behind ``after``."""

    # --- looking --------------------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        """The job as it is now, or None if there is none (any more)."""

    async def find(
        self, which: Filter, after: UUID | None = None, limit: int = 100, *, most: int | None = None
    ) -> Page:
        """The jobs that match, newest id first, starting behind ``after``.

        Going on from page to page shows no job twice and skips none that was there all the time.

        With ``most``, where matching jobs are few and the store has no index that leads to them, it stops when it has
        looked at about so many jobs: the page may then be short, even empty, and still say where to go on.
        """

    async def counts(self, *, most: int | None = None) -> list[QueueCounts]:
        """Every queue that has jobs or settings, by name, with its jobs counted by state.

        With ``most``, a store where counting takes longer the more there is stops at about so many jobs of a state
        and names that state in ``more``; a queue that has nothing but old finished jobs may then be missing.
        """

    async def count(self, which: Filter, *, most: int | None = None) -> Counted:
        """How many jobs match.

        With ``most``, a store where counting takes longer the more there is stops when it has counted, or looked at,
        about so many jobs, and says that this is not all.
        """

    async def workers(self) -> list[WorkerInfo]:
        """Every worker that was seen or holds a claim, by name."""

    # --- an operator's verbs: each call one chunk -----------------------------------------------------------
    #
    # A call looks at the first ``limit`` jobs behind ``after`` that match and that the verb applies to, newest
    # id first, changes them in one atomic step, and answers how many it changed and where to go on. With
    # ``dry_run`` it changes nothing and counts all jobs behind ``after`` that match and that the verb applies to.

    async def cancel(
        self,
        which: Filter,
        *,
        force: bool = False,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        """End unfinished jobs: waiting and queued ones at once; a running one is asked.

        The worker learns of it at its next heartbeat. With ``force`` a running job is cancelled at once and
        its owner is fenced out.
        """

    async def requeue(
        self,
        which: Filter,
        *,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        """Send finished jobs back to queued: due now, attempts from 0, the epoch goes on rising.

        Errors and the lines of the report are kept; the result, the progress and its note are dropped. A job whose
        key is busy meanwhile stays finished, uncounted.

        A step lets its flow run again. Then every step of it that has not started waits for the needs that have not
        succeeded as of now, and has the results of the others; a need that is gone counts as met, without a result.
        """

    async def reschedule(
        self,
        which: Filter,
        run_at: datetime,
        *,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        """Set when waiting and queued jobs are due."""

    async def reprioritise(
        self,
        which: Filter,
        priority: int,
        *,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        """Set the priority of waiting and queued jobs."""

    async def delete(
        self,
        which: Filter,
        *,
        force: bool = False,
        dry_run: bool = False,
        after: UUID | None = None,
        limit: int = CHUNK,
    ) -> Changed:
        """Remove jobs without a trace. Running ones only with ``force``: their owners are fenced out.

        An unfinished step is cancelled first, with all that follows for its flow. A flow goes with its last job.
        """

    async def prune(self, retention: Retention, limit: int = CHUNK) -> int:
        """Drop up to ``limit`` finished jobs that are older than the retention allows; answers how many.

        Also forgets workers that hold nothing and were not seen for a day.
        """

    # --- queues ---------------------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        """Give out no more jobs of the queue. Those running go on."""

    async def resume(self, queue: str) -> None:
        """Give out jobs of the queue again."""

    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        """Say in which order a queue hands out its jobs, from the next claim on.

        With ``ageing`` a due job is worth one priority more for every such time that it has waited, so that low ones
        run in the end; a lifo queue cannot age.
        """

    async def limit(self, scope: Scope, limit: Limit | None, *, rank: int = 0) -> None:
        """Limit the jobs of a scope, from the next claim on, in place of what was set; None takes the limit away.

        A limit that was set with a higher ``rank`` stays as it is; taking away asks for no rank. A job counts as
        running from its claim until it is settled or its lease ends, also if it was claimed before there was a limit.
        Jobs over a limit that was lowered go on. What a rate has let through counts, whatever became of it; another
        rate begins with a full bucket, the same one goes on with what is in it.
        """

    async def limits(self, job: UUID | None = None) -> list[LimitUse]:
        """The limits that are set, queues first, then tasks, by name, a queue's own before that of its keys.

        With ``job``: only those that it comes under, each as far as it is used for this job.
        """

    # --- what is set at run time and is no job --------------------------------------------------------------

    async def keep(self, kind: str, values: Mapping[str, Mapping[str, Any] | None], *, rank: int = 0) -> None:
        """Keep a value under each name, in place of the one that is there; None forgets it. All of them or none.

        A value that was kept with a higher ``rank`` stays as it is, so writers who come late can be told from those
        who know better; among equals the last one counts. Forgetting asks for no rank. Values are JSON objects.
        """

    async def kept(self, kinds: Sequence[str]) -> Kept:
        """Everything that is kept of these kinds, at one instant, which is named, too: the store's clock, for whoever
        has to act by it."""


class Offer(msgspec.Struct, frozen=True):
    """What a worker that has nothing to do would claim: one job, once."""

    worker: str
    lease: timedelta
    tasks: Collection[str] | None
    take: Callable[[Claim, float], None]
    """Called in the loop with the claim, and a time by the monotonic clock at which it was not yet made."""
    good_for: timedelta
    """The offer ends by itself after that."""


@runtime_checkable
class Offering(Store, Protocol):
    """A store in which whoever brings a job can claim it for whoever waits. Others do without."""

    async def offer(self, queues: Sequence[str], offer: Offer) -> bool:
        """Leave an offer, while a ``wait`` for these queues goes on; it stands in place of the worker's last one.

        False if none was left, because nobody would claim by it: then the ``wait`` has to do. It is over when a claim
        was made by it, or the worker claims for itself. A claim that gets lost on its way comes back when its lease
        expires, as always.
        """

    async def retract(self, worker: str) -> bool:
        """Take back the offer of a worker; False if there is none: a claim that was made by it may be on its way."""
