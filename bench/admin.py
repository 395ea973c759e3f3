"""A batch operation on many jobs, while workers go on: does it leave the store to them?

    python bench/admin.py                                      three times 100,000 jobs on SQLite
    python bench/admin.py --url postgresql://localhost/bench    on a store that may be emptied
    python bench/admin.py --jobs 10000

Claims and settles a queue in another process, first alone, then while a batch cancels the jobs of another queue through
the service. Says how fast claims were, how far the memory of the server grew, and whether the counts are right. Ends
with 1 if claims fell below 80 %, the memory grew by more than 64 MiB, or a number is wrong.
"""

import argparse
import asyncio
import gc
import multiprocessing
import sys
import tempfile
import time
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psutil

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

import dibs  # noqa: E402
from dibs.http.service import Service  # noqa: E402
from dibs.http.service.data import BatchGiven, BatchState, JobFilter, Verb  # noqa: E402
from dibs.ids import new_id  # noqa: E402
from dibs.job import NewJob, State  # noqa: E402
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
    """Claimed and settled a second before it."""
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


async def measure(url: str, jobs: int, seconds: float) -> Result:
    """Alone for ``seconds``, then with the batch, then alone again; the two times alone are taken together."""
    app = dibs.App(url)
    context = multiprocessing.get_context("spawn")
    ready, over, claimed = context.Event(), context.Event(), context.Value("q", 0)
    async with app:
        store = await app.store()
        many = f"many-{new_id()}"
        for at in range(0, jobs, 5_000):
            count = min(5_000, jobs - at)
            await store.enqueue([NewJob(task="t", queue=many, args={"n": n}) for n in range(count)])
        worker = context.Process(target=work, args=(url, ready, over, claimed), daemon=True)
        worker.start()
        try:
            await asyncio.to_thread(ready.wait)
            service = Service(app)
            before = await _rate(claimed, seconds)
            result = await _cancel(service, many, jobs, claimed)
            after = await _rate(claimed, seconds)
            await service.close()
        finally:
            over.set()
            await asyncio.to_thread(worker.join, 10)
        counts = {each.queue: each.states for each in await store.counts()}
    made = msgspec.structs.replace(result, alone=(before + after) / 2)
    return msgspec.structs.replace(made, cancelled=counts[many][State.CANCELLED], left=counts[many][State.QUEUED])


async def _rate(claimed: Any, seconds: float) -> float:
    begun, start = claimed.value, time.perf_counter()
    await asyncio.sleep(seconds)
    return float((claimed.value - begun) / (time.perf_counter() - start))


async def _cancel(service: Service, queue: str, jobs: int, claimed: Any) -> Result:
    which = JobFilter(queue=(queue,))
    counted = await service.change(BatchGiven(verb=Verb.CANCEL, which=which, dry_run=True), "bench")
    gc.collect()
    process = psutil.Process()
    memory, begun, start = process.memory_info().rss, claimed.value, time.perf_counter()
    batch = await service.change(BatchGiven(verb=Verb.CANCEL, which=which, confirm=counted.count), "bench")
    most = memory
    while batch.state is BatchState.RUNNING:
        await asyncio.sleep(0.1)
        most = max(most, process.memory_info().rss)
        batch = await service.batch(batch.id)
    took, did = time.perf_counter() - start, claimed.value - begun
    return Result(jobs, batch.done, 0, 0, took, 0.0, did / took, did, most - memory)


def report(result: Result) -> str:
    return (
        f"{result.done:,} of {result.jobs:,} cancelled in {result.seconds:.1f} s, {result.left:,} left; "
        f"claims {result.meanwhile:,.0f}/s meanwhile, {result.alone:,.0f}/s alone ({result.share:.0%}); "
        f"memory +{result.grown / 2**20:.1f} MiB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long claims are measured alone")
    parser.add_argument("--rounds", type=int, default=3, help="each with jobs of its own; the middle share counts")
    given = parser.parse_args()
    found = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            url = given.url or f"sqlite:///{Path(folder) / 'jobs.db'}?migrate=auto"
            found.append(asyncio.run(measure(url, given.jobs, given.seconds)))
        print(report(found[-1]))
    share = median(result.share for result in found)
    fine = share >= LEAST and all(result.right for result in found)
    print(f"claims at {share:.0%}: {'fine' if fine else 'not fine'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
