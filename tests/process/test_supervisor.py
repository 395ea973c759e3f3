"""The supervisor, run as the program that it is, over children that do what the test tells them."""

import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dibs.worker.supervisor import Pace, follow_supervisor
from tests.process.waiting import running, wait_until

ROOT = Path(__file__).parents[2]

SUPERVISOR = """
import logging, sys
from dibs.worker.supervisor import Pace, supervise
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stderr)
child, processes, finite, pace = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True", eval(sys.argv[4])
sys.exit(supervise([sys.executable, "-S", child], processes, finite=finite, pace=pace))
"""

# Writes a line for each thing that happens to it; does what the file "orders-NUMBER", or "orders", says when it starts.
CHILD = """
import os, signal, socket, sys
from pathlib import Path
folder, number = Path(__file__).parent, os.environ["DIBS_PROCESS"]

line = socket.socket(fileno=int(os.environ["DIBS_SUPERVISOR_FD"]))

def note(what):
    with open(folder / "events", "a") as events:
        events.write(f"{number} {what} {os.getpid()}\\n")

def ended(signum, frame):
    note(signal.Signals(signum).name)
    if orders != "stubborn":
        sys.exit(0)

orders = next((path.read_text() for path in (folder / f"orders-{number}", folder / "orders") if path.exists()), "")
signal.signal(signal.SIGTERM, ended)
signal.signal(signal.SIGINT, ended)
note("up")
if orders.startswith("exit"):
    sys.exit(int(orders.split()[1]))
if orders == "leave":
    line.send(b"!.")
    sys.exit(0)
if orders != "silent":
    line.send(b"!")
    note("works")
while True:
    signal.pause()
"""

QUICK = Pace(first=0.01, longest=0.04, ready=600)


class Supervised:
    """A running supervisor, and what is known of its children."""

    def __init__(self, folder: Path, processes: int = 2, *, finite: bool = False, pace: Pace = QUICK) -> None:
        self.folder = folder
        (folder / "child.py").write_text(CHILD)
        (folder / "events").touch()
        self._log = folder / "log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISOR, str(folder / "child.py"), str(processes), str(finite), repr(pace)],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                stderr=log,
                start_new_session=True,
            )

    def events(self, what: str, number: int | None = None) -> list[int]:
        """The process ids of those to whom it happened, in order."""
        lines = [line.split() for line in (self.folder / "events").read_text().splitlines()]
        return [int(pid) for of, event, pid in lines if event == what and number in (None, int(of))]

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_until(lambda: condition() or self.process.poll() is not None, f"\n{self.log()}")
        assert condition(), f"the supervisor ended:\n{self.log()}"

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(processes: int = 2, *, finite: bool = False, pace: Pace = QUICK) -> Supervised:
        started.append(Supervised(tmp_path, processes, finite=finite, pace=pace))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        pids = each.events("up")
        for pid in pids:
            if running(pid):  # stubborn ones; their supervisor told them to end
                os.kill(pid, signal.SIGKILL)


Start = Callable[..., Supervised]


def orders(folder: Path, text: str, number: int | None = None) -> None:
    (folder / ("orders" if number is None else f"orders-{number}")).write_text(text)


# --- start and stop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_is_passed_on_once_and_the_answer_is_0(start: Start, number: signal.Signals) -> None:
    supervised = start(3)
    supervised.wait_for(lambda: len(supervised.events("up")) == 3)
    supervised.send(number)
    assert supervised.end() == 0
    assert sorted(supervised.events(number.name)) == sorted(supervised.events("up"))
    assert [len(supervised.events("up", each)) for each in (1, 2, 3)] == [1, 1, 1], "each child has its number"
    assert "all processes have ended" in supervised.log()


def test_a_second_request_kills_those_that_are_still_there(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "stubborn", 1)
    supervised = start(2)
    supervised.wait_for(lambda: len(supervised.events("up")) == 2)
    supervised.send(signal.SIGTERM)
    supervised.wait_for(lambda: len(supervised.events("SIGTERM")) == 2)
    supervised.send(signal.SIGTERM)
    assert supervised.end() == 128 + signal.SIGTERM
    assert len(supervised.events("SIGTERM")) == 2, "the second one was not passed on"
    assert not any(running(pid) for pid in supervised.events("up"))


def test_children_that_have_done_their_work_are_not_started_again(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "exit 0")
    supervised = start(2, finite=True)
    assert supervised.end() == 0
    assert len(supervised.events("up")) == 2


def test_children_end_when_the_supervisor_is_killed(start: Start) -> None:
    supervised = start(2)
    supervised.wait_for(lambda: len(supervised.events("up")) == 2)
    supervised.process.kill()
    supervised.end()
    wait_until(lambda: not any(running(pid) for pid in supervised.events("up")))
    assert sorted(supervised.events("SIGTERM")) == sorted(supervised.events("up")), "they may finish what they began"


def test_a_child_ends_with_the_line_to_its_supervisor_where_the_kernel_does_not_help() -> None:
    program = "import signal; from dibs.worker.supervisor import follow_supervisor as follow; "
    program += "follow(kernel_helps=False).ready(); signal.pause()"
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "DIBS_SUPERVISOR_FD": str(theirs.fileno())}
    with ours, subprocess.Popen([sys.executable, "-c", program], env=environment, pass_fds=[theirs.fileno()]) as child:
        theirs.close()
        assert ours.recv(1) == b"!", "it says that it works"
        assert child.poll() is None
        ours.close()
        assert child.wait(30) == -signal.SIGTERM


def test_without_a_supervisor_there_is_nothing_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIBS_SUPERVISOR_FD", raising=False)
    before = set(threading.enumerate())
    alone = follow_supervisor(kernel_helps=False)
    alone.ready()
    alone.leave()
    assert set(threading.enumerate()) <= before


# --- asked to stop ------------------------------------------------------------------------------------------


def test_a_child_that_leaves_stays_away_until_a_rolling_restart(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "leave", 1)
    supervised = start(2)
    supervised.wait_for(lambda: "process 1 was asked to stop" in supervised.log() and supervised.events("works", 2))
    [second] = supervised.events("works", 2)
    os.kill(second, signal.SIGKILL)
    supervised.wait_for(lambda: len(supervised.events("works", 2)) == 2)  # long after the first would have come back
    assert len(supervised.events("up", 1)) == 1
    orders(tmp_path, "", 1)
    supervised.send(signal.SIGHUP)
    supervised.wait_for(lambda: len(supervised.events("works", 1)) == 1)


def test_a_supervisor_whose_children_have_all_left_ends_with_0(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "leave")
    supervised = start(2)
    assert supervised.end() == 0
    assert len(supervised.events("up")) == 2


# --- death --------------------------------------------------------------------------------------------------


def test_a_child_that_dies_is_replaced_and_the_others_stay(start: Start) -> None:
    supervised = start(2)
    supervised.wait_for(lambda: len(supervised.events("up")) == 2)
    [first], [second] = supervised.events("up", 1), supervised.events("up", 2)
    os.kill(first, signal.SIGKILL)
    supervised.wait_for(lambda: len(supervised.events("up", 1)) == 2)
    assert supervised.events("up", 2) == [second] and running(second)
    assert "process 1 ended by SIGKILL: starting another in 0.01 s" in supervised.log()


def test_a_child_that_keeps_dying_is_started_more_and_more_rarely(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "exit 1")
    supervised = start(1)
    supervised.wait_for(lambda: len(supervised.events("up")) >= 5)
    waits = [line.split()[-2] for line in supervised.log().splitlines() if "starting another in" in line]
    assert waits[:4] == ["0.01", "0.02", "0.04", "0.04"]


def test_a_child_that_lived_long_is_started_again_soon(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "exit 1")
    supervised = start(1, pace=Pace(first=0.01, longest=10, healthy=0))
    supervised.wait_for(lambda: len(supervised.events("up")) >= 4)
    assert "in 0.02 s" not in supervised.log()


def test_backoff_goes_from_one_second_to_thirty() -> None:
    assert [Pace().delay(deaths) for deaths in (1, 2, 3, 4, 5, 6, 7, 10_000)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_configuration_error_stops_all_and_is_passed_on(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "exit 78", 2)
    supervised = start(3)
    assert supervised.end() == 78
    assert len(supervised.events("up", 2)) == 1, "it was not tried again"
    assert not any(running(pid) for pid in supervised.events("up"))
    assert "process 2 cannot work with its configuration: stopping" in supervised.log()


def test_a_stop_is_heard_while_a_child_waits_for_its_next_start(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "exit 1")
    supervised = start(1, pace=Pace(first=600, longest=600))
    supervised.wait_for(lambda: "starting another in 600 s" in supervised.log())
    supervised.send(signal.SIGTERM)
    assert supervised.end() == 0


# --- rolling restart ----------------------------------------------------------------------------------------


def test_sighup_replaces_the_children_one_after_the_other(start: Start) -> None:
    supervised = start(3)
    supervised.wait_for(lambda: len(supervised.events("up")) == 3)
    supervised.send(signal.SIGHUP)
    supervised.wait_for(lambda: "the processes have been restarted" in supervised.log())
    events = [line.split()[:2] for line in (supervised.folder / "events").read_text().splitlines()]
    happened = [event for event in events if event[1] != "works"][3:]
    assert happened == [[number, what] for number in "123" for what in ("SIGTERM", "up")]
    assert supervised.process.poll() is None


def test_a_rolling_restart_does_not_wait_for_ever_for_a_child_to_say_that_it_works(
    start: Start, tmp_path: Path
) -> None:
    orders(tmp_path, "silent")
    supervised = start(2, pace=Pace(ready=0.01))
    supervised.wait_for(lambda: len(supervised.events("up")) == 2)
    supervised.send(signal.SIGHUP)
    supervised.wait_for(lambda: "the processes have been restarted" in supervised.log())


def test_a_rolling_restart_ends_at_a_child_that_does_not_stay(start: Start, tmp_path: Path) -> None:
    supervised = start(3)
    supervised.wait_for(lambda: len(supervised.events("works")) == 3)
    orders(tmp_path, "exit 78")
    supervised.send(signal.SIGHUP)
    supervised.wait_for(lambda: "the rolling restart ends here" in supervised.log())
    supervised.wait_for(lambda: len(supervised.events("up", 1)) >= 5)
    assert running(supervised.events("up", 2)[0]) and running(supervised.events("up", 3)[0])
    assert supervised.events("SIGTERM") == [supervised.events("up", 1)[0]]
    orders(tmp_path, "")
    supervised.send(signal.SIGHUP)
    supervised.wait_for(lambda: "the processes have been restarted" in supervised.log())


def test_a_child_that_is_being_replaced_is_not_told_to_end_twice(start: Start, tmp_path: Path) -> None:
    orders(tmp_path, "stubborn")
    supervised = start(2)
    supervised.wait_for(lambda: len(supervised.events("up")) == 2)
    supervised.send(signal.SIGHUP)
    supervised.wait_for(lambda: len(supervised.events("SIGTERM", 1)) == 1)
    supervised.send(signal.SIGTERM)
    supervised.wait_for(lambda: len(supervised.events("SIGTERM", 2)) == 1)
    supervised.send(signal.SIGTERM)
    assert supervised.end() == 128 + signal.SIGTERM
    assert len(supervised.events("SIGTERM", 1)) == 1


def test_a_terminal_that_is_closed_stops_the_processes(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "events").touch()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(ROOT / "src")
        os.execv(sys.executable, [sys.executable, "-c", SUPERVISOR, str(tmp_path / "child.py"), "1", "False", "None"])
    try:
        wait_until(lambda: "up" in (tmp_path / "events").read_text())
        os.close(terminal)  # hangs up
        wait_until(lambda: not running(pid))
    finally:
        os.kill(pid, signal.SIGKILL)  # nothing new to one that has ended: it waits for us
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0
    assert "SIGTERM" in (tmp_path / "events").read_text()
