"""Filters as SQL: fixed fragments, put together by which fields are given; every value is a parameter."""

from collections.abc import Collection
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from dibs.clock import to_micros
from dibs.job import FINISHED, UNFINISHED, Filter, State

_LISTS = {
    "queues": "queue IN (SELECT value FROM json_each(:queues))",
    "tasks": "task IN (SELECT value FROM json_each(:tasks))",
    "workers": "worker IN (SELECT value FROM json_each(:workers))",
    "keys": "key IN (SELECT value FROM json_each(:keys))",
    "ids": "id IN (SELECT unhex(value) FROM json_each(:ids))",
    "flows": "flow IN (SELECT unhex(value) FROM json_each(:flows))",
}
_TIMES = {
    "created_since": "created_at >= :created_since",
    "created_before": "created_at < :created_before",
    "finished_since": "finished_at >= :finished_since",
    "finished_before": "finished_at < :finished_before",
}
_SOME_STATES = "state IN (SELECT value FROM json_each(:states))"
# The plus keeps SQLite from going by state where nearly every job has it: then the order of ids is the way.
_MANY_STATES = "+" + _SOME_STATES


class Halves(NamedTuple):
    """Conditions on unfinished and on finished jobs, None where none can match; the parameters of both."""

    unfinished: str | None
    finished: str | None
    params: dict[str, Any]


def halves(which: Filter, after: UUID | None, applies: Collection[State] = frozenset(State)) -> Halves:
    """What the filter means in each of the two tables."""
    conditions: list[str] = []
    params: dict[str, Any] = {}
    if after is not None:
        conditions.append("id < :after")
        params["after"] = after.bytes
    for field, fragment in _LISTS.items():
        if (values := getattr(which, field)) is not None:
            conditions.append(fragment)
            params[field] = _json(value.hex if isinstance(value, UUID) else value for value in values)
    for field, fragment in _TIMES.items():
        if (moment := getattr(which, field)) is not None:
            conditions.append(fragment)
            params[field] = to_micros(moment)
    states = set(applies) if which.states is None else set(applies) & {str(state) for state in which.states}
    if not (states >= UNFINISHED and states >= FINISHED):
        params["states"] = _json(sorted(states))
    ended = which.finished_since is not None or which.finished_before is not None
    return Halves(
        None if ended else _half(conditions, states & UNFINISHED, UNFINISHED),
        _half(conditions, states & FINISHED, FINISHED),
        params,
    )


def _half(conditions: list[str], states: set[State], all_of_it: frozenset[State]) -> str | None:
    if not states:
        return None
    if states < all_of_it:
        many = states & {State.SUCCEEDED, State.QUEUED}
        conditions = [*conditions, _MANY_STATES if many else _SOME_STATES]
    return " AND ".join(conditions) or "1"


def _json(values: Any) -> str:
    return msgspec.json.encode(list(values)).decode()
