"""How handlers in processes of their own end: real deaths, real kills, functions that are not there."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from dibs.app import App
from dibs.errors import ConfigurationError
from dibs.job import State
from dibs.task import Task
from dibs.worker.processes import HandlerError, ProcessDied, ProcessPool
from tests.process import handlers
from tests.process.pools import attempt, clean_pool
from tests.process.waiting import complete, numbers, running, until


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    async with clean_pool() as pool:
        yield pool


# --- death --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", "exited with code 7"),
        ("segfault", "ended by SIGSEGV"),
        ("SIGKILL", "ended by SIGKILL; a kill that nobody sent is often a lack of memory"),
        ("SIGTERM", "ended by SIGTERM"),
    ],
)
async def test_a_child_that_dies_ends_its_attempt_only(pool: ProcessPool, tmp_path: Path, how: str, said: str) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    other = asyncio.create_task(pool.run(handlers.pid_through, attempt(handlers.pid_through, gate=str(gate)), None))
    dying = await pool.run(handlers.pid, attempt(handlers.pid), None)
    with pytest.raises(ProcessDied, match=said):
        await pool.run(handlers.dies, attempt(handlers.dies, how=how), None)
    assert not running(dying)
    assert await pool.run(handlers.pid, attempt(handlers.pid), None) != dying
    assert int(await asyncio.to_thread(gate.read_text)) == await other


async def test_what_a_crashed_handler_had_started_ends_with_it(pool: ProcessPool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with pytest.raises(ProcessDied, match="code 9"):
        await pool.run(handlers.leaves_company, attempt(handlers.leaves_company, note=str(note)), None)
    await until(lambda: not any(running(pid) for pid in numbers(note)))


async def test_an_idle_child_that_was_killed_costs_nobody_an_attempt(pool: ProcessPool) -> None:
    for _ in range(10):
        idle = await pool.run(handlers.pid, attempt(handlers.pid), None)
        os.kill(idle, signal.SIGKILL)
        assert await pool.run(handlers.pid, attempt(handlers.pid), None) != idle


async def test_a_handler_that_cuts_the_line_ends_with_its_process(pool: ProcessPool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with pytest.raises(ProcessDied):
        await pool.run(handlers.closes_every_file, attempt(handlers.closes_every_file, note=str(note)), None)
    assert not running(numbers(note)[0])


# --- being stopped ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [handlers.waits_with_company, handlers.waits_async], ids=["plain", "async"])
async def test_a_call_that_is_cancelled_cleans_up_and_is_gone_with_all_it_started(
    pool: ProcessPool, tmp_path: Path, task: Task[..., Any]
) -> None:
    note = tmp_path / "note"
    call = asyncio.create_task(pool.run(task, attempt(task, note=str(note)), None))
    await until(lambda: complete(note))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    child, *company = numbers(note)
    assert not running(child), "it must be gone before anybody can think so"
    await until(lambda: not any(running(pid) for pid in company))
    assert note.with_suffix(".cleaned").exists()
    assert await pool.run(handlers.pid, attempt(handlers.pid), None) != child


async def test_a_call_that_takes_too_long_is_gone_when_the_timeout_is_raised(pool: ProcessPool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    warm = await pool.run(handlers.pid, attempt(handlers.pid), None)
    task = handlers.waits_with_company
    with pytest.raises(TimeoutError, match="the handler took longer than 1 s"):
        await pool.run(task, attempt(task, note=str(note)), 1)
    assert not running(warm)
    child, company = numbers(note)
    assert child == warm
    await until(lambda: not running(company))


@pytest.mark.parametrize("task", [handlers.ignores_signals, handlers.holds_the_gil], ids=["ignores", "gil"])
async def test_a_handler_that_does_not_listen_is_killed_however_often_the_call_is_cancelled(
    pool: ProcessPool, tmp_path: Path, task: Task[..., Any]
) -> None:
    note = tmp_path / "note"
    call = asyncio.create_task(pool.run(task, attempt(task, note=str(note)), None))
    await until(lambda: complete(note))
    child = numbers(note)[0]
    asked = 0
    while not call.done():
        assert call.cancel(), "it may end only once the child is gone"
        asked += 1
        await asyncio.sleep(0)
    assert not running(child)
    assert call.cancelled()
    assert asked > 1


async def test_a_handler_that_holds_the_gil_does_not_hold_up_the_others(pool: ProcessPool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    task = handlers.holds_the_gil
    holding = asyncio.create_task(pool.run(task, attempt(task, note=str(note)), None))
    await until(lambda: complete(note))
    assert await pool.run(handlers.pid, attempt(handlers.pid), None) != numbers(note)[0]
    assert not holding.done()
    holding.cancel()
    await asyncio.wait([holding])


async def test_close_lets_idle_children_end_as_programs_do_and_kills_the_others(tmp_path: Path) -> None:
    pool = ProcessPool(2)
    left, note = tmp_path / "left", tmp_path / "note"
    busy = asyncio.create_task(
        pool.run(handlers.ignores_signals, attempt(handlers.ignores_signals, note=str(note)), None)
    )
    await until(lambda: complete(note))
    await pool.run(handlers.leaves_a_note, attempt(handlers.leaves_a_note, path=str(left)), None)
    await pool.close()
    assert left.read_text() == "left"
    assert not running(numbers(note)[0])
    with pytest.raises(ProcessDied):
        await busy
    with pytest.raises(ConfigurationError, match="closed"):
        await pool.run(handlers.pid, attempt(handlers.pid), None)


# --- functions that cannot be found -------------------------------------------------------------------------


async def test_a_function_that_is_another_by_now_is_refused_and_not_mistaken(pool: ProcessPool) -> None:
    task = handlers.first_shadowed
    with pytest.raises(ConfigurationError, match="something else by now; define it at the top level") as caught:
        await pool.run(task, attempt(task), None)
    assert "\n" not in str(caught.value)


async def test_a_module_that_a_child_cannot_import_is_an_error_that_says_so(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("made_up_here")
    exec("def f() -> int:\n    return 1\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_up_here", module)
    task = handlers.process()(module.f)
    with pytest.raises(ConfigurationError, match=r"could not import made_up_here\.f \(ModuleNotFoundError") as caught:
        await pool.run(task, attempt(task), None)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, HandlerError)
    assert "ModuleNotFoundError" in caught.value.__cause__.traceback
    assert await pool.run(handlers.pid, attempt(handlers.pid), None)


async def test_the_job_of_such_a_function_fails_with_what_its_import_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_up_here")
    exec("def f() -> int:\n    return 1\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_up_here", module)
    async with App("memory://") as app:
        sent = await app.task(executor="process")(module.f).enqueue()
        await app.drain()
        job = await sent.job()
    assert job is not None and job.state is State.FAILED
    [error] = job.errors
    assert "could not import made_up_here.f" in error.error
    assert "ModuleNotFoundError: No module named 'made_up_here'" in error.traceback
