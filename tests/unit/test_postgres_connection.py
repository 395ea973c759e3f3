"""What becomes of a store when the URL is wrong, the server goes away, or an answer gets lost."""

import asyncio
import gc
import logging
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from dibs.errors import ConfigurationError, DibsError, StoreUnavailable
from dibs.job import NewJob, State
from dibs.outcome import Succeeded, Verdict
from dibs.stores import open_store
from dibs.stores.postgres import PostgresStore, wakeups
from dibs.stores.postgres.options import Options, split
from dibs.stores.postgres.wakeups import Waker
from dibs.stores.schema import open_schema
from dibs.task import Task
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PostgresServer, find_postgres
from tests.unit import working
from tests.unit.postgres import LEASE, NEWEST, connected, jobs, migrated, needs_postgres, opened, until
from tests.unit.working import Shop

pytestmark = needs_postgres

SECRET = "hunter2"
PATIENCE = timedelta(seconds=10)
OTHERS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@pytest.fixture(params=POSTGRES_LABELS)
def url(request: pytest.FixtureRequest, migrated_database: DatabaseFactory) -> str:
    """A database with the schema, on each version."""
    return migrated_database(request.param)


@pytest.fixture
def newest(migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, to stop and to configure."""
    with PostgresServer(find_postgres()[-1]) as running:
        yield running


def at(url: str, database: str = "", user: str = "postgres") -> str:
    """The same server: another database, another user."""
    server, _, same = url.rpartition("/")
    return f"{server}/{database or same}".replace("postgres@", f"{user}@")


async def fails(url: str) -> DibsError:
    """What a store and the schema say about a URL: the same, in one line, with no secret in it or behind it."""
    said = []
    for attempt in (lambda: open_store(url).setup(), lambda: open_schema(url).status()):
        with pytest.raises(DibsError) as caught:
            await attempt()
        assert SECRET not in "".join(traceback.format_exception(caught.value)).replace(repr(url), "")
        assert "\n" not in str(caught.value)
        said.append(caught.value)
    assert type(said[0]) is type(said[1])
    assert str(said[0]) == str(said[1])
    return said[0]


# --- the URL --------------------------------------------------------------------------------------


def test_a_url_can_hold_every_option_and_the_rest_is_the_driver_s() -> None:
    options = "claim=two-phase&migrate=auto&pool=3&pooler=transaction&max_bytes=99&look_every=0.5"
    rest, found = split(f"postgresql://u:{SECRET}@h:1,i:2/shop?{options}&sslmode=require")
    assert rest == f"postgresql://u:{SECRET}@h:1,i:2/shop?sslmode=require"
    assert found == Options(
        claim="two-phase", migrate="auto", pool=3, pooler="transaction", max_bytes=99, look_every=0.5
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("pool=0", "pool in a postgresql:// URL must be a number from 1, not '0'"),
        ("pool=many", "pool .* a number from 1, not 'many'"),
        ("claim=guess", "claim .* must be single or two-phase, not 'guess'"),
        ("migrate=", "migrate .* never or auto"),
        ("pooler=session", "pooler .* none or transaction"),
        ("max_bytes=-1", "max_bytes .* a number from 1"),
        ("look_every=-1", "look_every .* seconds from 0 to 60"),
        ("look_every=nan", "look_every .* seconds from 0 to 60"),
    ],
)
def test_an_option_that_nobody_can_mean_is_refused(option: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_store(f"postgresql://u:{SECRET}@h/shop?{option}")


@pytest.mark.parametrize(
    "secret", [f"a@{SECRET}", f"a/{SECRET}", f"{SECRET}?a", f"{SECRET}#a", f"{SECRET}]", f"[{SECRET}"]
)
async def test_a_password_that_is_not_percent_encoded_is_refused_and_not_shown(secret: str) -> None:
    problem = await fails(f"postgresql://user:{secret}@127.0.0.1:1/shop")
    assert isinstance(problem, ConfigurationError)
    assert "percent-encode" in str(problem)


@pytest.mark.parametrize("option", ["speed=9", "sslmode=maybe", "work_mem=lots", "fsync=off"])
async def test_an_option_that_neither_dibs_nor_the_driver_nor_the_server_knows_is_named(
    newest: str, option: str
) -> None:
    problem = await fails(f"{newest}?{option}")
    assert isinstance(problem, ConfigurationError)
    assert option.partition("=")[0] in str(problem)
    assert "the options of dibs are claim, migrate, pool" in str(problem)


async def test_a_port_that_is_no_number_is_refused() -> None:
    assert isinstance(await fails(f"postgresql://u:{SECRET}@127.0.0.1:port/shop"), ConfigurationError)


async def test_nobody_there_is_unavailable() -> None:
    problem = await fails(f"postgresql://u:{SECRET}@127.0.0.1:1/shop")
    assert isinstance(problem, StoreUnavailable)
    assert "127.0.0.1:1/shop cannot be reached" in str(problem)


async def test_a_missing_database_is_named_with_what_to_do(newest: str) -> None:
    problem = await fails(at(newest, "nowhere", f"postgres:{SECRET}"))
    assert isinstance(problem, ConfigurationError)
    assert "/nowhere: create it" in str(problem)


async def test_a_missing_role_and_a_wrong_password_are_refused_alike(server: PostgresServer) -> None:
    rules = server.data_dir / "pg_hba.conf"
    rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    server.address.execute("create role guarded login password 'right'")
    server.address.execute("select pg_reload_conf()")
    for user in (f"guarded:{SECRET}", f"unknown:{SECRET}"):
        problem = await fails(at(server.url(), user=user))
        assert isinstance(problem, ConfigurationError)
        assert "refused the user or password" in str(problem)
    assert (await open_schema(at(server.url(), user="guarded:right")).status()).current == 0


async def test_a_time_out_and_a_read_only_server_are_unavailable_for_now(newest: str) -> None:
    async with connected(newest) as sql, opened(newest, "lock_timeout=1") as impatient:
        async with sql.transaction():
            await sql.execute("lock table dibs.job")
            with pytest.raises(StoreUnavailable, match=r"cannot do that now: .*lock timeout"):
                await impatient.enqueue(jobs(1))
        assert len(await impatient.enqueue(jobs(1))) == 1
    async with opened(newest, "default_transaction_read_only=on") as standby:
        with pytest.raises(StoreUnavailable, match=r"cannot do that now: .*read-only"):
            await standby.enqueue(jobs(1))


# --- gone and back --------------------------------------------------------------------------------


async def test_connections_that_were_terminated_are_replaced(url: str) -> None:
    async with opened(url, "pool=4") as store, connected(url) as killer:
        await store.enqueue(jobs(4))

        async def use() -> None:
            with suppress(StoreUnavailable):
                await store.claim("default", "w", 1, LEASE)

        for _ in range(5):
            calls = [asyncio.ensure_future(use()) for _ in range(20)]
            await killer.execute(f"select pg_terminate_backend(pid) {OTHERS}")
            await asyncio.gather(*calls)
        await killer.execute(f"select pg_terminate_backend(pid, 5000) {OTHERS}")
        assert len(await store.enqueue(jobs(1))) == 1  # nothing was in flight: nothing fails
        assert await store.claim("other", "w", 1, LEASE) == []


async def test_a_server_that_was_restarted_is_used_again_by_the_same_store(server: PostgresServer) -> None:
    url = await migrated(server.create_database("restarted"))
    async with opened(url) as store:
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        [job] = await store.enqueue(jobs(1))
        assert await waiting == {"default"}
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.get(job.id)
        await asyncio.to_thread(server.start)
        assert await store.wait(["default"], PATIENCE) == {"default"}
        assert [claim.id for claim in await store.claim("default", "w", 1, LEASE)] == [job.id]


async def test_a_worker_says_in_one_line_that_its_server_has_gone_and_the_driver_says_nothing(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = await migrated(server.create_database("outage"))
    failures, ran = list[str](), list[None]()

    class Noting(PostgresStore):
        async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
            try:
                return await super()._fetch(statement, *arguments)
            except StoreUnavailable as problem:
                failures.append(str(problem))
                raise

    shop = Shop(lambda: Noting(url))

    @shop.task
    async def note() -> None:
        ran.append(None)

    async with shop.working():
        await shop.enqueue(note)
        await working.until(lambda: len(ran) == 1)
        await asyncio.to_thread(server.kill)
        await working.until(lambda: len(failures) >= 4)
        [line] = _warnings(caplog)
        assert "the store is away, trying again until it is back" in line.getMessage()
        await asyncio.to_thread(server.start)
        await working.until(lambda: _enqueued(shop, note))
        await working.until(lambda: len(ran) == 2)
    await shop.store.close()
    gc.collect()  # what a task raised and nobody asked for is said when the task goes
    assert {(line.name, line.exc_info) for line in _warnings(caplog)} == {("dibs.worker", None)}, caplog.text


def _warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


async def _enqueued(shop: Shop, task: Task[..., Any]) -> bool:
    try:
        await shop.enqueue(task)
    except StoreUnavailable:
        return False
    return True


async def test_a_store_can_be_closed_when_its_server_has_gone(server: PostgresServer) -> None:
    store = PostgresStore(await migrated(server.create_database("gone")))
    await store.enqueue(jobs(3))
    await store.wait(["default"], PATIENCE)
    await asyncio.to_thread(server.kill)
    await asyncio.wait_for(store.close(), 10)
    await asyncio.to_thread(server.start)


async def test_a_wait_that_is_cancelled_while_it_begins_to_listen_leaves_no_connection_open(
    newest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: asyncio.Queue[Any] = asyncio.Queue()

    async def never(connection: Any, *_: object) -> None:
        begun.put_nowait(connection)
        await asyncio.Event().wait()

    monkeypatch.setattr("asyncpg.connection.Connection.add_listener", never)
    async with opened(newest) as store:
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        connection = await asyncio.wait_for(begun.get(), 10)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert connection.is_closed()


async def test_without_its_listener_a_store_is_woken_by_polling_and_then_listens_again(newest: str) -> None:
    listening = f"select pid {OTHERS} and query ilike 'listen%'"
    async with opened(newest) as store, opened(newest) as producer, connected(newest) as sql:
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        await until(lambda: sql.fetchval(listening))
        await sql.execute(f"select pg_terminate_backend(({listening}), 5000)")
        began = time.monotonic()
        await producer.enqueue(jobs(1))
        assert await waiting == {"default"}
        assert time.monotonic() - began < PATIENCE.total_seconds() / 2
        assert len(await store.claim("default", "w", 1, LEASE)) == 1
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        await until(lambda: sql.fetchval(listening))
        waiting.cancel()


# --- lost answers ---------------------------------------------------------------------------------


class Proxy:
    """Passes bytes on between clients and the server; told to, it keeps the next answer to itself and hangs up."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self.swallow = False

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        serving = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield serving.sockets[0].getsockname()[1]
        finally:
            serving.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        there = asyncio.ensure_future(self._pass(reader, there_writer))
        with suppress(ConnectionError):
            await self._answer(there_reader, writer)
        there.cancel()
        for one in (writer, there_writer):
            one.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = b""
        while data := await reader.read(65536):
            if not self.swallow:
                writer.write(data)
                continue
            kept += data
            if kept.endswith(b"Z\0\0\0\x05I"):  # ready for the next query: what was asked is committed
                self.swallow = False
                return


@asynccontextmanager
async def behind_a_proxy(url: str) -> AsyncIterator[tuple[Proxy, PostgresStore]]:
    port = url.rpartition("/")[0].rpartition(":")[2]
    proxy = Proxy(int(port))
    async with proxy.listening() as own, opened(url.replace(port, str(own)), "pool=1") as store:
        yield proxy, store


async def test_a_claim_whose_answer_got_lost_comes_back_by_its_lease(newest: str) -> None:
    async with behind_a_proxy(newest) as (proxy, store), connected(newest) as sql:
        assert await store.claim("default", "w", 1, LEASE) == []  # from now on one round trip
        [job] = await store.enqueue(jobs(1))
        await until(lambda: _flushed(store))
        proxy.swallow = True
        with pytest.raises(StoreUnavailable):
            await store.claim("default", "w", 1, LEASE)
        found = await store.get(job.id)
        assert found is not None and (found.state, found.epoch) == (State.RUNNING, 1)
        assert await store.claim("default", "w", 1, LEASE) == []
        await sql.execute("update dibs.job set locked_until = clock_timestamp()")
        [claim] = await store.claim("default", "w", 1, LEASE)
        assert (claim.id, claim.epoch, claim.attempt) == (job.id, 2, 2)


@pytest.mark.parametrize("keys", [[None], [None, None], [None, "k"]], ids=["a plain one", "alike", "several"])
async def test_an_enqueue_whose_answer_got_lost_can_be_sent_again(newest: str, keys: list[str | None]) -> None:
    async with behind_a_proxy(newest) as (proxy, store):
        await store.enqueue([NewJob(task="t", queue="other", key=key) for key in keys])  # from now on one round trip
        await until(lambda: _flushed(store))
        proxy.swallow, again = True, [NewJob(task="t", key=key) for key in keys]
        with pytest.raises(StoreUnavailable):
            await store.enqueue(again)
        assert [(one.id, one.created) for one in await store.enqueue(again)] == [(job.id, False) for job in again]
        assert len(await store.claim("default", "w", 9, LEASE)) == len(keys)


async def test_a_settle_whose_answer_got_lost_can_be_sent_again(newest: str) -> None:
    async with behind_a_proxy(newest) as (proxy, store):
        await store.enqueue(jobs(2))
        one, two = await store.claim("default", "w", 2, LEASE)
        await store.settle([one.settled(Succeeded())])
        await until(lambda: _flushed(store))
        proxy.swallow = True
        with pytest.raises(StoreUnavailable):
            await store.settle([two.settled(Succeeded())])
        assert await store.settle([two.settled(Succeeded())]) == [Verdict.ACCEPTED]
        found = await store.get(two.id)
        assert found is not None and (found.state, found.attempts) == (State.SUCCEEDED, 1)


async def _flushed(store: PostgresStore) -> bool:
    """Whether no wake-up is still to be sent: it would take the place of the answer that is to be lost."""
    return store._waker._task is None or store._waker._task.done()


# --- wake-ups -------------------------------------------------------------------------------------


async def test_many_enqueues_at_once_send_few_notifications_and_wake(newest: str) -> None:
    heard = count()
    async with opened(newest) as store, opened(newest) as waiter, connected(newest) as listener:
        await listener.add_listener("dibs", lambda *_: next(heard))
        waiting = asyncio.ensure_future(waiter.wait(["default"], PATIENCE))
        await until(
            lambda: listener.fetchval(
                f"select count(*) = 2 {OTHERS} and query ilike 'listen%' or pid = pg_backend_pid()"
            )
        )
        await asyncio.gather(*(store.enqueue(jobs(1)) for _ in range(200)))
        assert await waiting == {"default"}
        await until(lambda: _flushed(store))
        await listener.execute("select pg_notify('dibs', 'last')")
    assert 2 <= next(heard) < 100


async def test_a_few_enqueues_in_a_row_wake_at_once_and_a_busy_producer_keeps_its_distance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(wakeups, "time", SimpleNamespace(monotonic=lambda: now))
    sent: list[list[str]] = []

    async def send(queues: list[str]) -> None:
        sent.append(queues)

    waker = Waker(send)
    assert [waker.at_once(["q"]) for _ in range(12)] == [True] * 10 + [False] * 2
    assert waker.at_once(["q", "other"]), "one of them has not been heard of"
    answers = []
    for _ in range(40):
        now += wakeups.GAP / 4
        answers.append(waker.at_once(["q"]))
    assert 9 <= sum(answers) <= 11, "one in each gap"
    now += 1
    assert [waker.at_once(["q"]) for _ in range(11)] == [True] * 10 + [False]
    assert sent == []


async def test_a_wake_up_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "WAKE", 0.01)
    sent: list[list[str]] = []
    first = asyncio.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()
        if len(sent) == 1:
            await asyncio.Event().wait()

    waker = Waker(send)
    waker.soon(["lost"])
    await first.wait()
    waker.soon(["next"])
    async with asyncio.timeout(20):
        await waker.close()
    assert sent == [["lost"], ["next"]]


async def test_behind_a_transaction_pooler_nothing_is_prepared_and_waiting_polls(url: str) -> None:
    async with opened(url, "pooler=transaction&pool=1") as store, opened(url) as producer, connected(url) as sql:
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        await producer.enqueue(jobs(2))
        assert await waiting == {"default"}
        one, two = await store.claim("default", "w", 2, LEASE)
        await store.heartbeat("w", [one, two], LEASE)
        assert await store.settle([one.settled(Succeeded()), two.settled(Succeeded())]) == [Verdict.ACCEPTED] * 2
        [[prepared]] = await store._fetch("select count(*) from pg_prepared_statements")
        assert prepared == 0
        assert not await sql.fetchval(f"select exists (select {OTHERS} and query ilike 'listen%')")
