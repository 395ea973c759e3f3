"""Callers without an event loop: the same verbs, also after a fork, at an interrupt and at the end of the program.

Each program runs in a process of its own, with every warning an error.
"""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest

from dibs import App, Refused
from dibs.background import Background
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory

STORES = ["sqlite", *POSTGRES_LABELS[-1:], *REDIS_LABELS[-1:]]

PROGRAM = """
import asyncio, os, sys, threading, time
import dibs

app = dibs.App(sys.argv[1])

@app.task
def note(n: int) -> int:
    return n

def count():
    [queue] = app.sync(counts())
    return queue.states[dibs.State.QUEUED]

async def counts():
    return await (await app.store()).counts()
"""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    kind = "migrated" if request.param in POSTGRES_LABELS else "redis"
    create: DatabaseFactory = request.getfixturevalue(f"{kind}_database")
    return create(request.param)


def run(code: str, *arguments: str) -> str:
    """What the program prints; fails if it ends badly, hangs or warns."""
    # From Python 3.12 on, a fork beside threads is warned of: that it works all the same is what is tested here.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, "-c", PROGRAM + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# --- in a program of its own ----------------------------------------------------------------------


def test_a_program_enqueues_and_ends_without_closing_anything(url: str) -> None:
    assert run("for n in range(5): app.sync(note.enqueue(n))", url) == ""
    assert run("print(count())", url) == "5"


def test_parent_and_child_of_a_fork_both_go_on(url: str) -> None:
    code = """
app.sync(note.enqueue(0))
child = os.fork()
for n in range(5):
    app.sync(note.enqueue(n))
if child:
    assert os.waitpid(child, 0)[1] == 0
    app.sync(note.enqueue(9))
    print(count())
"""
    assert run(code, url) == "12"


def test_a_child_forked_inside_a_call_has_a_background_of_its_own(url: str) -> None:
    code = """
app.sync(note.enqueue(0))
threads = [threading.Thread(target=lambda: [app.sync(note.enqueue(n)) for n in range(50)]) for _ in range(4)]
for thread in threads: thread.start()
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        app.sync(note.enqueue(0))
        os._exit(0)
    children.append(child)
for thread in threads: thread.join()
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
print(count())
"""
    assert run(code, url) == "204"


def test_loops_that_come_and_go_leave_nothing_behind(url: str) -> None:
    code = """
async def some(n):
    for each in range(n):
        await note.enqueue(each)

for n in range(1, 4):
    asyncio.run(some(n))
assert not app._opened._places, app._opened._places
print(count())
"""
    assert run(code, url) == "6"


def test_a_loop_that_was_closed_without_a_word_is_forgotten(url: str) -> None:
    code = """
for n in range(3):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(note.enqueue(n))
    loop.close()
print(count())
assert len(app._opened._places) == 1
"""
    warnings_of_drivers = "import warnings; warnings.simplefilter('ignore', ResourceWarning)\n"
    assert run(warnings_of_drivers + code, url) == "3"


def test_the_end_of_a_program_does_not_wait_for_what_still_waits(url: str) -> None:
    code = """
handle = app.sync(note.enqueue(1))
def wait():
    try:
        app.sync(handle.result())
    except BaseException:
        pass
threading.Thread(target=wait, daemon=True).start()
print("end")
"""
    assert run(code, url) == "end"


def test_ctrl_c_interrupts_the_caller_and_what_it_waits_for(tmp_path: Path) -> None:
    code = """
handle = app.sync(note.enqueue(1))
cancelled = threading.Event()
async def result():
    print("waiting", flush=True)
    try:
        return await handle.result()
    except asyncio.CancelledError:
        cancelled.set()
        raise
try:
    app.sync(result())
except KeyboardInterrupt:
    print(cancelled.wait(10), count())
"""
    command = [sys.executable, "-W", "error", "-c", PROGRAM + code, f"sqlite:///{tmp_path}/jobs.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        try:
            out, problems = program.communicate(timeout=60)
        finally:
            program.kill()
    assert (out, problems, program.returncode) == ("True 1\n", "", 0)


# --- in this process ------------------------------------------------------------------------------


@pytest.fixture
def app() -> App:
    return App("memory://")


def test_any_awaitable_will_do(app: App) -> None:
    @app.task
    def note(n: int) -> None: ...

    assert app.sync(note.enqueue_many((n,) for n in range(3))) == 3
    handle = app.sync(note.enqueue(1))
    assert app.sync(handle.cancel())
    assert app.sync(app.get(handle.id)) == app.sync(handle.job())


def test_what_goes_wrong_reaches_the_caller(app: App) -> None:
    @app.task
    def note(n: int) -> None: ...

    with pytest.raises(Refused, match="note: n: expected int, got str"):
        app.sync(note.enqueue("x"))  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="is still queued"):
        app.sync(app.sync(note.enqueue(1)).result(timeout=0))


async def test_where_a_loop_runs_the_caller_is_told_to_await(app: App) -> None:
    @app.task
    def note(n: int) -> None: ...

    with pytest.raises(RuntimeError, match="write await … instead"):
        app.sync(note.enqueue(1))


async def test_a_thread_beside_a_running_loop_may_wait(app: App) -> None:
    @app.task
    def note(n: int) -> None: ...

    handle = await asyncio.to_thread(app.sync, note.enqueue(1))
    assert await handle.job() is not None  # one store in memory for all loops of the process


def test_the_callers_context_comes_along(app: App) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")
    tenant.set("shop")

    async def look() -> str:
        return tenant.get()

    assert app.sync(look()) == "shop"


def test_there_is_one_background_thread_and_it_keeps_no_process_alive(app: App) -> None:
    for each in (app, App("memory://")):
        each.sync(each.store())
    [thread] = [each for each in threading.enumerate() if each.name == "dibs-sync"]
    assert thread.daemon


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


def test_a_background_that_closes_cancels_what_it_runs_and_wakes_who_waits(background: Background) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = threading.Thread(target=_swallow(background.run), args=(for_ever(),))
    waiting.start()
    assert begun.wait(10)
    background.close()
    waiting.join(10)
    assert ended.is_set() and not waiting.is_alive()


def _swallow(call: Callable[[Awaitable[None]], None]) -> Callable[[Awaitable[None]], None]:
    def swallowing(awaitable: Awaitable[None]) -> None:
        with pytest.raises(BaseException):  # noqa: B017, PT011
            call(awaitable)

    return swallowing
