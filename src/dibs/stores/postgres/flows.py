"""Flows in PostgreSQL: the verbs that begin and show them. All that follows from the end of a step is in SQL."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.job import Enqueued, Flow, FlowPage, FlowState, NewFlow
from dibs.limits import AdmittedFlow, AdmittedStep, Limits
from dibs.stores.postgres import rows
from dibs.stores.postgres.places import Places
from dibs.stores.postgres.wakeups import Waker

_START = "select id, created from dibs.start_flow($1, $2, $3, $4, $5, wake => $6)"
_FIND = "select * from dibs.find_flows($1, $2, $3)"


class FlowVerbs(ABC):
    """``start``, ``flow``, ``flows``."""

    _limits: Limits
    _places: Places
    _waker: Waker

    @abstractmethod
    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """The rows that a statement answers."""

    async def start(self, flow: NewFlow) -> Enqueued:
        new = rules.flow(flow, self._limits)
        queues = {step.job.queue for step in new.steps if not step.needs}
        at_once = self._waker.at_once(queues)
        with self._places.unsettled(any(step.job.run_at is not None for step in new.steps)):
            [answer] = await self._fetch(_START, *arguments(new), at_once)
        if not at_once:
            self._waker.soon(queues)
        return Enqueued(*answer)

    async def flow(self, flow: UUID) -> Flow | None:
        found = await self._fetch("select * from dibs.get_flow($1)", flow)
        return rows.flow(found[0]) if found else None

    async def flows(
        self, states: Collection[FlowState] | None = None, after: UUID | None = None, limit: int = 100
    ) -> FlowPage:
        wanted = None if states is None else [state.value for state in rules.flow_states(states)]
        found = await self._fetch(_FIND, wanted, after, rules.limit(limit) + 1)
        page = tuple(rows.flow(row) for row in found[:limit])
        return FlowPage(page, page[-1].id if len(found) > limit else None)


def arguments(flow: AdmittedFlow) -> tuple[str, str, str, str, UUID]:
    """What ``dibs.start_flow`` takes: name, steps, on_failure, meta, id."""
    return flow.name, steps_json(flow.steps), flow.on_failure.value, flow.meta, flow.id


def steps_json(steps: Sequence[AdmittedStep]) -> str:
    """The steps as ``dibs.add_steps`` takes them: arguments go in as the text they were checked as."""
    listed = []
    for step in steps:
        given = {"name": step.name, "needs": step.needs, **msgspec.structs.asdict(step.job)}
        given["args"], given["meta"] = msgspec.Raw(step.job.args.encode()), msgspec.Raw(step.job.meta.encode())
        listed.append(given)
    return msgspec.json.encode(listed).decode()
