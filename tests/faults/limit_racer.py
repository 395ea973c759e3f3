"""Claimers under limits, in a process of their own: ``python -m tests.faults.limit_racer``.

Reads its orders as one line of JSON, says "ready", and claims and settles until no job is left, or its input ends: it
cannot outlive the one who started it. Every start and every end is written down, one record a write, so that a
killed process leaves whole records only. The store never sees them.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path
from random import Random
from time import monotonic

import msgspec

from dibs.job import Claim, State
from dibs.outcome import Succeeded
from dibs.store import Store
from dibs.stores import open_store

QUEUE = "narrow"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of claimers has to do."""

    name: str
    url: str
    folder: str
    claimers: int = 8
    lease: float = 2.0


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim as its owner saw it: ``until`` is when it ends at the earliest if nobody ends it before; or its end."""

    job: str
    epoch: int
    at: float
    until: float | None = None
    task: str = ""
    key: str = ""


class Held(msgspec.Struct, frozen=True):
    """For how long somebody surely had a slot."""

    start: float
    end: float
    task: str
    key: str


def held(folder: Path) -> list[Held]:
    """All that was written down in a folder."""
    decode = msgspec.json.Decoder(Mark).decode
    marks = [decode(line) for path in sorted(folder.glob("*.marks")) for line in path.read_bytes().splitlines()]
    ends = {(mark.job, mark.epoch): mark.at for mark in marks if mark.until is None}
    return [
        Held(mark.at, min(mark.until, ends.get((mark.job, mark.epoch), mark.until)), mark.task, mark.key)
        for mark in marks
        if mark.until is not None
    ]


def most_at_once(spans: Iterable[Held]) -> int:
    """The most that had a slot at any moment."""
    events = chain.from_iterable(((span.start, 1), (span.end, -1)) for span in spans if span.end > span.start)
    return max(_running(sorted(events)), default=0)


def _running(events: Iterable[tuple[float, int]]) -> Iterator[int]:
    running = 0
    for _, change in events:
        running += change
        yield running


class Claimer:
    def __init__(self, store: Store, orders: Orders, file: int, number: int) -> None:
        self._store = store
        self._name = f"{orders.name}.{number}"
        self._lease = orders.lease
        self._file = file
        self._random = Random(self._name)
        self._encode = msgspec.json.Encoder().encode

    async def work(self) -> None:
        while True:
            asked_at = monotonic()
            claims = await self._store.claim(
                QUEUE, self._name, self._random.choice((1, 1, 2, 5)), timedelta(seconds=self._lease)
            )
            if claims:
                await self._run(claims, asked_at)
            elif await _is_empty(self._store):
                return
            else:
                await asyncio.sleep(self._random.uniform(0.001, 0.02))

    async def _run(self, claims: list[Claim], asked_at: float) -> None:
        now = monotonic()
        for claim in claims:
            key = claim.args["key"]
            self._write(Mark(str(claim.id), claim.epoch, now, asked_at + self._lease, claim.task, key))
        await asyncio.sleep(self._random.uniform(0, 0.005))
        for claim in claims:
            self._write(Mark(str(claim.id), claim.epoch, monotonic()))
        await self._store.settle([claim.settled(Succeeded()) for claim in claims])

    def _write(self, mark: Mark) -> None:
        os.write(self._file, self._encode(mark) + b"\n")


async def _is_empty(store: Store) -> bool:
    counts = [each for each in await store.counts() if each.queue == QUEUE]
    return not any(each.states[State.QUEUED] + each.states[State.RUNNING] for each in counts)


async def _main(orders: Orders) -> None:
    store = open_store(orders.url)
    await store.setup()
    print("ready", flush=True)
    file = os.open(Path(orders.folder, f"{orders.name}.marks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    await asyncio.gather(*(Claimer(store, orders, file, number).work() for number in range(orders.claimers)))
    await store.close()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(3)


def main() -> None:
    orders = msgspec.json.decode(sys.stdin.readline(), type=Orders)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(_main(orders))
    os._exit(0)  # the listener still reads: an ordinary exit would wait for its lock on stdin


if __name__ == "__main__":
    main()
