"""Looking for a brief answer instead of sleeping until it comes: whose, for how long, and what others notice of it."""

import asyncio
import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dibs.job import NewJob
from dibs.stores.redis import RedisStore, glance
from dibs.stores.redis.glance import MOST_ASLEEP, Glance, socket_of
from dibs.stores.redis.wire import Wire
from tests.conftest import REDIS_LABELS, DatabaseFactory
from tests.unit.test_tls import Papers

needs_redis = pytest.mark.skipif(not REDIS_LABELS, reason="no redis-server found")


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a coroutine on a loop of each kind."""
    new_loop = asyncio.new_event_loop if request.param == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    def whole(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main)

    return whole


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sockets of all looks; each goes on until something comes."""
    monkeypatch.setattr(glance, "PATIENCE", 10.0)
    seen: list[int] = []
    really = Glance.look

    def look(self: Glance, number: int, hear: Callable[[bytes], bool]) -> None:
        seen.append(number)
        really(self, number, hear)

    monkeypatch.setattr(Glance, "look", look)
    return seen


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over TCP: nothing else can be reset."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with here, there:
        here.setblocking(False)
        yield here, there


@asynccontextmanager
async def wire_over(here: socket.socket) -> AsyncIterator[Wire]:
    """A wire without what makes connections, which only closing it would need."""
    policy = Glance()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=here)
    wire = Wire(None, transport, policy)  # type: ignore[arg-type]
    transport.set_protocol(wire)
    policy.waiting = 1
    yield wire
    wire.hang_up()
    await wire.lost


def plain(**fields: Any) -> NewJob:
    return NewJob(task="t", args={}, **fields)


# --- whose answers are looked for -------------------------------------------------------------------------


@needs_redis
async def test_who_waits_alone_for_one_job_looks(looks: list[int], redis_database: DatabaseFactory) -> None:
    store = RedisStore(redis_database(REDIS_LABELS[-1]))
    await store.setup()
    await store.enqueue([plain()])  # the server does not know the scripts before
    await store.enqueue([plain(key="k")])
    looks.clear()
    for job in (plain(), plain(key="k"), plain(key="l")):
        await store.enqueue([job])
    assert len(looks) == 3
    await store.enqueue([plain(), plain()])
    [counts] = await store.counts()
    assert len(looks) == 3, "what may take the server longer is slept for"
    assert sum(counts.states.values()) == 6
    await store.close()


@needs_redis
def test_whether_the_loop_or_a_look_reads_an_answer_it_is_the_right_one(
    run: Callable[..., None], redis_database: DatabaseFactory
) -> None:
    async def main() -> None:
        store = RedisStore(redis_database(REDIS_LABELS[-1]))
        await store.setup()
        jobs = [plain(key=f"k{number % 150}") for number in range(200)]
        answers = [(await store.enqueue([job]))[0] for job in jobs]
        assert [answer.id for answer in answers] == [job.id for job in (jobs[:150] + jobs[:50])]
        assert [answer.created for answer in answers] == [True] * 150 + [False] * 50
        await store.close()

    run(main())


@needs_redis
async def test_of_those_who_wait_together_nobody_looks(looks: list[int], redis_database: DatabaseFactory) -> None:
    store = RedisStore(redis_database(REDIS_LABELS[-1]), pool=20)
    await store.setup()
    for _ in range(2):  # the first time they come one by one, as their connections are made
        looks.clear()
        answers = await asyncio.gather(*(store.enqueue([plain()]) for _ in range(20)))
        assert [answer.created for [answer] in answers] == [True] * 20
    assert looks == []
    await store.enqueue([plain()])
    assert len(looks) == 1, "and alone again, one does"
    await store.close()


@needs_redis
async def test_others_have_their_turn_between_any_two_calls(looks: list[int], redis_database: DatabaseFactory) -> None:
    store = RedisStore(redis_database(REDIS_LABELS[-1]))
    await store.setup()
    await store.enqueue([plain()])
    looks.clear()
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(another())
    for _ in range(50):
        await store.enqueue([plain()])
    assert (len(looks), turns >= 50) == (50, True)
    other.cancel()
    await store.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl found")
def test_what_is_encrypted_is_left_to_its_transport(tmp_path: Path, run: Callable[..., None]) -> None:
    papers = Papers(tmp_path)
    trusting = ssl.create_default_context(cafile=str(papers.ca))

    async def main() -> None:
        for context in (papers.context(), None):
            async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as server:
                port = server.sockets[0].getsockname()[1]
                of_it: dict[str, Any] = {} if context is None else {"ssl": trusting, "server_hostname": "localhost"}
                reader, writer = await asyncio.open_connection("127.0.0.1", port, **of_it)
                assert (socket_of(writer.transport) is None) == (context is not None)
                await reader.read()
                writer.close()
                await writer.wait_closed()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    run(main())


# --- for how long -----------------------------------------------------------------------------------------


def test_after_looks_in_vain_ever_more_calls_sleep(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "PATIENCE", 0.0)
    here, there = pair
    policy, slept = Glance(), []
    policy.waiting = 1
    for _ in range(14):
        policy.look(here.fileno(), lambda data: True)
        slept.append(0)
        while not policy.is_due():
            slept[-1] += 1
    assert slept == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 1024] and slept[-1] == MOST_ASLEEP
    there.send(b"+OK\r\n")
    monkeypatch.setattr(glance, "PATIENCE", 10.0)
    policy.look(here.fileno(), lambda data: data == b"+OK\r\n")
    assert policy.is_due(), "one that sees its answer makes up for all of them"


async def test_an_answer_in_pieces_is_read_to_its_end(
    pair: tuple[socket.socket, socket.socket], looks: list[int]
) -> None:
    here, there = pair
    async with wire_over(here) as wire:
        there.send(b"*2\r\n$3\r\nabc\r\n$3\r\nd")
        asked = wire.ask(("ECHO",), brief=True)
        asyncio.get_running_loop().run_in_executor(None, there.send, b"ef\r\n")
        assert await asked == [[b"abc", b"def"]]
    assert len(looks) == 1


# --- when the connection ends meanwhile -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_connection_that_ends_while_somebody_looks_is_lost(
    how: str, pair: tuple[socket.socket, socket.socket], looks: list[int]
) -> None:
    here, there = pair
    async with wire_over(here) as wire:
        asked = wire.ask(("PING",), brief=True)
        if how == "reset":
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            there.close()
        else:
            there.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionResetError):
            await asked
    assert len(looks) == 1


async def test_nobody_looks_at_a_socket_that_may_be_anothers_by_now(
    pair: tuple[socket.socket, socket.socket], looks: list[int]
) -> None:
    async with wire_over(pair[0]) as wire:
        asked = wire.ask(("PING",), brief=True)
        wire.hang_up()
        with pytest.raises(ConnectionResetError):
            await asked
    assert looks == []
