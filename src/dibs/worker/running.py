"""Running: what was claimed is started as soon as there is a slot for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextvars import copy_context
from time import monotonic
from typing import Any

from dibs.attempt import running
from dibs.outcome import Cancelled, Outcome, Released
from dibs.telemetry.tally import Tally
from dibs.worker.guard import onward
from dibs.worker.hooks import Hooks
from dibs.worker.judging import judge_batch, judge_error, judge_result
from dibs.worker.log import about, log
from dibs.worker.plan import Plan, Unfit
from dibs.worker.run import Run, Why
from dibs.worker.settling import Settler
from dibs.worker.stats import Stats

TURN = 0.001
"""Seconds for which handlers that do not wait may begin, one after the other, before others have their turn."""

_NOBODY = -1


class Runner:
    """Slots, and the claims that wait for one. A call of a batch task takes one slot, however many jobs it is for.

    Each attempt has an asyncio task of its own, as soon as its handler waits for something. Handlers of a task that did
    not wait the last time begin one after the other in a task that they share for a millisecond: making one for each
    would take a sixth of all the time. What a handler leaves in its context never reaches the next.
    """

    def __init__(
        self,
        concurrency: int,
        processes: int,
        *,
        held: set[Run],
        settler: Settler,
        stats: Stats,
        hooks: Hooks,
        tally: Tally,
    ) -> None:
        self.free = concurrency
        self.free_processes = processes
        self.waiting = 0
        """Claims that wait for a slot, but for those that wait for a process."""
        self._line: deque[Run | Plan] = deque()
        self._process_line: deque[Run | Plan] = deque()
        self._batches: dict[Plan, deque[Run]] = {}
        self._held = held
        self._settler = settler
        self._stats = stats
        self._hooks = hooks
        self._tally = tally
        self._begun = tally.begun.append
        self._tells_starts = "started" in hooks
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._plain_tasks = self._loop.get_task_factory() is None
        self._brief: deque[Run] = deque()
        """Started, but their handlers have not begun: they are not expected to wait, so they share a task."""
        self._shared: asyncio.Task[None] | None = None
        self.poke: Callable[[], None] = lambda: None
        """Called when no more than ``poke_at`` claims wait; nobody wants it while that is negative."""
        self.poke_at = _NOBODY
        self.more_to_come = False
        """A claim is on its way that will bring more, so batches that are not full wait for it."""
        self.closed = False
        """Start no more."""

    # --- what waits -----------------------------------------------------------------------------------------

    def take(self, runs: Iterable[Run]) -> None:
        """Start these, or have them wait for a slot."""
        for run in runs:
            plan = run.plan
            if plan.alone:
                self._line.append(run)
                self.waiting += 1
            else:
                self._put_in_line(run, plan)
        self._start_some()

    def _put_in_line(self, run: Run, plan: Plan) -> None:
        line = self._process_line if plan.in_process else self._line
        self.waiting += not plan.in_process
        if plan.batch is None:
            line.append(run)
            return
        batch = self._batches.setdefault(plan, deque())
        if not batch:
            line.append(plan)  # stands in line for all of its jobs
        batch.append(run)

    def oldest(self, line: deque[Run | Plan] | None = None) -> float:
        """When the claim came that is next, or now."""
        for item in self._line if line is None else line:
            return self._batches[item][0].came_at if isinstance(item, Plan) else item.came_at
        return monotonic()

    @property
    def room_for_processes(self) -> int:
        """How many jobs for processes could start at once."""
        return min(self.free, self.free_processes) if not self._process_line else 0

    def return_stale(self, since: float) -> bool:
        """Release what waits for a slot if the next one came before that: others may have slots."""
        stale = [line for line in (self._line, self._process_line) if line and self.oldest(line) < since]
        for line in stale:
            self._release(line)
        return bool(stale)

    def give_back(self) -> None:
        """Start no more, and release everything that has not started."""
        self.closed = True
        self._release(self._line)
        self._release(self._process_line)

    def _release(self, line: deque[Run | Plan]) -> None:
        while line:
            item = line.popleft()
            for run in self._next_batch(item, line) if isinstance(item, Plan) else [item]:
                self._settle(run, Released())
        if line is self._line:
            self.waiting = 0

    def _next_batch(self, plan: Plan, line: deque[Run | Plan]) -> list[Run]:
        """The next runs of a batch task; if more of them wait, it stands in line again."""
        batch = self._batches[plan]
        runs = [batch.popleft() for _ in range(min(plan.batch or 1, len(batch)))]
        if batch:
            line.append(plan)
        if line is self._line:
            self.waiting -= len(runs)
        return runs

    # --- starting -------------------------------------------------------------------------------------------

    def _start_some(self) -> None:
        self._start_at(monotonic())

    def _start_at(self, now: float) -> None:
        unfilled: list[Plan] = []
        while self.free and not self.closed:
            if self._process_line and self.free_processes:
                line = self._process_line
            elif self._line:
                line = self._line
            else:
                break
            item = line.popleft()
            if not isinstance(item, Plan):
                self.waiting -= line is self._line
                if item.until > now and not item.cancelled:
                    self._start(item, now)
                else:
                    self._end_unstarted(item)
            elif self.more_to_come and len(self._batches[item]) < (item.batch or 1):
                unfilled.append(item)
            elif runs := self._as_batch(self._next_batch(item, line), now):
                self._start(runs[0], now)
        for plan in unfilled:
            (self._process_line if plan.in_process else self._line).append(plan)

    def _end_unstarted(self, run: Run) -> None:
        """Its lease was lost, or its cancel asked, while it waited."""
        if run.lost or not run.cancelled:
            self._drop(run)
        else:
            self._settle(run, Cancelled())

    def _start(self, run: Run, now: float) -> None:
        """Start a run, with all runs of its batch."""
        plan = run.plan
        self.free -= 1
        if plan.in_process:
            self.free_processes -= 1
        self._launch(run)
        if plan.batch is None and not self._tells_starts:
            self._stats.started += 1
            run.began_at = now
            self._begun(run)
        else:
            self._tell_start(run, now)

    def _launch(self, run: Run) -> None:
        """Have its handler begin, in a task of its own if it may wait."""
        if run.plan.waits or not self._plain_tasks:
            run.handle = self._task(self._attempt_of(run), run.claim.task)
            return
        self._brief.append(run)
        if self._shared is None:
            self._shared = self._task(self._begin_brief(), "dibs attempts")
            self._shared.add_done_callback(self._shared_ended)
        run.handle = self._shared

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        # Made at the end of another attempt, as most are: its context must not be inherited.
        context = self._context.copy()
        if self._plain_tasks:  # what create_task does then, without the detour
            return asyncio.Task(work, loop=self._loop, name=name, context=context)
        return self._loop.create_task(work, name=name, context=context)

    async def _begin_brief(self) -> None:
        """Attempts whose handlers should not wait, one after the other. If one does, this task is its own from then on.

        It ends with those that were to begin when it began, or after a millisecond, or when somebody asked to cancel
        it: that was meant for an attempt that is over.
        """
        task, brief, until = self._shared, self._brief, monotonic() + TURN
        assert task is not None
        for _ in range(len(brief)):
            run = brief.popleft()
            attempt, context = self._attempt_of(run), self._context.copy()
            try:
                step = context.run(attempt.send, None)
            except StopIteration:
                if run.ended_at > until or task.cancelling():
                    break
            else:
                task.set_name(run.claim.task)
                self._share_anew()
                await onward(attempt, step, context)
                return
        self._share_anew()

    def _share_anew(self) -> None:
        """Leave the shared task; those that were to begin in it begin in another, or by themselves."""
        left, self._brief, self._shared = self._brief, deque(), None
        for run in left:
            self._launch(run)

    def _shared_ended(self, task: "asyncio.Task[None]") -> None:
        """Somebody who cancels whatever task there is has cancelled it before it began: its attempts must not hang."""
        if task is self._shared:
            self._share_anew()

    def _tell_start(self, first: Run, now: float) -> None:
        for run in first.batch:
            assert isinstance(run, Run)
            self._stats.started += 1
            run.began_at = now
            self._begun(run)
            run.handle = first.handle
            if self._tells_starts:
                self._hooks.fire("started", run, None)

    def _as_batch(self, runs: list[Run], now: float) -> list[Run]:
        """Those that can start and whose arguments fit, tied together; the others end by themselves."""
        items, fitting = [], []
        for run in runs:
            if run.until <= now or run.cancelled:
                self._end_unstarted(run)
                continue
            try:
                items.append(run.plan.item_of(run))
                fitting.append(run)
            except Unfit as problem:
                self._settle(run, judge_error(run, problem))
        if fitting:
            fitting[0].items = items
            together = tuple(fitting)
            for run in fitting:
                run.batch = together
        return fitting

    # --- one attempt ----------------------------------------------------------------------------------------

    def _attempt_of(self, run: Run) -> Coroutine[Any, Any, None]:
        return self._attempt(run) if run.plan.batch is None else self._attempt_batch(run)

    async def _attempt(self, run: Run) -> None:
        """Run and judge. Never raises: whatever the handler did is an outcome."""
        run.started = True
        running.set(run)
        timer = self._timer(run) if run.plan.timeout is not None else None
        try:
            if run.why is not None:
                raise asyncio.CancelledError
            result = await run.plan.call(run)
        except BaseException as error:
            outcome = judge_error(run, error)
        else:
            outcome = judge_result(run, result)
        if timer is not None:
            timer.cancel()
        if run.lost:
            self._drop(run)
        else:
            self._settler.add(run, outcome)
        self._free(run)

    async def _attempt_batch(self, first: Run) -> None:
        """The same for a batch: one call, an outcome for each."""
        runs: tuple[Run, ...] = first.batch  # type: ignore[assignment]  # runs are the attempts here
        for run in runs:
            run.started = True
        running.set(first)
        timer = self._timer(first) if first.plan.timeout is not None else None
        try:
            if first.why is not None:
                raise asyncio.CancelledError
            result = await first.plan.call(first)
        except BaseException as error:
            outcomes = [judge_error(run, error) for run in runs]
        else:
            outcomes = judge_batch(runs, result)
        if timer is not None:
            timer.cancel()
        now = monotonic()
        for run, outcome in zip(runs, outcomes, strict=True):
            run.handle = None
            run.ended_at = now
            self._settle(run, outcome)
        self._free(first)

    def _timer(self, run: Run) -> asyncio.TimerHandle:
        assert run.plan.timeout is not None
        return self._loop.call_later(run.plan.timeout, self._time_out, run)

    def _time_out(self, run: Run) -> None:
        for each in run.batch:
            assert isinstance(each, Run)
            self.interrupt(each, Why.TIMEOUT)

    def _free(self, run: Run) -> None:
        """A slot is free: the next one starts."""
        now = run.ended_at = monotonic()
        run.handle = None
        self.free += 1
        if run.plan.in_process:
            self.free_processes += 1
        if self._line or self._process_line:
            self._start_at(now)
        if self.waiting <= self.poke_at or run.plan.in_process:
            self.poke()

    def _settle(self, run: Run, outcome: Outcome) -> None:
        if run.lost:
            self._drop(run)
        else:
            self._settler.add(run, outcome)

    def _drop(self, run: Run) -> None:
        """Its lease is lost: there is nothing to record."""
        run.cancelled = run.lost = run.ended = True
        self.lost(run)
        self._held.discard(run)
        self.poke()

    def lost(self, run: Run) -> None:
        """Count it, say it once."""
        self._stats.lost += 1
        self._tally.ended(run, "lost")
        words = "job %s (%s, epoch %d): the lease is lost, somebody else may run it"
        log.warning(words, run.id, run.task, run.epoch, extra=about(run))
        self._hooks.fire("lost", run, None)

    # --- interrupting ---------------------------------------------------------------------------------------

    def interrupt(self, run: Run, why: Why) -> None:
        """Have a handler end: cancelled on the loop, killed in a process, asked in a thread.

        A call for a batch goes on while it has jobs that nobody wants to end.
        """
        if run.ended:
            return
        run.cancelled = True
        run.why = Why.LOST if why is Why.LOST else run.why or why
        if not run.started or not run.plan.interruptible or run.handle is None:
            return  # one that waits for a slot ends when its turn comes
        if all(isinstance(each, Run) and each.why for each in run.batch):
            run.handle.cancel()

    def abandon(self) -> int:
        """Take leave of those that could not be ended: nothing of them will be recorded. Answers how many they were."""
        left = list(self.going())
        for run in left:
            run.cancelled = run.lost = True
            if run.handle is not None:
                run.handle.cancel()
        return len(left)

    def going(self) -> Iterator[Run]:
        """Those whose handlers run now."""
        return (run for run in self._held.copy() if run.handle is not None and not run.ended)
