"""What the demo's shop has to do, and a worker of the plainest kind that does it: claim, run, settle."""

import asyncio
import hashlib
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from time import monotonic

from dibs.job import FINISHED, Claim, NewJob, Priority
from dibs.outcome import Outcome, Retry, Succeeded
from dibs.stores import open_store
from dibs.testing.oracle import Log, Run

QUEUE = "demo"
LEASE = timedelta(seconds=2)
BATCH = 20
PAUSE = 0.004


def orders(count: int) -> Iterator[NewJob]:
    """A believable mix: much mail, some pictures, a few payments that need a second try, and a little poison."""
    random = Random(7)
    for number in range(count):
        dice = random.random()
        if dice < 0.01:
            yield NewJob(task="poison", args={"order": number}, queue=QUEUE, max_attempts=3)
        elif dice < 0.06:
            yield NewJob(task="payment", args={"order": number}, queue=QUEUE, priority=Priority.HIGH)
        elif dice < 0.30:
            yield NewJob(task="thumbnail", args={"picture": number}, queue=QUEUE, priority=Priority.LOW)
        else:
            yield NewJob(task="mail", args={"to": f"customer-{number}@example.com"}, queue=QUEUE)


def work(url: str, folder: str, name: str) -> None:
    """One worker, in a process of its own, until no job is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's business, it ends its workers
    asyncio.run(_work(url, Path(folder), name))


async def _work(url: str, folder: Path, name: str) -> None:
    store, log = open_store(url), Log(folder / f"{name}.log")
    await store.setup()
    while True:
        claims = await store.claim(QUEUE, name, BATCH, LEASE)
        if not claims:
            [queue] = [each for each in await store.counts() if each.queue == QUEUE]
            if not sum(count for state, count in queue.states.items() if state not in FINISHED):
                break
            await store.wait([QUEUE], timedelta(seconds=1))
            continue
        runs = [await _run(claim) for claim in claims]
        ended = monotonic()
        verdicts = await store.settle(
            [claim.settled(outcome) for claim, (_, outcome) in zip(claims, runs, strict=True)]
        )
        for claim, (start, outcome), verdict in zip(claims, runs, verdicts, strict=True):
            kind = "succeeded" if isinstance(outcome, Succeeded) else "retry"
            log.add(
                Run(job=claim.id, epoch=claim.epoch, worker=name, start=start, end=ended, outcome=kind, verdict=verdict)
            )
    await store.close()


async def _run(claim: Claim) -> tuple[float, Outcome]:
    start = monotonic()
    await asyncio.sleep(PAUSE)
    if claim.task == "poison":
        return start, Retry("ValueError: this order cannot be read", timedelta(milliseconds=200))
    if claim.task == "payment" and claim.attempt == 1 and claim.args["order"] % 2:
        return start, Retry("TimeoutError: the bank did not answer", timedelta(seconds=1))
    if claim.task == "thumbnail":
        return start, Succeeded(hashlib.sha256(str(claim.args["picture"]).encode() * 1_000).hexdigest())
    return start, Succeeded()
