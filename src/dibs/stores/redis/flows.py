"""Flows: started, shown and listed. What follows from the end of a step is in ``lua/steps.lua``."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec

from dibs import limits as rules
from dibs.clock import from_micros
from dibs.errors import Refused
from dibs.job import Enqueued, Flow, FlowPage, FlowState, NewFlow, OnFailure, State
from dibs.limits import Limits
from dibs.stores.redis import values
from dibs.stores.redis.looking import Looking
from dibs.stores.redis.scripts import LAYOUT

_STATES = {
    "r": FlowState.RUNNING,
    "s": FlowState.SUCCEEDED,
    "f": FlowState.FAILED,
    "c": FlowState.CANCELLED,
}
_LETTERS = {state: letter for letter, state in _STATES.items()}
_POLICIES = {"s": OnFailure.STOP, "c": OnFailure.CONTINUE}
_POLICY_LETTERS = {policy: letter for letter, policy in _POLICIES.items()}
_STEP = 100
"""The most flows that one script hands out."""
_WIDTH = 7 + len(State)
"""How many values ``tell.lua`` answers for one flow."""


class FlowVerbs(Looking):
    """The verbs of flows; the rest of the store is in ``store.py``."""

    _limits: Limits

    async def start(self, flow: NewFlow) -> Enqueued:
        new = rules.flow(flow, self._limits)
        answer: bytes = await self._link.call(
            self._scripts["start"],
            new.id.hex,
            new.name,
            _POLICY_LETTERS[new.on_failure],
            "" if new.meta == "{}" else new.meta,
            values.pack(values.new_steps(new.steps)),
            LAYOUT,
        )
        if answer not in (b"created", b"there"):
            raise Refused(rules.known_job(values.to_id(answer)))
        return Enqueued(new.id, created=answer == b"created")

    async def flow(self, flow: UUID) -> Flow | None:
        answer = await self._link.call(self._scripts["flow"], flow.hex)
        return _to_flow(answer) if answer else None

    async def flows(
        self, states: Collection[FlowState] | None = None, after: UUID | None = None, limit: int = 100
    ) -> FlowPage:
        letters = "".join(_LETTERS[state] for state in rules.flow_states(states))
        rules.limit(limit)
        found: list[Flow] = []
        behind = "" if after is None else after.hex
        # One more than asked for tells whether there is another page.
        while len(found) <= limit:
            step = min(limit + 1 - len(found), _STEP)
            behind, *known = await self._link.call(self._scripts["flows"], letters, behind, step)
            found += (_to_flow(known[at : at + _WIDTH]) for at in range(0, len(known), _WIDTH))
            if not behind:
                break
        return FlowPage(tuple(found[:limit]), found[limit - 1].id if len(found) > limit else None)


def _to_flow(known: Sequence[Any]) -> Flow:
    flow, state, on_failure, created_at, finished_at, name, meta, *counts = known
    return Flow(
        id=values.to_id(flow),
        name=name.decode(),
        state=_STATES[state.decode()],
        on_failure=_POLICIES[on_failure.decode()],
        created_at=from_micros(int(created_at)),
        finished_at=from_micros(int(finished_at)) if finished_at else None,
        steps=dict(zip(State, counts, strict=True)),
        meta=msgspec.json.decode(meta) if meta else {},
    )
