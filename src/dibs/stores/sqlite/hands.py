"""Threads that work on the file, so that no event loop waits for a disk. Each has a connection of its own."""

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

import apsw

from dibs.clock import Clock, micros_of
from dibs.errors import StoreUnavailable
from dibs.stores.sqlite.connect import Connection, translate

T = TypeVar("T")
Verb = Callable[[Connection, int], T]
"""What a hand does for a caller: works on its connection, told what time it is in microseconds."""

CLOSED = "this SQLite store is closed: call setup() first"


class Ticket:
    """One verb that somebody waits for."""

    __slots__ = ("error", "future", "loop", "value", "verb")

    def __init__(self, verb: Verb[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.verb = verb
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None


def _resolve(tickets: Iterable[Ticket]) -> None:
    for ticket in tickets:
        if ticket.future.done():
            continue  # the caller went away
        if ticket.error is None:
            ticket.future.set_result(ticket.value)
        else:
            ticket.future.set_exception(ticket.error)


def deliver(tickets: list[Ticket]) -> None:
    """Hand out the answers, waking each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        by_loop.setdefault(ticket.loop, []).append(ticket)
    for loop, of_it in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, of_it)
        except RuntimeError:
            continue  # that loop is closed: nobody waits there any more


class _Note(Enum):
    """What lies on a desk between the tickets."""

    NUDGE = auto()
    LAST = auto()


class Group(NamedTuple):
    """What came in since the last look; ``last`` if nothing more will."""

    tickets: list[Ticket]
    last: bool


class Hand(ABC):
    """A thread that takes tickets one after the other. ``lock`` is held whenever it is inside SQLite."""

    most = 1

    def __init__(self, name: str, db: Connection, clock: Clock) -> None:
        self.db = db
        self.lock = threading.Lock()
        self._now = micros_of(clock)
        self._desk: queue.SimpleQueue[Ticket | _Note] = queue.SimpleQueue()
        self._door = threading.Lock()
        self.is_open = True
        self._thread = threading.Thread(target=self._run, name=f"dibs-sqlite-{name}", daemon=True)
        self._thread.start()

    def ask(self, verb: Verb[T]) -> "asyncio.Future[T]":
        """Have the verb done; the answer comes when what it wrote is certain."""
        ticket = Ticket(verb, asyncio.get_running_loop())
        with self._door:
            if not self.is_open:
                raise StoreUnavailable(CLOSED)
            self._desk.put(ticket)
        return ticket.future

    def close(self) -> None:
        """Do what was asked for until now, then give back the thread and the connection. May block."""
        with self._door:
            if self.is_open:
                self.is_open = False
                self._desk.put(_Note.LAST)
        self._thread.join()

    def nudge(self) -> None:
        """Have the thread look up, though nobody asks for anything."""
        self._desk.put(_Note.NUDGE)

    def _run(self) -> None:
        group = Group([], last=False)
        while not group.last:
            group = self._next_group()
            waiting = [ticket for ticket in group.tickets if not ticket.future.cancelled()]
            try:
                self._work(waiting)
            except BaseException as problem:  # whatever it was, somebody waits for an answer
                for ticket in waiting:
                    ticket.error = ticket.error or problem
                deliver(waiting)
        with self.lock:
            self.db.close()

    def _next_group(self) -> Group:
        found = self._desk.get()
        tickets: list[Ticket] = []
        while found is not _Note.LAST:
            if found is not _Note.NUDGE:
                tickets.append(found)
            if len(tickets) == self.most or self._desk.empty():
                return Group(tickets, last=False)
            found = self._desk.get()
        return Group(tickets, last=True)

    @abstractmethod
    def _work(self, tickets: list[Ticket]) -> None:
        """Do what the tickets ask for and deliver the answers."""

    def _do(self, ticket: Ticket) -> None:
        """Run the verb and keep what it answered."""
        ticket.value = ticket.error = None
        try:
            ticket.value = ticket.verb(self.db, self._now())
        except apsw.Error as problem:
            ticket.error = translate(problem, self.db.options)
        except BaseException as problem:
            ticket.error = problem


class Reader(Hand):
    """Reads, without waiting for the writer and without making it wait."""

    def _work(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            with self.lock:
                try:
                    with self.db.reading():
                        self._do(ticket)
                except apsw.Error as problem:
                    ticket.error = translate(problem, self.db.options)
        deliver(tickets)
