"""A batch operation on many jobs, while workers go on: does it leave the store to them?

    python bench/admin.py                                       100,000 jobs on each store, on servers of its own
    python bench/admin.py --store postgres --jobs 10000
    python bench/admin.py --url postgresql://localhost/bench    on a store that may be filled

Claims and settles a queue in another process, while a batch cancels the jobs of another queue through the service. The
batch is held up every other second, so that the claims with it and without it are measured side by side, whatever else
the machine does. Says how fast claims were, how far the memory of the server grew, and whether the counts are right.
Ends with 1 if claims fell below 80 %, the memory grew by more than 64 MiB, or a number is wrong.
"""

import argparse
import asyncio
import gc
import multiprocessing
import sys
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgspec
import psutil

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

import dibs  # noqa: E402
from bench.lib.arenas import arena  # noqa: E402
from dibs.http.service import Service  # noqa: E402
from dibs.http.service.batches import SHARE, Batches  # noqa: E402
from dibs.http.service.data import BatchGiven, BatchState, JobFilter, Verb  # noqa: E402
from dibs.ids import new_id  # noqa: E402
from dibs.job import Changed, NewJob, State  # noqa: E402
from dibs.outcome import Succeeded  # noqa: E402
from dibs.stores import open_store  # noqa: E402

CLAIMS = 20
"""How many jobs a claim takes: what a busy worker does."""
LEAST = 0.8
MOST_GROWN = 64 * 2**20
LEASE = timedelta(minutes=5)


class Result(msgspec.Struct, frozen=True):
    """What was seen."""

    jobs: int
    done: int
    """How many the batch says that it cancelled."""
    cancelled: int
    """How many are."""
    left: int
    seconds: float
    alone: float
    """Claimed and settled a second while it was held up."""
    meanwhile: float
    """And while it ran."""
    claimed_meanwhile: int
    grown: int
    """Bytes by which the server's memory grew while the batch ran."""

    @property
    def share(self) -> float:
        return self.meanwhile / self.alone

    @property
    def right(self) -> bool:
        """The counts, and the memory."""
        return self.done == self.cancelled == self.jobs and self.left == 0 and self.grown <= MOST_GROWN


# --- the worker, in a process of its own --------------------------------------------------------------------------


def work(url: str, ready: Event, over: Event, claimed: Any) -> None:
    asyncio.run(_work(url, ready, over, claimed))


async def _work(url: str, ready: Event, over: Event, claimed: Any) -> None:
    """Claims, settles, and puts new jobs in, so that there is always something to claim."""
    store = open_store(url)
    await store.setup()
    await store.enqueue([NewJob(task="t", queue="busy") for _ in range(CLAIMS * 5)])
    ready.set()
    while not over.is_set():
        claims = await store.claim("busy", "bench", CLAIMS, LEASE)
        await store.settle([claim.settled(Succeeded()) for claim in claims])
        await store.enqueue([NewJob(task="t", queue="busy") for _ in claims])
        claimed.value += len(claims)
    await store.close()


# --- the server, here ---------------------------------------------------------------------------------------------


class Gated(Batches):
    """Goes on only while the gate is open."""

    gate: asyncio.Event

    async def _step(self, *args: Any) -> Changed:
        await self.gate.wait()
        return await super()._step(*args)


async def measure(url: str, jobs: int, window: float = 1.0, share: float = SHARE) -> Result:
    """Cancel so many jobs, with the gate open and closed by turns."""
    app = dibs.App(url)
    context = multiprocessing.get_context("spawn")
    ready, over, claimed = context.Event(), context.Event(), context.Value("q", 0)
    async with app:
        store, many = await app.store(), f"many-{new_id()}"
        for at in range(0, jobs, 5_000):
            count = min(5_000, jobs - at)
            await store.enqueue([NewJob(task="t", queue=many, args={"n": n}) for n in range(count)])
        worker = context.Process(target=work, args=(url, ready, over, claimed), daemon=True)
        worker.start()
        try:
            await asyncio.to_thread(ready.wait)
            result = await _cancel(app, many, claimed, window, share)
            result = msgspec.structs.replace(result, jobs=jobs)
        finally:
            over.set()
            await asyncio.to_thread(worker.join, 10)
        [states] = [each.states for each in await store.counts() if each.queue == many]
    return msgspec.structs.replace(result, cancelled=states[State.CANCELLED], left=states[State.QUEUED])


async def _cancel(app: dibs.App, queue: str, claimed: Any, window: float, share: float) -> Result:
    service = Service(app)
    runner = Gated(service.store, service.clock, service.redaction, service.audit_trail, lambda: None)
    runner.gate, runner.share = asyncio.Event(), share
    which = JobFilter(queue=(queue,))
    counted = await runner.change(BatchGiven(verb=Verb.CANCEL, which=which, dry_run=True), "bench")
    gc.collect()
    process = psutil.Process()
    memory = most = process.memory_info().rss
    batch = await runner.change(BatchGiven(verb=Verb.CANCEL, which=which, confirm=counted.count), "bench")
    seen = {True: [0, 0.0], False: [0, 0.0]}
    while (now := await runner.get(batch.id)) is not None and now.state is BatchState.RUNNING:
        for is_open in (False, True):
            (runner.gate.set if is_open else runner.gate.clear)()
            begun, start = claimed.value, time.perf_counter()
            with suppress(TimeoutError):
                async with asyncio.timeout(window):
                    await (runner.wait(batch.id) if is_open else asyncio.sleep(window))
            seen[is_open][0] += claimed.value - begun
            seen[is_open][1] += time.perf_counter() - start
            most = max(most, process.memory_info().rss)
    assert now is not None
    await service.close()
    (meanwhile, during), (alone, without) = seen[True], seen[False]
    return Result(
        counted.count, now.done, 0, 0, during, alone / without, meanwhile / during, int(meanwhile), most - memory
    )


def report(result: Result) -> str:
    return (
        f"{result.done:,} of {result.jobs:,} cancelled in {result.seconds:.1f} s, {result.left:,} left; "
        f"claims {result.meanwhile:,.0f}/s meanwhile, {result.alone:,.0f}/s alone ({result.share:.0%}); "
        f"memory +{result.grown / 2**20:.1f} MiB"
    )


async def _there(name: str, jobs: int, share: float) -> Result:
    """On a server of its own."""
    ground = arena(name)
    try:
        await ground.start()
        await (await ground.open("dibs", 1)).close()  # an empty store
        assert ground.url is not None
        return await measure(ground.url, jobs, share=share)
    finally:
        await ground.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="sqlite,postgres,redis", help="names, with commas between them")
    parser.add_argument("--url")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=SHARE, help="of its time, in which the batch works")
    given = parser.parse_args()
    asked = (
        {given.url.partition(":")[0]: measure(given.url, given.jobs, share=given.share)}
        if given.url
        else {name: _there(name, given.jobs, given.share) for name in given.store.split(",")}
    )
    fine = True
    for name, measured in asked.items():
        result = asyncio.run(measured)
        print(f"{name}: {report(result)}", flush=True)
        fine = fine and result.right and result.share >= LEAST
    print("fine" if fine else "not fine: claims below 80 %, too much memory, or wrong numbers")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
