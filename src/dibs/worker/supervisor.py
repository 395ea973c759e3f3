"""Keeps a number of worker processes running: what ``dibs work --processes N`` is."""

import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import msgspec

log = logging.getLogger("dibs.supervisor")

CONFIGURATION_ERROR = os.EX_CONFIG  # 78
NUMBER_VARIABLE = "DIBS_PROCESS"
"""Tells a child which of the processes it is, from 1: for its worker's name."""
LINE_VARIABLE = "DIBS_SUPERVISOR_FD"
_READY, _LEAVING = b"!", b"."
"""What a child says on its line."""
_PR_SET_PDEATHSIG = 1
_LINUX = sys.platform.startswith("linux")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a child that died is started again; seconds."""

    first: float = 1.0
    longest: float = 30.0
    healthy: float = 60.0
    """A child that lived this long is not held to blame for those before it: the next waits ``first`` again."""
    ready: float = 10.0
    """In a rolling restart, how long to wait for a new child to say that it works before the next one is replaced."""

    def delay(self, deaths: int) -> float:
        """How long to wait after so many deaths in a row."""
        return min(self.first * 2.0 ** min(deaths - 1, 60), self.longest)


def supervise(
    command: Sequence[str], processes: int, *, finite: bool = False, pace: Pace | None = None, fds: Sequence[int] = ()
) -> int:
    """Run ``processes`` children of the command until told to stop; the code to exit with.

    A child that ends is started again, sooner or later (see ``Pace``); with ``finite``, one that ends with 0 has
    done its work and is not, and neither is one that said that it leaves, before a SIGHUP; if all have left, the
    answer is 0. SIGTERM and SIGINT are passed on, and all is over when the children have ended: 0. A
    second one kills them: 128 and the signal's number. SIGHUP replaces the children one after the other. A child
    that cannot work with its configuration (it exits with 78) stops them all, and 78 is the answer; if its place has
    worked before and others still do, they are left alone, and it is tried again after the longest delay.
    Children end when the supervisor is killed, and inherit the file descriptors ``fds``. Call it from the main thread
    of a program that has no other.
    """
    with _signals() as (wakeup, arrived):
        return _Supervisor(command, processes, finite, pace or Pace(), arrived, fds=fds).run(wakeup)


class Upward:
    """A child's line to its supervisor. Without one, nobody listens."""

    def __init__(self, line: socket.socket | None) -> None:
        self._line = line

    def ready(self) -> None:
        """It has begun to work; a rolling restart waits for that."""
        self._say(_READY)

    def leave(self) -> None:
        """It ends because somebody wants this worker gone: no other one is to take its place."""
        self._say(_LEAVING)

    def _say(self, word: bytes) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):  # a supervisor that is gone does not care
                self._line.send(word)


def follow_supervisor(*, kernel_helps: bool = _LINUX) -> Upward:
    """In a child: its line to the supervisor.

    Where the kernel does not end the child when its supervisor is gone, a thread does, by SIGTERM. Without a
    supervisor nothing of this happens.
    """
    given = os.environ.pop(LINE_VARIABLE, None)
    if given is None:
        return Upward(None)
    line = socket.socket(fileno=int(given))
    line.set_inheritable(False)

    def follow() -> None:
        with contextlib.suppress(OSError):
            line.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    if not kernel_helps:
        threading.Thread(target=follow, name="dibs-supervisor-watch", daemon=True).start()
    return Upward(line)


class _Place:
    """One of the N places, and the child that fills it, if any."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at: float | None = 0.0
        """When the next child is due; None while there is one, or if there will be none."""
        self.line: socket.socket | None = None
        self.ready = False
        """Whether its child has said that it works."""
        self.worked = False
        """Whether any child here ever has."""
        self.left = False
        """Whether its child has said that it leaves for good."""
        self.deaths = 0
        self.replacing = False
        """Whether its child was told to end so that another can take its place."""

    def start(self, command: Sequence[str], fds: Sequence[int]) -> int:
        """Fill the place; answers the process id."""
        self.start_at, self.started_at, self.ready, self.left = None, time.monotonic(), False, False
        self.child, self.line = _spawn(command, self.number, fds)
        return self.child.pid

    def ended(self) -> int | None:
        """How the child ended, once; None if there is none or it runs."""
        if self.child is None or (status := self.child.poll()) is None:
            return None
        self.child = None
        self._hear()
        self.hang_up()
        return status

    def listen(self) -> None:
        """Hear whether the child works."""
        if not self.ready and self._hear() == b"":  # it has closed its end
            self.hang_up()

    def _hear(self) -> bytes | None:
        """What the child has said since; None for nothing."""
        if self.line is None:
            return None
        try:
            said = self.line.recv(16)
        except OSError:  # nothing yet, or it was killed
            return None
        self.ready = self.ready or _READY in said
        self.worked = self.worked or self.ready
        self.left = self.left or _LEAVING in said
        return said

    def hang_up(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None

    def tell(self, number: signal.Signals) -> None:
        if self.child is not None:
            self.child.send_signal(number)

    def kill(self) -> None:
        """Kill the child with what it started; its number is its own until it has been waited for."""
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)


class _Supervisor:
    def __init__(
        self, command: Sequence[str], count: int, finite: bool, pace: Pace, arrived: list[int], *, fds: Sequence[int]
    ) -> None:
        self._command = list(command)
        self._fds = fds
        self._finite = finite
        self._pace = pace
        self._arrived = arrived
        self._places = [_Place(number + 1) for number in range(count)]
        self._stopping = False
        self._told = False
        """Whether somebody told us to stop; the next who does means it."""
        self._code = 0
        self._rolling: list[_Place] = []
        """The places that a rolling restart has still to come to."""
        self._settling: _Place | None = None
        """The place that it is at."""
        self._terminal = _has_terminal()

    def run(self, wakeup: int) -> int:
        log.info("starting %d processes", len(self._places))
        try:
            while True:
                self._hear()
                self._reap()
                self._start_due()
                self._roll()
                if all(place.child is None and place.start_at is None for place in self._places):
                    break
                lines = [place.line for place in self._places if place.line is not None and not place.ready]
                _sleep(wakeup, lines, self._next_at())
        finally:
            self._kill()  # only after a fault of ours is one left
        log.info("all processes have ended")
        return self._code

    # --- signals --------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        while self._arrived:
            number = self._arrived.pop(0)
            name = signal.Signals(number).name
            hung_up = self._terminal and not _has_terminal()
            if number == signal.SIGHUP and not hung_up:
                if not self._stopping:
                    log.info("%s: restarting the processes, one after the other", name)
                    self._rolling = list(self._places)
            elif not self._told:
                self._told = True
                log.info("%s: stopping; the processes finish what they have begun", name)
                self._stop(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            else:
                log.warning("%s again: killing the processes", name)
                self._code = self._code or 128 + number
                self._kill()

    def _stop(self, number: signal.Signals) -> None:
        """Tell every child to end, once: the second time it would drop what it has begun."""
        if self._stopping:
            return
        self._stopping = True
        self._rolling, self._settling = [], None
        for place in self._places:
            place.start_at = None
            if not place.replacing:
                place.tell(number)

    def _kill(self) -> None:
        for place in self._places:
            place.kill()

    # --- children -------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        for place in self._places:
            if place.start_at is None or place.start_at > time.monotonic():
                continue
            try:
                log.info("process %d started (pid %d)", place.number, place.start(self._command, self._fds))
            except OSError as problem:
                self._try_again(place, f"before it began ({problem})")

    def _reap(self) -> None:
        for place in self._places:
            place.listen()
            if (status := place.ended()) is not None:
                self._ended(place, status)

    def _ended(self, place: _Place, status: int) -> None:
        how = _how(status)
        if self._stopping:
            log.info("process %d ended %s", place.number, how)
        elif place.replacing:
            log.info("process %d ended %s: a new one takes its place", place.number, how)
            place.replacing, place.deaths, place.start_at = False, 0, time.monotonic()
        elif place.left:
            log.info("process %d was asked to stop: its place stays empty until a SIGHUP", place.number)
        elif status == 0 and self._finite:
            log.info("process %d has done its work", place.number)
        elif status != CONFIGURATION_ERROR:
            self._try_again(place, how)
        elif place.worked and any(other.child for other in self._places):
            # The configuration was broken since: that must not take down those that work with the old one.
            place.deaths = 60
            self._try_again(place, "because it cannot work with its configuration")
        else:
            log.error("process %d cannot work with its configuration: stopping", place.number)
            self._code = CONFIGURATION_ERROR
            self._stop(signal.SIGTERM)

    def _try_again(self, place: _Place, how: str) -> None:
        healthy = time.monotonic() - place.started_at >= self._pace.healthy
        place.deaths = 1 if healthy else place.deaths + 1
        delay = self._pace.delay(place.deaths)
        place.start_at = time.monotonic() + delay
        log.warning("process %d ended %s: starting another in %g s", place.number, how, delay)
        if self._settling is place:
            log.warning("the rolling restart ends here: the new process did not stay")
            self._rolling, self._settling = [], None

    # --- rolling restart ------------------------------------------------------------------------------------

    def _roll(self) -> None:
        """Replace the next child of a rolling restart, if the one before it has settled in."""
        at = self._settling
        if at is not None:
            settled = at.ready or time.monotonic() >= at.started_at + self._pace.ready
            if at.replacing or at.child is None or not settled:
                return
            self._settling = None
            if not self._rolling:
                log.info("the processes have been restarted")
        if self._rolling:
            place = self._settling = self._rolling.pop(0)
            if place.child is None:
                place.start_at, place.deaths = time.monotonic(), 0
            else:
                place.replacing = True
                place.tell(signal.SIGTERM)

    def _next_at(self) -> float | None:
        """When there is something to do, unless a signal comes before."""
        moments = [place.start_at for place in self._places if place.start_at is not None]
        if self._settling is not None and self._settling.child is not None and not self._settling.replacing:
            moments.append(self._settling.started_at + self._pace.ready)
        return min(moments, default=None)


# --- the system ---------------------------------------------------------------------------------------------


def _spawn(command: Sequence[str], number: int, fds: Sequence[int]) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """A child, and our end of the line to it; see ``follow_supervisor``."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            child = subprocess.Popen(  # noqa: S603 - the command is our own
                command,
                env={**os.environ, NUMBER_VARIABLE: str(number), LINE_VARIABLE: str(theirs.fileno())},
                pass_fds=[theirs.fileno(), *fds],
                start_new_session=True,  # Ctrl-C reaches us, and through us each child once
                preexec_fn=_end_with(os.getpid()) if _LINUX else None,  # noqa: PLW1509 - safe: there is one thread
            )
        except OSError:
            ours.close()
            raise
    return child, ours


def _end_with(supervisor: int) -> Callable[[], None]:
    """The kernel sends the child a SIGTERM when the supervisor is gone; it survives the exec."""
    libc = ctypes.CDLL(None)

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != supervisor:  # it went before we asked
            os._exit(1)

    return in_child


@contextlib.contextmanager
def _signals() -> Iterator[tuple[int, list[int]]]:
    """A file that can be read when a signal came, and the list of those that came."""
    arrived: list[int] = []

    def keep(number: int, _: FrameType | None) -> None:
        arrived.append(number)

    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, keep) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield reader, arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(reader)
        os.close(writer)


def _sleep(wakeup: int, lines: Sequence[socket.socket], until: float | None) -> None:
    """Until a signal or a word of a child comes, or that moment."""
    span = None if until is None else max(until - time.monotonic(), 0.0)
    if wakeup in select.select([wakeup, *(line.fileno() for line in lines)], [], [], span)[0]:
        os.read(wakeup, 65536)


def _has_terminal() -> bool:
    """Whether there is a terminal that could hang up on us; a SIGHUP without one is an operator's."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _how(status: int) -> str:
    if status >= 0:
        return f"with code {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
