"""The app: which store it uses, one handle per loop, sending by name, draining."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import dibs
from dibs import App, Attempt, Fail, Refused, Retry, State, current, new_id
from dibs.draining import Drained
from dibs.errors import ConfigurationError, StoreUnavailable
from dibs.outcome import Outcome, Succeeded
from dibs.store import Store
from dibs.stores.memory import MemoryStore
from dibs.stores.sqlite import SQLiteStore
from dibs.testing.clock import FakeClock
from dibs.transaction import enqueue_in

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture
def on_file(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/jobs.db")


# --- which store ----------------------------------------------------------------------------------


def test_the_url_is_the_one_given_or_that_of_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIBS_URL", raising=False)
    assert App().url == "sqlite:///jobs.db"
    monkeypatch.setenv("DIBS_URL", "memory://")
    assert App().url == "memory://"
    assert App("sqlite:///shop.db").url == "sqlite:///shop.db"


async def test_another_url_counts_if_it_is_set_before_the_first_use(tmp_path: Path) -> None:
    app = App("memory://")
    app.url = f"sqlite:///{tmp_path}/jobs.db"
    async with app:
        assert isinstance(await app.store(), SQLiteStore)
    app.url = "memory://"
    assert isinstance(await app.store(), MemoryStore)
    with pytest.raises(ConfigurationError, match="no store is called"):
        app.url = "mysql://localhost"


def test_making_an_app_connects_to_nothing(tmp_path: Path) -> None:
    App(f"sqlite:///{tmp_path}/jobs.db")
    App("postgresql://nobody@127.0.0.1:1/nowhere")
    App("redis://127.0.0.1:1/0")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_of_store_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(ConfigurationError, match="no store is called 'mysql'"):
        App("mysql://localhost/jobs")


async def test_a_store_given_as_an_object_is_used_as_it_is() -> None:
    class Watched(MemoryStore):
        touched = False

        async def setup(self) -> None:
            self.touched = True

        close = setup

    store = Watched()
    async with App(store=store) as app:
        assert await app.store() is store
        assert app.open_store() is store
    assert not store.touched


async def test_the_clock_of_an_app_is_the_clock_of_a_store_that_has_none_of_its_own(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/jobs.db"):
        async with App(url, clock=FakeClock(NOON)) as app:
            job = await (await app.send("anything", delay=60)).job()
        assert job is not None
        assert (job.created_at, job.run_at) == (NOON, NOON + timedelta(minutes=1))


# --- one handle per loop --------------------------------------------------------------------------


async def test_a_loop_has_one_handle_however_many_ask_at_once(on_file: App) -> None:
    async with on_file as app:
        first, *others = await asyncio.gather(*(app.store() for _ in range(20)))
        assert all(other is first for other in others)


async def test_a_closed_app_opens_again(on_file: App) -> None:
    async with on_file as app:
        first = await app.store()
        handle = await app.send("anything")
    with pytest.raises(StoreUnavailable):
        await first.get(handle.id)
    async with on_file as app:
        assert await app.store() is not first
        assert await app.get(handle.id) is not None


async def test_another_loop_has_another_handle_and_ends_its_own_only(on_file: App) -> None:
    async with on_file as app:
        here = await app.store()
        there = await asyncio.to_thread(asyncio.run, app.store())
        assert there is not here
        with pytest.raises(StoreUnavailable):  # its loop ended, and it was closed there
            await there.get(new_id())
        assert await here.get(new_id()) is None


async def test_a_store_in_memory_is_the_same_for_all_loops(app: App) -> None:
    there = await asyncio.to_thread(asyncio.run, app.store())
    assert there is await app.store()


async def test_an_app_that_cannot_open_its_store_says_so_and_tries_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    app = App(f"sqlite:///{folder}/jobs.db")
    with pytest.raises(dibs.DibsError):
        await app.store()
    folder.mkdir()
    async with app:
        assert isinstance(await app.store(), SQLiteStore)


# --- sending and looking --------------------------------------------------------------------------


async def test_sending_by_name_reaches_tasks_that_another_program_has(app: App) -> None:
    handle = await app.send("elsewhere", {"a": 1}, queue="other", priority=3, key="{k}", meta={"x": 1})
    job = await app.get(str(handle.id))
    assert job is not None
    assert (job.task, job.args, job.queue, job.priority) == ("elsewhere", {"a": 1}, "other", 3)
    assert (job.key, job.meta) == ("{k}", {"x": 1})


async def test_sending_by_name_checks_the_arguments_of_a_task_that_is_known(app: App) -> None:
    @app.task(queue="mail")
    def send(to: str) -> None: ...

    job = await (await app.send("send", {"to": "ada"}, priority=2)).job()
    assert job is not None and (job.queue, job.priority) == ("mail", 2)
    with pytest.raises(Refused, match="send: to: expected str, got int"):
        await app.send("send", {"to": 5})


async def test_jobs_of_several_tasks_go_in_together_or_not_at_all(app: App) -> None:
    @app.task
    def pack(order: int) -> None: ...

    @app.task(queue="mail")
    def tell(order: int, text: str) -> None: ...

    sent = await app.enqueue([pack.job(1), tell.job(1, "soon")])
    assert [each.created for each in sent] == [True, True]
    with pytest.raises(Refused):
        await app.enqueue([pack.job(2), tell.job(2, "\0")])
    counts = {each.queue: each.states[State.QUEUED] for each in await (await app.store()).counts()}
    assert counts == {"default": 1, "mail": 1}


async def test_a_job_id_that_is_none_is_refused(app: App) -> None:
    with pytest.raises(Refused, match="'42' is no job id"):
        await app.get("42")
    assert await app.get(new_id()) is None


async def test_a_job_of_a_task_goes_with_a_transaction_of_the_application(on_file: App, tmp_path: Path) -> None:
    @on_file.task(queue="mail")
    def tell(order: int) -> None: ...

    async with on_file as app:
        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        for end in ("rollback", "commit"):
            connection.execute("begin")
            enqueue_in(connection, [tell.job(1)])
            connection.execute(end)
        connection.close()
        assert (await app.drain()).succeeded == 1


# --- running --------------------------------------------------------------------------------------


async def test_drain_runs_what_is_due_and_what_that_enqueues_in_whatever_queue(app: App) -> None:
    @app.task(queue="b")
    async def leaf(n: int) -> int:
        return n

    @app.task(queue="a")
    async def root() -> None:
        await leaf.enqueue(1)
        await leaf.options(queue="surprise").enqueue(2)
        await leaf.options(delay=60).enqueue(3)

    await root.enqueue()
    assert await app.drain(timeout=30) == Drained(succeeded=3)
    assert await app.drain(timeout=30) == Drained()


async def test_drain_tells_how_attempts_ended(app: App) -> None:
    @app.task
    def give(how: str) -> None:
        match how:
            case "fail":
                raise Fail("no use")
            case "retry":
                raise Retry(60)

    await give.enqueue_many([("well",), ("fail",), ("retry",), ("well",)])
    assert await app.drain(timeout=30) == Drained(succeeded=2, failed=1, retried=1)


async def test_drain_keeps_to_the_queues_it_is_told(app: App) -> None:
    @app.task
    def do() -> None: ...

    for queue in ("a", "b"):
        await do.options(queue=queue).enqueue()
    assert await app.drain(["a"], timeout=30) == Drained(succeeded=1)


async def test_drain_gives_back_what_does_not_end_in_time(app: App) -> None:
    @app.task
    async def for_ever() -> None:
        await asyncio.Event().wait()

    handle = await for_ever.enqueue()
    with pytest.raises(TimeoutError, match="given back"):
        await app.drain(timeout=0.05)
    job = await handle.job()
    assert job is not None and (job.state, job.attempts) == (State.QUEUED, 0)


def test_drain_works_for_callers_without_a_loop(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    handle = app.sync(add.enqueue(1, 2))
    assert app.sync(app.drain(timeout=30)).succeeded == 1
    assert app.sync(handle.result()) == 3


async def test_a_batch_gives_each_job_its_own_outcome(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=10, max_attempts=1)
    def halve(numbers: list[int]) -> list[int | BaseException]:
        calls.append(numbers)
        return [n // 2 if n % 2 == 0 else ValueError(f"{n} is odd") for n in numbers]

    handles = [each async for each in halve.enqueue_many((n,) for n in range(4))]
    assert await app.drain(timeout=30) == Drained(succeeded=2, failed=2)
    assert sorted(n for call in calls for n in call) == [0, 1, 2, 3]
    assert await handles[2].result() == 1
    with pytest.raises(dibs.JobFailed, match="3 is odd"):
        await handles[3].result()


async def test_middleware_wraps_handlers_and_hooks_hear_how_they_ended(app: App) -> None:
    seen: list[Any] = []

    @app.middleware
    async def outer(attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(("before", attempt.task))
        result = await call_next()
        seen.append(("after", result))
        return result

    @app.on("succeeded")
    def heard(attempt: Attempt, outcome: Outcome) -> None:
        seen.append(outcome)

    @app.task
    async def add(a: int) -> int:
        assert current().args == {"a": a}
        return a + 1

    await add.enqueue(1)
    await app.drain(timeout=30)
    assert seen == [("before", "add"), ("after", 2), Succeeded(2)]


def test_an_event_that_does_not_exist_is_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="there is no event 'sucess': it is one of cancelled, "):
        app.on("sucess")


def test_a_worker_serves_the_queues_that_tasks_are_declared_with(app: App) -> None:
    assert app.queues() == ["default"]
    for name, queue in (("a", "mail"), ("b", "default"), ("c", "mail")):
        app.task(name=name, queue=queue)(lambda: None)
    assert app.queues() == ["mail", "default"]
    assert app.worker(name="w1").settings.queues == {"mail": 1, "default": 1}


def test_a_handle_does_not_keep_a_thread_alive_after_its_app_is_closed(on_file: App) -> None:
    before = set(threading.enumerate())

    async def use() -> Store:
        async with on_file as app:
            return await app.store()

    asyncio.run(use())
    assert set(threading.enumerate()) <= before
