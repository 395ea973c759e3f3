"""Claimers that race for jobs, in processes of their own: ``python -m dibs.testing.racer``.

Reads the orders of all as one line of JSON, a list, and forks a process for each: what they import is imported once.
Says their process ids in one line, "ready" for each, and lets them go at the next line that it reads. When all have
ended it says how, and it ends, with all of them, when its input does: none can outlive the one who started it.
``race`` is the same for a thread.
"""

import asyncio
import os
import sys
import threading
import traceback
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from time import monotonic
from uuid import UUID

import msgspec

from dibs.job import UNFINISHED, Claim
from dibs.outcome import Succeeded, Verdict
from dibs.store import Store
from dibs.stores import open_store
from dibs.testing.oracle import Log, Run

Place = tuple[int, datetime, UUID]


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of claimers has to do."""

    name: str
    url: str = ""
    folder: str
    queue: str = "race"
    claimers: int = 1
    batches: tuple[int, ...] = (1,)
    """Each claim asks for one of these many jobs."""
    lease: float = 300.0
    limited: bool = False
    """A claim may come back empty although jobs are left, and the order is that of those that have room."""
    hold: int = 0
    """If not 0: claim this many, say "holding" and sit on them until killed."""


async def race(store: Store, orders: Orders) -> None:
    """Claim and settle until no job is left."""
    names = [f"{orders.name}.{n}" for n in range(orders.claimers)]
    await asyncio.gather(*(_claimer(store, orders, name) for name in names))


async def _claimer(store: Store, orders: Orders, worker: str) -> None:
    random, lease = Random(worker), timedelta(seconds=orders.lease)
    log = Log(Path(orders.folder, f"{worker}.log"))
    last: Place | None = None
    try:
        while True:
            claims = await store.claim(orders.queue, worker, random.choice(orders.batches), lease)
            start = monotonic()
            if not claims:
                if orders.limited and await _is_left(store, orders.queue):
                    await asyncio.sleep(random.random() / 50)  # there is nothing that would say that a slot is free
                    continue
                return
            if not orders.limited:
                last = _in_order(claims, worker, last)
            await asyncio.sleep(0)
            await _settle(store, claims, start, log)
    finally:
        log.close()


def _in_order(claims: list[Claim], worker: str, last: Place | None) -> Place:
    """The last place; what a claimer gets comes in order, in each call and from call to call."""
    places = [(claim.priority, claim.run_at, claim.id) for claim in claims]
    if places != sorted(places) or (last is not None and places[0] < last):
        raise AssertionError(f"{worker} got jobs out of order")
    return places[-1]


async def _is_left(store: Store, queue: str) -> bool:
    """Whether jobs are unfinished."""
    states = next(each.states for each in await store.counts() if each.queue == queue)
    return any(states[each] for each in UNFINISHED)


async def _settle(store: Store, claims: list[Claim], start: float, log: Log) -> None:
    end = monotonic()
    verdicts = await store.settle([claim.settled(Succeeded(claim.worker)) for claim in claims])
    for claim, verdict in zip(claims, verdicts, strict=True):
        log.add(
            Run(
                job=claim.id,
                epoch=claim.epoch,
                worker=claim.worker,
                start=start,
                end=end,
                verdict=verdict,
            )
        )
        if verdict is not Verdict.ACCEPTED:
            raise AssertionError(f"{claim.worker} lost {claim.id} within its lease")


def _say(line: str) -> None:
    """In one write: all racers have the same output."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


async def _hold(store: Store, orders: Orders) -> None:
    lease, held = timedelta(seconds=orders.lease), 0
    while held < orders.hold:
        held += len(await store.claim(orders.queue, orders.name, orders.hold - held, lease))
    _say("holding")
    await asyncio.Event().wait()


async def _main(orders: Orders, go: threading.Event) -> None:
    store = open_store(orders.url)
    await store.setup()
    try:
        _say("ready")
        await asyncio.to_thread(go.wait)
        await (_hold if orders.hold else race)(store, orders)
    finally:
        await store.close()


async def _visit(url: str) -> None:
    """Whatever a store imports when it is opened is there for all that are forked after this."""
    store = open_store(url)
    await store.setup()
    await store.close()


def _fork(orders: Orders, others: list[int]) -> tuple[int, int]:
    """The process id of a racer, and the pipe that lets it go and ends it; those of ``others`` are not its business."""
    heard, said = os.pipe()
    if pid := os.fork():
        os.close(heard)
        return pid, said
    for pipe in (said, *others):
        os.close(pipe)
    code, go = 1, threading.Event()
    try:
        threading.Thread(target=_listen, args=[heard, go], daemon=True).start()
        asyncio.run(_main(orders, go))
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)  # an ordinary exit would run what the first process has to run at its end


def _listen(heard: int, go: threading.Event) -> None:
    """The first byte is the start, the end of the pipe is the end."""
    with open(heard, "rb", buffering=0) as pipe:
        if pipe.read(1):
            go.set()
        pipe.read(1)
    os._exit(3)


def _end_with_owner() -> None:
    sys.stdin.read()
    os._exit(3)


def main() -> None:
    crew = msgspec.json.decode(sys.stdin.readline(), type=list[Orders])
    asyncio.run(_visit(crew[0].url))
    racers: list[tuple[int, int]] = []
    for orders in crew:
        racers.append(_fork(orders, [pipe for _, pipe in racers]))
    _say(" ".join(str(pid) for pid, _ in racers))
    if not sys.stdin.readline():
        os._exit(3)
    threading.Thread(target=_end_with_owner, daemon=True).start()
    for _, pipe in racers:
        os.write(pipe, b"!")
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _ in racers]
    _say(" ".join(["ended", *map(str, ends)]))
    os._exit(0)  # the listener still reads: an ordinary exit would wait for its lock on stdin


if __name__ == "__main__":
    main()
