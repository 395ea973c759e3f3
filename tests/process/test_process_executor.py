"""Handlers in processes of their own: what they are given, and what comes back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dibs.attempt import Attempt
from dibs.errors import Refused
from dibs.signals import Fail, Retry, Snooze
from dibs.task import Task
from dibs.telemetry import OpenTelemetry
from dibs.worker.processes import HandlerError, ProcessPool, caused_by
from tests.process import handlers
from tests.process.pools import NOW, attempt, clean_pool
from tests.process.waiting import running, until


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    async with clean_pool() as pool:
        yield pool


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


@pytest.mark.parametrize("task", [handlers.traced, handlers.traced_coroutine])
async def test_spans_of_a_handler_are_children_of_its_attempt_in_the_worker(
    pool: ProcessPool, task: Task[..., Any]
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    traces, one = OpenTelemetry(provider), attempt(task)
    seen = await traces.attempt(one, lambda: pool.run(task, one, None))
    [span] = spans.get_finished_spans()
    assert seen == [str(span.context.trace_id), str(span.context.span_id)]
    assert await pool.run(task, attempt(task), None) == ["0", "0"], "the next call has nothing of it"


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
