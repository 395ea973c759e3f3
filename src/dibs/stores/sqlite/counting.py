"""Counting jobs: all of them, or no more than somebody wants to wait for."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta

from dibs.clock import from_micros
from dibs.job import Order, QueueCounts, State
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection

LANES = 500
"""How many lanes are counted by whoever does not want to wait: a queue has one for each priority, and for each limit
key that was set aside."""
TIMES = 20
"""And in so many times as many jobs as of one state."""


class _Tally:
    """What was counted of one queue."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(State, 0)
        self.scheduled = 0
        self.oldest: int | None = None
        self.more: set[State] = set()

    @property
    def ready(self) -> int:
        return self.states[State.QUEUED] - self.scheduled

    def due(self, count: int, oldest: int | None) -> None:
        self.states[State.QUEUED] += count
        if oldest is not None:
            self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)

    def later(self, count: int) -> None:
        self.states[State.QUEUED] += count
        self.scheduled += count


Tallies = defaultdict[str, _Tally]


def counts(db: Connection, now: int) -> list[QueueCounts]:
    """All jobs."""
    found = Tallies(_Tally)
    count = sql.COUNT_UNFINISHED if db.rows(sql.EXPIRED_IN_LINE) else sql.COUNT_INDEXED
    for queue, state, number, scheduled, oldest in db.rows(count, (now,)):
        tally = found[queue]
        tally.states[State(state)] = number
        if state == State.QUEUED:
            tally.scheduled, tally.oldest = scheduled, oldest
    for queue, state, number in db.rows(sql.COUNT_FINISHED):
        found[queue].states[State(state)] = number
    return _told(db, found)


def counts_up_to(db: Connection, now: int, most: int) -> list[QueueCounts]:
    """About so many of each state: first those in line, by lanes, then the others."""
    found = Tallies(_Tally)
    _in_line(db, found, now, most)
    others = db.rows(sql.COUNT_SOME, (most,))
    total = Counter[str]()
    for queue, state, number in others:
        total[state] += number
        if state == "in line":  # it was counted as due
            found[queue].states[State.QUEUED] = max(0, found[queue].states[State.QUEUED] - number)
        else:
            found[queue].states[State(state)] = number
    for state in State:
        if total[state] >= most:
            _not_all(found.values(), state)
    return _told(db, found)


def _in_line(db: Connection, found: Tallies, now: int, most: int) -> None:
    """What is queued. Of a queue that has many already, the other lanes are only looked at for the oldest."""
    lanes, left = db.rows(sql.LANES_IN_LINE, (LANES,)), most * TIMES
    for queue, line, priority in lanes:
        tally = found[queue]
        room = max(1, min(most - tally.ready, left))
        [(due, oldest)] = db.rows(sql.COUNT_DUE, (queue, line, priority, now, room))
        tally.due(due, oldest)
        later_room = max(1, min(most - tally.scheduled, left))
        [(later,)] = db.rows(sql.COUNT_SCHEDULED, (queue, line, priority, now, later_room))
        tally.later(later)
        left -= due + later
        if due >= room or later >= later_room:
            tally.more.add(State.QUEUED)
    if len(lanes) >= LANES:
        _not_all(found.values(), State.QUEUED)


def _not_all(tallies: Iterable[_Tally], state: State) -> None:
    for tally in tallies:
        tally.more.add(state)


def _told(db: Connection, found: Tallies) -> list[QueueCounts]:
    settings = {
        name: (bool(paused), Order(order), None if ageing is None else timedelta(microseconds=ageing))
        for name, paused, order, ageing in db.rows(sql.SETTINGS)
    }
    return [
        QueueCounts(
            queue=name,
            paused=paused,
            order=order,
            ageing=ageing,
            states=tally.states,
            scheduled=tally.scheduled,
            oldest_due=None if tally.oldest is None else from_micros(tally.oldest),
            more=frozenset(tally.more),
        )
        for name in sorted({*found, *settings})
        for paused, order, ageing in [settings.get(name, (False, Order.FIFO, None))]
        for tally in [found[name]]
    ]
