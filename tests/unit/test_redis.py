"""What is special about the Redis store. What it shares with the others is in the contract suite."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dibs.errors import ConfigurationError, SchemaError, StoreUnavailable
from dibs.job import Filter, NewJob, Report, Retention, State
from dibs.outcome import Failed, Outcome, Pulse, Retry, Succeeded, Verdict
from dibs.stores.redis import RedisStore, wire
from dibs.stores.redis.options import parse
from dibs.stores.redis.scripts import clock, scripts
from tests.conftest import REDIS_LABELS, DatabaseFactory
from tests.servers import RedisServer, find_redis

LEASE = timedelta(seconds=60)

pytestmark = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=REDIS_LABELS)
def url(request: pytest.FixtureRequest, redis_database: DatabaseFactory) -> str:
    """An empty database on each kind of server."""
    return redis_database(request.param)


@pytest.fixture(params=REDIS_LABELS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of the test's own, to configure and to stop."""
    [found] = [one for one in find_redis() if one.label == request.param]
    with RedisServer(found) as running:
        yield running


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(url, **options)
    try:
        await store.setup()
        yield store
    finally:
        await store.close()


async def ask(store: RedisStore, *command: str | bytes | int) -> Any:
    [answer] = await store._link.exchange(command)
    if isinstance(answer, Exception):
        raise answer
    return answer


def jobs(count: int, **fields: Any) -> list[NewJob]:
    return [NewJob(task="t", args={"n": n}, **fields) for n in range(count)]


# --- the URL ------------------------------------------------------------------------------------


def test_a_url_can_hold_every_option() -> None:
    options = parse("redis://:secret@host:7000/3?claim=watch&prefix=shop&pool=4&max_bytes=1000")
    assert (options.claim, options.prefix, options.pool, options.max_bytes) == ("watch", "shop", 4, 1000)
    assert options.server == "redis://:secret@host:7000/3"
    assert options.where == "host:7000"


def test_a_unix_socket_takes_its_database_as_an_option() -> None:
    assert parse("unix:///run/redis.sock?db=2&prefix=a").server == "unix:///run/redis.sock?db=2"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://h?color=red", "'color'.*claim, prefix, pool, max_bytes"),
        ("redis://h?db=1", "'db'"),
        ("redis://h?claim=guess", "script, watch"),
        ("redis://h?pool=0", "pool must be"),
        ("redis://h?pool=²", "pool must be"),
        ("redis://h?max_bytes=-1", "max_bytes must be"),
        ("redis://h?prefix={a}", "prefix must be"),
        ("redis://h?prefix=", "prefix must be"),
        ("redis://h/jobs", "database number"),
        ("redis://h:port/0", "port"),
        ("http://h", "redis://, rediss://, unix://"),
    ],
)
def test_a_url_that_nobody_can_mean_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        RedisStore.from_url(url)
    assert "\n" not in str(caught.value)


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'dibs\[redis\]'"):
        RedisStore("redis://localhost")


async def test_a_unix_socket_will_do(server: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with RedisServer(server.installation, unixsocket=str(path)):
        async with opened(f"unix://{path}?db=3") as store:
            assert [one.created for one in await store.enqueue(jobs(2))] == [True, True]
            assert b"db=3" in await ask(store, "CLIENT", "LIST")


# --- the server ---------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_unavailable_and_keeps_the_password_secret() -> None:
    store = RedisStore("redis://user:hunter2@127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached") as caught:
        await store.setup()
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
    await store.close()


async def test_a_wrong_password_is_a_mistake_in_the_url(server: RedisServer) -> None:
    async with opened(server.url()) as store:
        await ask(store, "CONFIG", "SET", "requirepass", "right")
    wrong = RedisStore(f"redis://:hunter2@127.0.0.1:{server.address.port}/0")
    with pytest.raises(ConfigurationError, match="credentials") as caught:
        await wrong.setup()
    assert "hunter2" not in str(caught.value)
    await wrong.close()


@pytest.mark.parametrize("config", ["allowed", "forbidden"])
async def test_a_server_that_evicts_keys_is_refused(server: RedisServer, config: str) -> None:
    async with opened(server.url()) as store:
        await ask(store, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        if config == "forbidden":
            await ask(store, "ACL", "SETUSER", "default", "-config")
        with pytest.raises(ConfigurationError, match=r"allkeys-lru.*set maxmemory-policy to noeviction"):
            await store.setup()


async def test_data_of_a_newer_layout_is_left_alone(url: str) -> None:
    async with opened(url) as store:
        await store.enqueue(jobs(1))
        await store.setup()
        await ask(store, "SET", "{dibs}:layout", "2")
        with pytest.raises(SchemaError, match="upgrade dibs"):
            await store.setup()


async def test_setup_writes_nothing(url: str) -> None:
    async with opened(url) as store:
        assert await ask(store, "DBSIZE") == 0


async def test_a_lost_connection_is_reported_and_the_next_call_reconnects(server: RedisServer) -> None:
    async with opened(server.url()) as store:
        await store.enqueue(jobs(1))
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.counts()
        server.start()
        assert await store.counts() == []


async def test_a_store_that_was_closed_can_be_used_on_another_loop(url: str) -> None:
    store = RedisStore(url)

    async def use() -> None:
        given = jobs(30)
        await asyncio.gather(*(store.enqueue([job]) for job in given))
        await asyncio.gather(*(store.wait(["default"], LEASE) for _ in range(3)))
        found = await asyncio.gather(*(store.claim("default", f"w{n}", 1, LEASE) for n in range(30)))
        assert {claim.id for claims in found for claim in claims} == {job.id for job in given}
        await store.close()

    for _ in range(2):
        await asyncio.to_thread(asyncio.run, use())


async def test_a_master_that_becomes_a_replica_is_left_for_the_one_at_its_address(
    server: RedisServer, tmp_path: Path
) -> None:
    old, new, address = tmp_path / "old", tmp_path / "new", tmp_path / "s"
    address.symlink_to(old)
    with (
        RedisServer(server.installation, unixsocket=str(old)),
        RedisServer(server.installation, unixsocket=str(new)),
    ):
        async with opened(f"unix://{address}") as store, opened(f"unix://{old}") as master:
            await store.enqueue(jobs(1))
            await ask(master, "REPLICAOF", "127.0.0.1", 1)  # of nobody who answers: it stays as it is
            address.unlink()
            address.symlink_to(new)
            with pytest.raises(StoreUnavailable, match=r"is a replica, which takes no writes: connect to the master$"):
                await store.enqueue(jobs(1))
            assert [one.created for one in await store.enqueue(jobs(1))] == [True]
            await ask(master, "REPLICAOF", "NO", "ONE")
            assert len(await master.claim("default", "w", 5, LEASE)) == 1, "nothing was written to the replica"


async def test_scripts_are_loaded_again_when_the_server_forgot_them(server: RedisServer) -> None:
    async with opened(server.url()) as store:
        await store.enqueue(jobs(2))
        await ask(store, "SCRIPT", "FLUSH")
        assert len(await store.claim("default", "w", 1, LEASE)) == 1
        assert len(await store.claim("default", "w", 1, LEASE)) == 1


async def test_a_claim_is_never_sent_twice(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as store:
        await store.enqueue(jobs(3))
        await store.claim("default", "w", 1, LEASE)
        [idle] = store._link._idle
        monkeypatch.setattr(idle, "data_received", lambda answer: idle.connection_lost(None))
        with pytest.raises(StoreUnavailable):
            await store.claim("default", "w", 1, LEASE)
        [counts] = await store.counts()
        assert counts.states[State.RUNNING] == 2


async def test_a_server_that_says_nothing_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REPLY_TIMEOUT", 0.2)
    async with opened(url) as store:
        await store.enqueue(jobs(1))
        [idle] = store._link._idle
        monkeypatch.setattr(idle, "data_received", lambda answer: None)
        await asyncio.sleep(0.1)  # the wait counts from the call, not from the one before
        asked_at = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await store.claim("default", "w", 1, LEASE)
        assert time.monotonic() - asked_at >= 0.19
        assert idle not in store._link._idle


# --- the scripts --------------------------------------------------------------------------------


def test_scripts_read_no_clock_but_the_servers() -> None:
    for script in scripts(clock()).values():
        assert script.source.count(b"'TIME'") == 1
        assert b"'clock'" not in script.source


def test_every_script_says_what_it_takes_and_answers() -> None:
    for script in scripts(clock()).values():
        head = script.source.decode().rpartition(f"\n-- {script.name}:")[2].split("\n\n")[0]
        assert "answers" in head or script.name == "configure", script.name


async def test_every_key_is_in_one_slot(url: str) -> None:
    async with opened(url, prefix="shop") as store:
        await store.enqueue([*jobs(5), *jobs(1, key="{other}"), *jobs(2, queue="{a}")])
        claims = await store.claim("default", "w", 3, LEASE)
        await store.settle([claims[0].settled(Succeeded("r")), claims[1].settled(Retry("e"))])
        await store.heartbeat("w", claims, LEASE, {"a": 1}, {claims[2].id: Report(0.5)})
        await store.pause("{a}")
        await store.wait(["nothing"], timedelta(0))
        keys = await ask(store, "KEYS", "*")
        assert len(keys) > 20
        assert all(key.startswith(b"{shop}:") for key in keys)


async def test_what_goes_leaves_no_key_behind(url: str) -> None:
    async with opened(url) as store:
        await store.enqueue([*jobs(20), *jobs(1, key="k"), *jobs(5, queue="later")])
        claims = await store.claim("default", "w", 15, timedelta(seconds=1))
        await store.heartbeat("w", claims, LEASE, reports={c.id: Report(0.5, "half") for c in claims})
        await store.settle([c.settled(Succeeded({"r": 1})) for c in claims[:5]])
        await store.settle([c.settled(Failed("e")) for c in claims[5:10]])
        await store.delete(Filter(states=(State.QUEUED, State.RUNNING)), force=True)
        kept = timedelta(0)
        await store.prune(Retention(succeeded=kept, failed=kept, cancelled=kept))
        # Workers are remembered for a day.
        assert set(await ask(store, "KEYS", "*")) == {b"{dibs}:layout", b"{dibs}:workers"}


async def test_a_worker_that_no_claim_can_have_is_told_that_it_lost(url: str) -> None:
    async with opened(url) as store:
        await store.enqueue(jobs(1))
        [claim] = await store.claim("default", "w", 1, LEASE)
        for epoch, worker in ((1 << 70, "w"), (-1, "w"), (1, "\ud800"), (1, "")):
            stranger = msgspec.structs.replace(claim, epoch=epoch, worker=worker)
            assert await store.settle([stranger.settled(Succeeded())]) == [Verdict.LOST]
        assert await store.heartbeat("w", [claim], LEASE) == [Pulse.HELD]


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["script", "watch"])
async def test_with_memory_full_nothing_comes_in_and_what_runs_still_ends(server: RedisServer, way: str) -> None:
    async with opened(server.url(), claim=way) as store:
        await store.enqueue(jobs(20))
        claims = await store.claim("default", "w", 5, LEASE)
        await ask(store, "CONFIG", "SET", "maxmemory", "1")
        before = await store.counts()
        for batch in ([*jobs(3), *jobs(1, key="k")], jobs(1, key="k")):
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                await store.enqueue(batch)
        assert await store.counts() == before
        ends: list[Outcome] = [Succeeded("r" * 999), Retry("e"), Failed("e")]
        settlements = [claim.settled(end) for claim, end in zip(claims, ends, strict=False)]
        assert await store.settle(settlements) == [Verdict.ACCEPTED] * 3
        said = {claims[3].id: Report(0.5, "n" * 200)}
        assert await store.heartbeat("w", claims[3:], LEASE, {"a": 1}, said) == [Pulse.HELD] * 2
        if way == "script":
            assert len(await store.claim("default", "w", 2, LEASE)) == 2
        else:
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                await store.claim("default", "w", 2, LEASE)
        assert (await store.cancel(Filter(states=(State.QUEUED,)))).count > 0
        assert await store.prune(Retention(cancelled=timedelta(0))) > 0
        await ask(store, "CONFIG", "SET", "maxmemory", "0")
        [answer] = await store.enqueue(jobs(1, key="k"))
        assert answer.created
