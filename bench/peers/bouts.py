"""One bout: one system, one setting, on empty ground. It proves that every job ran once, or there is no figure."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

from bench.lib.race import DiscrepancyError
from bench.peers import processes
from bench.peers.grounds import Ground
from bench.peers.provision import Home
from bench.peers.table import Peer, Setting

STALL = 30.0
"""Seconds without a run of a job after which a bout is given up."""
CALL = 600.0
"""Seconds that a single command of a script may take."""
OTHERS = 1_000_000_000
"""Numbers of jobs that are not those that a workload counts begin here: of a warm-up, of a backlog."""
_RECORD = struct.Struct("<Qdd")


class FailedError(Exception):
    """A script ended with an error, or nothing happened any more."""


class Run(NamedTuple):
    """One run of a handler: which job, when it started, when it was enqueued (0 if nobody asked)."""

    job: int
    start: float
    enqueued: float


class Bout:
    """Use as a context: whatever happens, no worker outlives it."""

    strays: ClassVar[float] = 0.0
    """Processor time of all processes that workers had started: nobody waits for them who could tell."""

    def __init__(
        self, peer: Peer, setting: Setting, ground: Ground, home: Home, *, kind: str = "async", work: float = 0.0
    ) -> None:
        self.peer, self.setting, self.ground, self._home = peer, setting, ground, home
        self._kind, self._work = kind, work
        self._workers: list[subprocess.Popen[bytes]] = []
        self._teller: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="dibs-bout-"))
        self._records = self._folder / "records"
        self._records.touch()
        self._log = self._folder / "log"
        try:
            self.ground.empty()
            self._call("setup")
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._teller is not None:
            self._teller.kill()
            self._teller.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- what a system is asked to do ---------------------------------------------------------

    def enqueue(self, **order: Any) -> dict[str, float]:
        """Enqueue as the order says; what the script found out, ``seconds`` among it."""
        said = self._call("enqueue", json.dumps(order)).splitlines()
        found: dict[str, float] = json.loads(said[-1])
        return found

    def start(self, workers: int = 1) -> None:
        with self._log.open("ab") as log:
            for _ in range(workers):
                command = self._command("worker")
                options: Mapping[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
                self._workers.append(
                    subprocess.Popen(
                        command, env=self._environment(), cwd=self._folder, stdin=subprocess.DEVNULL, **options
                    )
                )

    def stop(self) -> None:
        """At once: the ground is thrown away anyway."""
        for worker in self._workers:
            members = processes.session([worker.pid])
            Bout.strays += processes.cpu(pid for pid in members if pid != worker.pid)
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            worker.wait()
        self._workers = []

    def pids(self) -> list[int]:
        """The processes of the workers."""
        return processes.session(worker.pid for worker in self._workers)

    # --- what is seen -------------------------------------------------------------------------

    def wait_for_runs(self, count: int) -> None:
        """Until handlers have run so often."""
        seen, moved = -1, time.monotonic()
        while seen < count:
            now = self._records.stat().st_size // _RECORD.size
            if now != seen:
                seen, moved = now, time.monotonic()
            elif time.monotonic() - moved > STALL:
                raise FailedError(
                    f"after {seen} of {count} runs nothing happened for {STALL:.0f} s{self._last_words()}"
                )
            self._alive()
            time.sleep(0.002)

    def wait_for_jobs(self, jobs: int) -> None:
        """Until so many of those that count have run, whatever else ran meanwhile."""
        ran = jobs
        while True:
            self.wait_for_runs(ran)
            others = sum(run.job >= OTHERS for run in self.runs())
            if ran >= jobs + others:
                return
            ran = jobs + others

    def wait_until_finished(self) -> float:
        """When the store says that nothing is left to do."""
        until = time.monotonic() + STALL
        while (left := self.left()) > 0:
            if time.monotonic() > until:
                raise FailedError(f"{left} jobs ran and were never finished{self._last_words()}")
            time.sleep(0.002)
        return time.time()

    def left(self) -> int:
        """How many jobs the store does not hold as finished."""
        if self.peer.left:
            return self.ground.count(self.peer.left)
        if self._teller is None:
            self._teller = subprocess.Popen(
                self._command("left"),
                env=self._environment(),
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._teller.stdin is not None and self._teller.stdout is not None
        self._teller.stdin.write("\n")
        self._teller.stdin.flush()
        answer = self._teller.stdout.readline()
        if not answer:
            raise FailedError("nobody could say how many jobs are left")
        return int(answer)

    def runs(self) -> list[Run]:
        """Every run so far, in the order of their starts."""
        found = [Run(*fields) for fields in _RECORD.iter_unpack(self._records.read_bytes())]
        return sorted(found, key=lambda run: run.start)

    def forget_runs(self) -> None:
        """Begin anew, after a warm-up."""
        os.truncate(self._records, 0)

    def verified(self, jobs: int, first: int = 0) -> list[Run]:
        """The runs, if each of these jobs ran once; others, of a backlog, may have run or not."""
        runs = self.runs()
        times = Counter(run.job for run in runs)
        twice = sum(count > 1 for count in times.values())
        lost = sum(job not in times for job in range(first, first + jobs))
        if twice or lost:
            raise DiscrepancyError(f"{lost} of {jobs} jobs did not run, {twice} ran more than once")
        return [run for run in runs if first <= run.job < first + jobs]

    # --- how it is done -----------------------------------------------------------------------

    def _command(self, *words: str) -> list[str]:
        script = () if self.peer.node else (self.peer.script,)
        return [*self._home.command, *script, *words]

    def _environment(self) -> dict[str, str]:
        ours = {
            "BENCH_URL": self.ground.url,
            "BENCH_RECORDS": str(self._records),
            "BENCH_SETTINGS": self.setting.values,
            "BENCH_KIND": self._kind,
            "BENCH_WORK": str(self._work),
        }
        path = self._home.variables["PATH"] + os.pathsep + os.environ["PATH"]
        return {**os.environ, **self._home.variables, **ours, "PATH": path}

    def _call(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words),
            env=self._environment(),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=CALL,
            check=False,
        )
        if done.returncode:
            raise FailedError(f"{words[0]} failed: {_reason(done.stderr or done.stdout)}")
        return done.stdout.strip()

    def _alive(self) -> None:
        if all(worker.poll() is not None for worker in self._workers):
            raise FailedError(f"every worker has ended{self._last_words()}")

    def _last_words(self) -> str:
        said = self._log.read_text(errors="replace").strip()
        return f"; its last words: {_reason(said)}" if said else ""


def _reason(said: str) -> str:
    """The line of an output that says most: the last that names an error, or the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (named or lines or ["without a word"])[-1][:200]
