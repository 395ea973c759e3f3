"""The Redis store: checks, packs, calls one script, unpacks. What happens, happens in ``lua/``."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import span_micros
from dibs.job import (
    Claim,
    Enqueued,
    Job,
    NewJob,
    OnConflict,
    Order,
    Report,
    Retention,
    Settlement,
)
from dibs.limits import Limits
from dibs.outcome import Pulse, Verdict
from dibs.store import CHUNK, Offer
from dibs.stores.redis import options as opts
from dibs.stores.redis import values
from dibs.stores.redis.checks import check
from dibs.stores.redis.flows import FlowVerbs
from dibs.stores.redis.keeping import Keeping
from dibs.stores.redis.limiting import Limiting
from dibs.stores.redis.link import Link
from dibs.stores.redis.offers import Offers
from dibs.stores.redis.scripts import ADDING, LAYOUT, REPLACING, Script, clock, scripts
from dibs.stores.redis.waiting import Waiting
from dibs.stores.redis.watch import WatchClaim

_VERDICTS = {ord("a"): Verdict.ACCEPTED, ord("l"): Verdict.LOST}
_PULSES = {ord("h"): Pulse.HELD, ord("c"): Pulse.CANCEL, ord("l"): Pulse.LOST}
_STEP = 500
"""The most jobs that one script takes, renews, settles, sweeps or prunes, so that none runs for long. Each of
them answers for itself and can be sent again, so a call for more may be done in parts."""


class RedisStore(Keeping, Limiting, FlowVerbs):
    """Jobs in Redis 6.2 or newer, or Valkey; many processes may share it."""

    def __init__(
        self,
        url: str,
        *,
        claim: str | None = None,
        prefix: str | None = None,
        pool: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        parsed = opts.parse(url)
        if claim is not None:
            parsed = msgspec.structs.replace(parsed, claim=opts.claim_way(claim))
        if prefix is not None:
            parsed = msgspec.structs.replace(parsed, prefix=opts.prefix(prefix))
        if pool is not None:
            parsed = msgspec.structs.replace(parsed, pool=pool)
        if limits is None:
            limits = rules.DEFAULT if parsed.max_bytes is None else Limits(parsed.max_bytes)
        self._limits = limits
        self._link = Link(parsed)
        self._scripts = self._load()
        self._offers = Offers(self._link, self._scripts["offer"])
        self._waiting = Waiting(self._link, self._scripts["ready"], self._offers)
        self._watch = self._watcher() if parsed.claim == "watch" else None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """The store that a URL names, with the options in its query."""
        return cls(url)

    def _load(self) -> dict[str, Script]:
        return scripts(clock())

    def _watcher(self) -> WatchClaim:
        return WatchClaim(self._link, self._scripts["aside"])

    async def setup(self) -> None:
        await check(self._link)

    async def close(self) -> None:
        await self._waiting.close()
        await self._link.close()

    async def wait(self, queues: Sequence[str], timeout: timedelta, worker: str | None = None) -> frozenset[str]:
        return await self._waiting.wait(queues, timeout, worker)

    async def offer(self, queues: Sequence[str], offer: Offer) -> bool:
        if self._watch is not None:
            return False  # where no script claims, none does so for others
        return await self._offers.make(queues, offer)

    async def retract(self, worker: str) -> bool:
        return await self._offers.retract(worker)

    # --- the life of a job ----------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        admitted = rules.admit(jobs, self._limits)
        if len(admitted) == 1 and values.is_usual(admitted[0]):
            [job] = admitted
            known = await self._link.call(self._scripts["one"], *values.one_job(job), LAYOUT, brief=True)
            return [Enqueued(job.id, created=not known)]
        if not admitted:
            return []
        batch = values.pack([values.new_job(job) for job in admitted])
        records = [values.new_record(job) for job in admitted]
        replacing = any(job.on_conflict is not OnConflict.EXISTING for job in admitted)
        script = self._scripts[REPLACING if replacing else "enqueue"]
        there = await self._link.call(script, batch, LAYOUT, *records, brief=len(records) == 1)
        answers = [Enqueued(job.id, created=True) for job in admitted]
        for at in range(0, len(there), 2):
            position = there[at]
            answers[abs(position) - 1] = Enqueued(values.to_id(there[at + 1]), created=False, changed=position < 0)
        return answers

    async def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        lease: timedelta,
        tasks: Collection[str] | None = None,
    ) -> list[Claim]:
        known = rules.claimable(queue, worker, limit, lease, tasks)
        if self._watch is not None:
            return await self._watch.claim(queue, worker, limit, lease, known)
        script, span = self._scripts["claim"], span_micros(lease)
        packed = b"" if known is None else values.pack(known)
        claims: list[Claim] = []
        while (left := limit - len(claims)) > 0:
            step = min(left, _STEP)
            answer = await self._link.call(script, queue, worker, step, span, packed)
            claims += values.to_claims(answer[2:], answer[1])
            if not answer[0] and len(answer) < 3 * step + 2:
                break
        return claims

    async def heartbeat(
        self,
        worker: str,
        claims: Sequence[Claim],
        lease: timedelta,
        info: Mapping[str, Any] | None = None,
        reports: Mapping[UUID, Report] | None = None,
    ) -> list[Pulse]:
        about = rules.beating(worker, claims, lease, info, self._limits)
        said = rules.reports(reports, claims)
        script, span = self._scripts["heartbeat"], span_micros(lease)
        pulses: list[Pulse] = []
        for at in range(0, len(claims) or 1, _STEP):
            part = claims[at : at + _STEP]
            heard = values.reports(said, part) if said else b""
            answer = await self._link.call(script, worker, span, about or "", values.held(part), heard)
            pulses += [_PULSES[letter] for letter in answer]
        return pulses

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        items = rules.settleable(settlements, self._limits)
        verdicts: list[Verdict] = []
        for at in range(0, len(items), _STEP):
            part = items[at : at + _STEP]
            adding = any(item.steps for item in part)
            script = self._scripts[ADDING if adding else "settle"]
            answer = await self._link.call(script, values.settlements(part))
            verdicts += [_VERDICTS[letter] for letter in answer]
        return verdicts

    async def sweep(self, limit: int = CHUNK, *, not_within: timedelta | None = None) -> int:
        rules.sweeping(limit, not_within)
        return await self._in_steps("sweep", limit)

    async def _in_steps(self, verb: str, limit: int, *args: str | bytes | int) -> int:
        """Ask for at most ``_STEP`` at a time, so that no script runs for long."""
        count = 0
        while count < limit:
            step = min(limit - count, _STEP)
            done: int = await self._link.call(self._scripts[verb], step, *args)
            count += done
            if done < step:
                break
        return count

    async def get(self, job: UUID) -> Job | None:
        found = values.to_jobs(await self._link.call(self._scripts["get"], job.hex))
        return found[0] if found else None

    async def prune(self, retention: Retention, limit: int = CHUNK) -> int:
        rules.limit(limit)
        kept: list[str | int] = []
        for state in ("succeeded", "failed", "cancelled"):
            span: timedelta | None = getattr(retention, state)
            if span is not None:
                kept += (values.KINDS[state], span_micros(span))
        workers_kept = span_micros(rules.WORKERS_KEPT)
        return await self._in_steps("prune", limit, workers_kept, values.pack(kept))

    # --- queues ---------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        await self._configure(queue, "p", "p")

    async def resume(self, queue: str) -> None:
        await self._configure(queue, "p", "")

    async def configure(self, queue: str, *, order: Order = Order.FIFO, ageing: timedelta | None = None) -> None:
        lifo = rules.order(order) is Order.LIFO
        ages = rules.ageing(ageing, order)
        setting = "l" if lifo else "" if ages is None else f"a{span_micros(ages)}"
        await self._configure(queue, "[la]%d*", setting)

    async def _configure(self, queue: str, replaced: str, setting: str) -> None:
        rules.name(queue, "queue")
        await self._link.call(self._scripts["configure"], queue, replaced, setting, LAYOUT)
