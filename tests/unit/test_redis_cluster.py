"""Jobs in a Redis cluster: on whichever node has their slot, and nowhere while it is on its way."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from dibs.errors import StoreUnavailable
from dibs.job import NewJob
from dibs.outcome import Succeeded, Verdict
from dibs.stores.redis import RedisStore
from dibs.stores.redis.link import Link
from dibs.stores.redis.options import parse
from tests.conftest import EVERYTHING, REDIS_LABELS
from tests.servers import RedisServer, find_redis

LEASE = timedelta(minutes=1)
PATIENCE = timedelta(seconds=10)
SLOTS = range(16384)


class Node(RedisServer):
    """A node of a cluster. Its nodes talk to each other at ports that are higher by 10,000."""

    highest_port = 55535


class Cluster:
    """Two nodes: stores are opened at the first, the jobs are on the second."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self._links = [Link(parse(node.url())) for node in self.nodes]

    @property
    def url(self) -> str:
        return self.nodes[0].url()

    async def ask(self, node: int, *command: str | bytes | int) -> object:
        [answer] = await self._links[node].exchange(command)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def form(self) -> None:
        """All slots to the second node, and a cluster that says it is one."""
        await self.ask(1, "CLUSTER", "ADDSLOTS", *SLOTS)
        await self.ask(0, "CLUSTER", "MEET", "127.0.0.1", self.nodes[1].address.port)
        deadline = time.monotonic() + 30
        while not all([b"cluster_state:ok" in await self._info(node) for node in (0, 1)]):
            assert time.monotonic() < deadline, "the cluster was not formed"
            await asyncio.sleep(0.01)
        slot = await self.ask(0, "CLUSTER", "KEYSLOT", "{dibs}:")
        assert isinstance(slot, int)
        self.slot = slot
        self.ids = [await self.ask(node, "CLUSTER", "MYID") for node in (0, 1)]

    async def _info(self, node: int) -> bytes:
        info = await self.ask(node, "CLUSTER", "INFO")
        assert isinstance(info, bytes)
        return info

    async def begin_to_move(self) -> None:
        """The first key is on its way, and where it is now there is none of the others."""
        await self.say(0, "IMPORTING", 1)
        await self.say(1, "MIGRATING", 0)
        await self._migrate(1)

    async def move(self) -> None:
        """The other keys, and the word that all are there."""
        while await self._migrate(100):
            pass
        await self.say(0, "NODE", 0)
        await self.say(1, "NODE", 0)

    async def say(self, node: int, state: str, other: int) -> None:
        """What a node is to think of the slot: whose it is, or to and from whom it goes."""
        who = self.ids[other]
        assert isinstance(who, bytes)
        await self.ask(node, "CLUSTER", "SETSLOT", self.slot, state, who)

    async def _migrate(self, most: int) -> int:
        keys = await self.ask(1, "CLUSTER", "GETKEYSINSLOT", self.slot, most)
        assert isinstance(keys, list)
        if keys:
            await self.ask(1, "MIGRATE", "127.0.0.1", self.nodes[0].address.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    async def close(self) -> None:
        for link in self._links:
            await link.close()


@pytest.fixture(params=REDIS_LABELS if EVERYTHING else REDIS_LABELS[-1:])
def nodes(request: pytest.FixtureRequest) -> Iterator[list[Node]]:
    [found] = [one for one in find_redis() if one.label == request.param]
    with ExitStack() as running:
        # Nobody is given up for a minute: the tests say who has what.
        made = [Node(found, cluster_enabled="yes", cluster_node_timeout=60_000, databases=1) for _ in range(2)]
        yield [running.enter_context(node) for node in made]


@pytest.fixture
async def cluster(nodes: list[Node]) -> AsyncIterator[Cluster]:
    made = Cluster(nodes)
    await made.form()
    yield made
    await made.close()


@pytest.fixture(params=["script", "watch"])
async def store(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[RedisStore]:
    made = RedisStore(cluster.url, claim=request.param)
    await made.setup()
    yield made
    await made.close()


def jobs(count: int) -> list[NewJob]:
    return [NewJob(task="t", args={"n": n}) for n in range(count)]


async def test_a_store_goes_where_the_jobs_are(cluster: Cluster, store: RedisStore) -> None:
    producer = RedisStore(cluster.url)  # its first call is sent on, without a setup before it
    waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
    await producer.enqueue(jobs(2))
    assert await waiting == {"default"}
    one, two = await store.claim("default", "w", 2, LEASE)
    assert await store.settle([one.settled(Succeeded()), two.settled(Succeeded())]) == [Verdict.ACCEPTED] * 2
    await producer.close()


async def test_jobs_that_are_moved_are_neither_lost_nor_doubled(cluster: Cluster, store: RedisStore) -> None:
    await store.enqueue(jobs(5))
    held = await store.claim("default", "w", 2, LEASE)
    await cluster.begin_to_move()
    for call in (
        lambda: store.enqueue(jobs(1)),
        lambda: store.claim("default", "w", 1, LEASE),
        lambda: store.settle([held[0].settled(Succeeded())]),
    ):
        with pytest.raises(StoreUnavailable, match="is moving the jobs to another node: wait until that is done"):
            await call()
    await cluster.move()
    assert await store.settle([claim.settled(Succeeded()) for claim in held]) == [Verdict.ACCEPTED] * 2
    rest = await store.claim("default", "w", 10, LEASE)
    assert [claim.args["n"] for claim in (*held, *rest)] == [0, 1, 2, 3, 4]


async def test_claims_alone_find_jobs_that_were_moved(cluster: Cluster, store: RedisStore) -> None:
    await store.enqueue(jobs(1))
    await cluster.begin_to_move()
    await cluster.move()
    if store._watch is not None:  # it goes there with the next call
        with pytest.raises(StoreUnavailable, match="is moving the jobs to another node"):
            await store.claim("default", "w", 1, LEASE)
    assert len(await store.claim("default", "w", 1, LEASE)) == 1


async def test_when_the_node_is_gone_the_one_in_the_url_is_asked_again(cluster: Cluster, store: RedisStore) -> None:
    await store.enqueue(jobs(1))
    cluster.nodes[1].kill()
    await cluster.say(0, "NODE", 0)  # as a replica that takes over would
    lost, *_, last = [await _complaint(store) for _ in range(3)]
    assert f":{cluster.nodes[1].address.port} cannot be reached" in lost
    assert last == ""
    assert len(await store.claim("default", "w", 1, LEASE)) == 1


async def _complaint(store: RedisStore) -> str:
    """What is said about an enqueue; nothing if it succeeds."""
    try:
        await store.enqueue(jobs(1))
    except StoreUnavailable as problem:
        return str(problem)
    return ""
