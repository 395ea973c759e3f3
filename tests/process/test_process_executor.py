"""Handlers in processes of their own: on real processes, with real deaths."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from dibs.app import App
from dibs.attempt import Attempt
from dibs.errors import ConfigurationError, Refused
from dibs.ids import new_id
from dibs.job import Claim, State
from dibs.signals import Fail, Retry, Snooze
from dibs.task import Task
from dibs.worker.processes import HandlerError, ProcessDied, ProcessPool, caused_by
from tests.process import handlers
from tests.process.waiting import children, complete, numbers, running, until, wait_until

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


def attempt(task: Task[..., Any], **args: Any) -> Attempt:
    claim = Claim(
        new_id(), 7, "worker-1", "mail", task.name, args, 0, NOW, NOW, 2, 5, NOW, key="k", meta={"tenant": "böse"}
    )
    return Attempt(claim)


def belongings() -> tuple[set[int], int, int]:
    """The processes, threads and files that a pool could leave behind."""
    threads = sum(thread.name.startswith("dibs-child") for thread in threading.enumerate())
    return children(), threads, len(os.listdir("/proc/self/fd"))


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    """A pool of two; when it is closed, no process, thread or file of it is left."""
    before = belongings()
    pool = ProcessPool(2, patience=1)
    yield pool
    await pool.close()
    await until(lambda: belongings() == before, f"for {before} again")


# --- running ------------------------------------------------------------------------------------------------


async def test_a_handler_runs_in_another_process_that_is_kept_for_the_next(pool: ProcessPool) -> None:
    first = await pool.run(handlers.pid, attempt(handlers.pid), None)
    assert first != os.getpid()
    assert await pool.run(handlers.pid, attempt(handlers.pid), None) == first


async def test_as_many_processes_as_the_pool_is_large_run_at_once_and_a_call_too_many_waits(
    pool: ProcessPool, tmp_path: Path
) -> None:
    gates = [tmp_path / name for name in "abc"]
    for gate in gates:
        os.mkfifo(gate)
    calls = [
        asyncio.create_task(pool.run(handlers.pid_through, attempt(handlers.pid_through, gate=str(gate)), None))
        for gate in gates
    ]
    # A FIFO can be opened for writing without waiting only if somebody has it open; so open them for reading.
    first, second = [await asyncio.to_thread(gate.read_text) for gate in gates[:2]]
    third = await asyncio.to_thread(gates[2].read_text)
    assert first != second
    assert third in (first, second)
    assert await asyncio.gather(*calls) == [int(first), int(second), int(third)]


async def test_async_handlers_share_one_loop_of_the_child(pool: ProcessPool) -> None:
    first = await pool.run(handlers.loop_and_pid, attempt(handlers.loop_and_pid), None)
    assert await pool.run(handlers.loop_and_pid, attempt(handlers.loop_and_pid), None) == first


async def test_arguments_arrive_as_their_types_and_the_result_comes_back_as_json(pool: ProcessPool) -> None:
    task = handlers.next_day
    stored = task.signature.pack((handlers.Order(3, NOW), 1, 2), {"colour": "red"})
    result = await pool.run(task, attempt(task, **stored), None)
    assert result == ["Order", {"number": 3, "at": "2030-01-02T03:04:05Z"}, [1, 2], {"colour": "red"}]
    assert task.signature.unpack_result(result)[1] == handlers.Order(3, NOW)


async def test_a_child_is_replaced_after_so_many_calls() -> None:
    pool = ProcessPool(1, recycle=2)
    try:
        pids = [await pool.run(handlers.pid, attempt(handlers.pid), None) for _ in range(5)]
    finally:
        await pool.close()
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_a_static_method_of_a_class_can_be_a_handler(pool: ProcessPool) -> None:
    assert await pool.run(handlers.sell, attempt(handlers.sell), None) != os.getpid()


async def test_modules_that_only_the_import_path_of_this_process_leads_to_are_found(
    pool: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("import os\ndef where() -> int:\n    return os.getpid()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    task: Task[..., Any] = handlers.process()(only_here.where)
    assert await pool.run(task, attempt(task), None) != os.getpid()


async def test_what_a_handler_printed_is_there_when_its_result_is(
    pool: ProcessPool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    child = await pool.run(handlers.pid, attempt(handlers.pid), None)
    await pool.run(handlers.prints, attempt(handlers.prints, text="said"), None)
    os.kill(child, signal.SIGKILL)
    await until(lambda: not running(child))
    assert capfd.readouterr() == ("said\n", "SAID\n")


# --- the attempt --------------------------------------------------------------------------------------------


async def test_current_tells_the_child_all_about_its_job(pool: ProcessPool) -> None:
    mine = attempt(handlers.about_me)
    assert await pool.run(handlers.about_me, mine, None) == {
        "id": str(mine.id),
        "task": "about_me",
        "queue": "mail",
        "key": "k",
        "meta": {"tenant": "böse"},
        "attempt": 2,
        "max_attempts": 5,
        "epoch": 7,
        "worker": "worker-1",
        "locked_until": NOW.isoformat(),
        "cancelled": False,
    }


async def test_current_works_in_a_coroutine_too(pool: ProcessPool) -> None:
    mine = attempt(handlers.about_me_async)
    assert await pool.run(handlers.about_me_async, mine, None) == str(mine.id)


async def test_progress_and_log_reach_the_worker_while_the_handler_runs(pool: ProcessPool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    mine = attempt(handlers.says, gate=str(gate))
    call = asyncio.create_task(pool.run(handlers.says, mine, None))
    await until(lambda: mine.report.log)
    assert not call.done()
    assert (mine.report.progress, mine.report.note) == (0.25, "a quarter")
    assert [(line.attempt, line.text) for line in mine.report.log] == [(2, "a line with \ufffd and \ufffd")]
    await asyncio.to_thread(gate.write_text, "go on")
    assert await call is None


async def test_what_a_thread_says_after_its_handler_has_returned_is_not_taken_for_the_next_one_s(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = ProcessPool(1)
    before, after = (attempt(task, gate=str(gate)) for task in (handlers.leaves_a_talker, handlers.waits_for_talker))
    try:
        await pool.run(handlers.leaves_a_talker, before, None)
        await pool.run(handlers.waits_for_talker, after, None)
        await pool.run(handlers.pid, last := attempt(handlers.pid), None)
    finally:
        await pool.close()
    assert [each.report.log for each in (before, after, last)] == [(), (), ()]


async def test_what_heartbeats_learn_reaches_the_handler(pool: ProcessPool) -> None:
    later = NOW + timedelta(hours=1)
    mine = attempt(handlers.hears, until=later.isoformat())
    call = asyncio.create_task(pool.run(handlers.hears, mine, None))
    mine.locked_until, mine.cancelled = later, True
    assert await call is True


# --- what is raised -----------------------------------------------------------------------------------------


async def test_signals_arrive_as_themselves(pool: ProcessPool) -> None:
    async def raised(what: str) -> Any:
        with pytest.raises((Retry, Fail, Snooze)) as caught:
            await pool.run(handlers.raises, attempt(handlers.raises, what=what), None)
        return caught.value

    retry = await raised("retry")
    assert (type(retry), retry.delay, retry.reason) == (Retry, timedelta(seconds=12.5), "not yet")
    assert (await raised("retry-by-policy")).delay is None
    fail = await raised("fail")
    assert (type(fail), fail.reason) == (Fail, "never")
    snooze = await raised("snooze")
    assert (type(snooze), snooze.delay) == (Snooze, timedelta(seconds=3))


async def test_an_error_brings_its_type_message_and_traceback_and_can_be_judged_by_class(pool: ProcessPool) -> None:
    with pytest.raises(HandlerError) as caught:
        await pool.run(handlers.raises, attempt(handlers.raises, what="broken"), None)
    error = caught.value
    assert error.type == "tests.process.handlers.VeryBroken"
    assert error.message == "pieces \ufffd"
    assert str(error) == "VeryBroken: pieces \ufffd"
    assert "in raises" in error.traceback and "VeryBroken" in error.traceback.splitlines()[-1]
    assert caused_by(error, (handlers.VeryBroken,))
    assert caused_by(error, (ValueError, handlers.Broken))
    assert caused_by(error, (Exception,))
    assert not caused_by(error, (ValueError, KeyError))


@pytest.mark.parametrize("task", [handlers.raises, handlers.raises_async], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("system-exit", SystemExit),
        ("keyboard-interrupt", KeyboardInterrupt),
        ("recursion", RecursionError),
        ("memory", MemoryError),
        ("cancelled", asyncio.CancelledError),
        ("generator-exit", GeneratorExit),
    ],
)
async def test_what_would_end_a_program_ends_only_the_attempt(
    pool: ProcessPool, task: Task[..., Any], what: str, kind: type[BaseException]
) -> None:
    before = await pool.run(handlers.pid, attempt(handlers.pid), None)
    with pytest.raises(HandlerError) as caught:
        await pool.run(task, attempt(task, what=what), None)
    assert caused_by(caught.value, (kind,))
    assert await pool.run(handlers.pid, attempt(handlers.pid), None) == before


@pytest.mark.parametrize("what", ["object", "nan", "deep", "huge", "surrogate"])
async def test_a_result_that_cannot_be_stored_is_refused(pool: ProcessPool, what: str) -> None:
    with pytest.raises(Refused, match="result"):
        await pool.run(handlers.returns, attempt(handlers.returns, what=what), None)


async def test_arguments_that_do_not_fit_the_function_any_more_are_refused(pool: ProcessPool) -> None:
    with pytest.raises(Refused, match="the arguments do not fit the task: raises: "):
        await pool.run(handlers.raises, attempt(handlers.raises, colour="red"), None)


# --- batches ------------------------------------------------------------------------------------------------


def batch(task: Task[..., Any], *items: int) -> Attempt:
    attempts = tuple(attempt(task, numbers=item) for item in items)
    for each in attempts:
        each.batch = attempts
    return attempts[0]


async def test_a_batch_gives_each_of_its_jobs_its_own_end(pool: ProcessPool) -> None:
    mine = batch(handlers.halves, 4, 5, 6, 7)
    value, retry, broken, refused = await pool.run(handlers.halves, mine, None)
    assert value == 2.0
    assert isinstance(retry, Retry) and retry.delay == timedelta(seconds=5)
    assert isinstance(broken, HandlerError) and caused_by(broken, (handlers.Broken,))
    assert isinstance(refused, Refused)
    assert [each.report.progress for each in mine.batch] == [0.4, 0.5, 0.6, 0.7]


async def test_a_batch_that_returns_nothing_has_succeeded_for_all(pool: ProcessPool) -> None:
    assert await pool.run(handlers.halves_nothing, batch(handlers.halves_nothing, 1, 2), None) == [None, None]


async def test_a_batch_that_returns_too_few_results_is_refused(pool: ProcessPool) -> None:
    with pytest.raises(Refused, match="a list of 2 results, not 1"):
        await pool.run(handlers.halves_too_few, batch(handlers.halves_too_few, 1, 2), None)


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


# --- whole programs -----------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from dibs.worker.processes import ProcessPool
from tests.process import handlers
from tests.process.test_process_executor import attempt

with open("started", "a") as started:
    started.write(__name__ + chr(10))

class Mine(Exception):
    pass

@handlers.process()
def mine(number: int) -> int:
    print("in", os.getpid(), flush=True)
    if number < 0:
        raise Mine(number)
    return number + 1

async def main() -> None:
    from dibs.worker.processes import caused_by
    pool = ProcessPool(2)
    try:
        print(await pool.run(mine, attempt(mine, number=41), None))
        await pool.run(handlers.prints, attempt(handlers.prints, text="said"), None)
        try:
            await pool.run(mine, attempt(mine, number=-1), None)
        except Exception as error:
            print(error, caused_by(error, (Mine,)))
    finally:
        await pool.close()

START
"""
GUARDED = 'if __name__ == "__main__":\n    asyncio.run(main())'


def program(folder: Path, *arguments: str, start: str = GUARDED) -> "subprocess.CompletedProcess[str]":
    (folder / "own").mkdir()
    (folder / "own" / "__init__.py").touch()
    (folder / "own" / "script.py").write_text(PROGRAM.replace("START", start))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", [["own/script.py"], ["-m", "own.script"]], ids=["path", "module"])
def test_functions_of_the_script_itself_run_and_what_it_guards_starts_once(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = program(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1] == "42", "what a child prints goes where its worker prints"
    assert "said" in lines and done.stderr == "SAID\n"
    assert lines[-1] == "Mine: -1 True"
    assert (tmp_path / "started").read_text().split() == ["__main__", "__dibs_main__"]


def test_a_script_without_a_guard_is_told_so_and_starts_no_second_worker(tmp_path: Path) -> None:
    done = program(tmp_path, "own/script.py", start="asyncio.run(main())")
    assert done.returncode != 0
    assert 'put the start under if __name__ == "__main__":' in done.stderr
    assert (tmp_path / "started").read_text().split() == ["__main__", "__dibs_main__"]


def test_such_a_script_does_not_get_to_make_a_worker_in_a_child(tmp_path: Path) -> None:
    start = """
from dibs.task import Tasks
from dibs.worker import Worker
Worker(Tasks(), lambda: None)
print("a worker in", __name__)
asyncio.run(main())
"""
    done = program(tmp_path, "own/script.py", start=start)
    assert 'put the start under if __name__ == "__main__":' in done.stderr
    assert done.stdout.splitlines() == ["a worker in __main__"]


def test_it_works_on_uvloop(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    done = program(
        tmp_path, "own/script.py", start='if __name__ == "__main__":\n    import uvloop\n    uvloop.run(main())'
    )
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout.splitlines()


WORKER = """
import asyncio, os, signal, sys
from dibs.worker.processes import ProcessPool
from tests.process import handlers
from tests.process.test_process_executor import attempt

async def main() -> None:
    pool = ProcessPool(2)
    if sys.argv[3] == "guard-killed":
        await pool.run(handlers.pid, attempt(handlers.pid), None)
        os.kill(pool._guard._process.pid, signal.SIGKILL)
        pool._guard._process.wait()
        await asyncio.gather(run(pool, sys.argv[2] + ".0"), run(pool, sys.argv[2]))
    if sys.argv[3] == "forked":
        await pool.run(handlers.pid, attempt(handlers.pid), None)
        if os.fork() == 0:
            signal.pause()  # it keeps every file of its parent open
    await run(pool, sys.argv[2])

async def run(pool, note):
    task = getattr(handlers, sys.argv[1])
    await pool.run(task, attempt(task, note=note), None)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("task", "circumstance"),
    [
        ("waits_with_company", "plain"),
        ("waits_async", "plain"),
        ("ignores_signals", "plain"),
        ("holds_the_gil", "plain"),
        ("holds_the_gil", "forked"),
        ("holds_the_gil", "guard-killed"),
    ],
)
def test_when_the_worker_is_killed_its_children_end_with_all_they_started(
    tmp_path: Path, task: str, circumstance: str
) -> None:
    note = tmp_path / "note"
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, task, str(note), circumstance],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        start_new_session=True,
    )
    try:
        wait_until(lambda: complete(note) or worker.poll() is not None)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        wait_until(lambda: not any(running(pid) for pid in numbers(note)), "for the children to end")
    finally:
        os.killpg(worker.pid, signal.SIGKILL) if circumstance == "forked" else worker.kill()
        worker.wait()


def test_the_program_of_the_guide_works(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/processes.md").read_text()
    (tmp_path / "guide.py").write_text(guide.split("```py\n")[1].split("```")[0])
    done = subprocess.run(
        [sys.executable, "-W", "error", "guide.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 128
