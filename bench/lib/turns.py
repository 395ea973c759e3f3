"""One of those who take turns in ``bench/since.py``: claims and settles when told to, and says how long it took.

Started as ``python -m bench.lib.turns URL BATCH JOBS`` with any version of dibs: it uses nothing that is new.
"""

import asyncio
import sys
import time
from datetime import timedelta
from uuid import UUID, uuid4

from dibs import NewJob, Store, open_store
from dibs.outcome import Succeeded, Verdict

LEASE = timedelta(hours=1)
CHUNK = 1_000


async def main(url: str, batch: int, jobs: int) -> None:
    """Fill a queue of its own, then work off as many as each line of the input says."""
    store, queue = open_store(url), f"turns-{uuid4().hex[:8]}"
    await store.setup()
    try:
        for start in range(0, jobs, CHUNK):
            many = range(start, min(jobs, start + CHUNK))
            await store.enqueue([NewJob(task="send", queue=queue, args={"to": "ada@shop.test", "n": n}) for n in many])
        print("ready", flush=True)
        seen: set[UUID] = set()
        for line in sys.stdin:
            began = time.perf_counter()
            await work(store, queue, batch, int(line), seen)
            print(time.perf_counter() - began, flush=True)
    finally:
        await store.close()


async def work(store: Store, queue: str, batch: int, count: int, seen: set[UUID]) -> None:
    """Claim and settle; ends the program if a job comes twice, is missing, or is not accepted."""
    before = len(seen)
    while len(seen) < before + count:
        claims = await store.claim(queue, "turns", batch, LEASE)
        verdicts = await store.settle([claim.settled(Succeeded({"sent": True})) for claim in claims])
        ids = {claim.id for claim in claims}
        if not claims or len(ids) < len(claims) or ids & seen or set(verdicts) != {Verdict.ACCEPTED}:
            sys.exit("a job is missing, came twice, or was not accepted")
        seen |= ids


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
