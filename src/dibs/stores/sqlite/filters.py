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
# Where an index leads to the jobs of a state. Each is a statement of its own: merged by id, nothing has to be sorted.
_INDEXED = {
    State.RUNNING: "rowid IN (SELECT rowid FROM dibs_jobs INDEXED BY dibs_leases WHERE locked_until IS NOT NULL)",
    State.WAITING: "rowid IN (SELECT rowid FROM dibs_jobs INDEXED BY dibs_special WHERE state = 'waiting')",
    State.FAILED: "state <> 'succeeded' AND state = 'failed'",
    State.CANCELLED: "state <> 'succeeded' AND state = 'cancelled'",
}
UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELLED})


class Halves(NamedTuple):
    """Conditions on unfinished and on finished jobs, a statement for each, none where none can match."""

    unfinished: tuple[str, ...]
    finished: tuple[str, ...]
    params: dict[str, Any]
    states: frozenset[State]
    few: bool
    """Whether an index leads to what matches and, as far as it is many, to nothing else."""

    def by_end(self) -> "Halves":
        """By the time at which they ended, because few did since then."""
        way = (
            "rowid IN (SELECT rowid FROM dibs_history INDEXED BY dibs_finished"
            " WHERE state IN ('succeeded', 'failed', 'cancelled') AND finished_at >= :finished_since)"
        )
        return self._replace(finished=tuple(f"{each} AND {way}" for each in self.finished), few=True)

    def above(self, floor: bytes) -> "Halves":
        """Only ids from this one on."""
        bound = " AND id >= :floor"
        return self._replace(
            unfinished=tuple(each + bound for each in self.unfinished),
            finished=tuple(each + bound for each in self.finished),
            params={**self.params, "floor": floor},
        )


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
    states = set(applies) if which.states is None else {State(each) for each in which.states}.intersection(applies)
    if not (states >= UNFINISHED and states >= FINISHED):
        params["states"] = _json(sorted(states))
    ended = which.finished_since is not None or which.finished_before is not None
    named = which.ids is not None or which.flows is not None
    return Halves(
        () if ended else _half(conditions, states & UNFINISHED, UNFINISHED, named),
        _half(conditions, states & FINISHED, FINISHED, named),
        params,
        frozenset(states),
        named or states <= {State.RUNNING, State.WAITING},
    )


def _half(conditions: list[str], states: set[State], all_of_it: frozenset[State], named: bool) -> tuple[str, ...]:
    if not states:
        return ()
    if states == all_of_it:
        return (" AND ".join(conditions) or "1",)
    if not named and states <= _INDEXED.keys():
        return tuple(" AND ".join([*conditions, _INDEXED[state]]) for state in sorted(states))
    some = _MANY_STATES if states & {State.SUCCEEDED, State.QUEUED} else _SOME_STATES
    return (" AND ".join([*conditions, some]),)


def _json(values: Any) -> str:
    return msgspec.json.encode(list(values)).decode()
