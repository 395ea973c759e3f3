"""The worker: what others see of it."""

import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dibs.clock import system_clock
from dibs.errors import ConfigurationError
from dibs.job import Retention
from dibs.store import Store
from dibs.task import Tasks
from dibs.telemetry.health import Vitals
from dibs.telemetry.tally import Tally
from dibs.version import __version__
from dibs.worker.processes import refuse_while_importing
from dibs.worker.settings import Settings, default_name
from dibs.worker.shift import Shift
from dibs.worker.stats import Stats

RETENTION = Retention()


class Worker:
    """Runs the jobs of some queues, for one ``run``.

    ``queues``: a list is asked in its order, a mapping shares by weight. ``concurrency``: how many handlers run at
    once; ``processes``: how many of them in processes of their own. ``lease``: how long a job stays with a worker that
    died, for tasks that do not say. ``grace``: how long running handlers may go on after ``stop``. ``prefetch``: how
    many claims to hold beyond the free slots; None finds out by itself. ``retention``: what to prune; None nothing.
    ``until_empty``: end when nothing due is left. ``samples``: whether it writes down what it did, for charts.

    ``open_store`` gives a new handle each time, not set up, which the worker closes. If it gives the same object again,
    that is shared with others, and left open.
    """

    def __init__(
        self,
        tasks: Tasks,
        open_store: Callable[[], Store],
        *,
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        concurrency: int = 100,
        processes: int | None = None,
        name: str | None = None,
        lease: timedelta = timedelta(seconds=30),
        grace: timedelta = timedelta(seconds=30),
        prefetch: int | None = None,
        retention: Retention | None = RETENTION,
        until_empty: bool = False,
        samples: bool = True,
    ) -> None:
        refuse_while_importing()
        self.settings = Settings(
            queues=queues,
            concurrency=concurrency,
            processes=processes or min(concurrency, os.cpu_count() or 1),
            name=name or default_name(),
            lease=lease,
            grace=grace,
            prefetch=prefetch,
            retention=retention,
            until_empty=until_empty,
            samples=samples,
        )
        self.stats = Stats()
        self.tally = Tally()
        """The same by queue and task, with times; for metrics."""
        self.vitals = Vitals()
        """Whether it is alive; for probes."""
        self.asked_to_stop = False
        """Whether it ended because somebody asked for that through the store."""
        self.cut_short_by: int | None = None
        """The signal that ended it while it was ending already, if one did."""
        self._tasks = tasks
        self._open_store = open_store
        self._started_at = system_clock()
        self._shift: Shift | None = None
        self._stops = 0
        self._ran = False

    @property
    def name(self) -> str:
        return self.settings.name

    async def run(self) -> Stats:
        """Work until stopped or, with ``until_empty``, until nothing due is left in the queues and nothing runs.

        A store that is away is waited for. One that cannot be worked with (no schema, a wrong setting) raises here.
        """
        if self._ran:
            raise ConfigurationError("this worker has run: make another one")
        self._ran = True
        shift = self._shift = Shift(
            self._tasks,
            self.settings,
            self.stats,
            self._open_store,
            self.info,
            tally=self.tally,
            vitals=self.vitals,
        )
        shift.stop(self._stops)  # a stop that came before counts too
        try:
            await shift.work()
        finally:
            self._shift = None
            self.asked_to_stop = shift.asked
        return self.stats

    def stop(self, *, now: bool = False) -> None:
        """Claim no more, give back what has not started, let the rest finish within the grace time.

        A second call, or ``now``, does not wait for them: they are interrupted and released. To be called from any
        thread or signal handler.
        """
        self._stops += 2 if now else 1
        if (shift := self._shift) is not None:
            shift.stop_soon(self._stops)

    @property
    def slots(self) -> int:
        """How many handlers can run at once."""
        return self.settings.concurrency

    def running(self) -> Counter[tuple[str, str]]:
        """How many attempts run now, by queue and task; may be asked from any thread."""
        shift = self._shift
        return Counter() if shift is None else Counter((run.queue, run.task) for run in shift.running())

    def info(self) -> dict[str, Any]:
        """What heartbeats tell about this worker."""
        queues = self.settings.queues
        running = Counter[str]()
        for (_, task), count in self.running().items():
            running[task] += count
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "queues": dict(queues) if isinstance(queues, Mapping) else list(queues),
            "tasks": sorted(self._tasks.by_name),
            "concurrency": self.settings.concurrency,
            "started_at": self._started_at.isoformat(),
            "running": dict(running),
            # For those who show jobs and have not this code.
            **({"redact": told} if (told := self._tasks.redaction.told()) else {}),
        }
