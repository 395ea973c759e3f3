"""The one thread of a handle that writes. What queues up while a commit is on its way shares the next one."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Literal

import apsw

from dibs.clock import Clock
from dibs.errors import StoreUnavailable
from dibs.stores.sqlite.connect import JOURNAL_LIMIT, NOT_AT_ALL, Connection, NoRoom, translate
from dibs.stores.sqlite.hands import CLOSED, Hand, T, Ticket, Verb, deliver
from dibs.stores.sqlite.shortcut import CROWDED_SECONDS, Shortcut

_log = logging.getLogger("dibs.stores.sqlite")

GROUP = 100
"""The most verbs of one transaction."""
GROUP_SECONDS = 0.05
"""A transaction takes no further verb when it is this old: other processes wait for their turn."""
CHECKPOINT_PAGES = 1_000
"""How much the write-ahead log grows between two attempts to copy it into the file."""
RESTART_PAGES = 4_000
"""A log of this length is made to start again, holding up other writers for a moment."""
_CHECKPOINT_PATIENCE = 0.5
_TELL_SECONDS = 60.0
_COURTESY_SECONDS = 0.0005


class _Sign(Enum):
    UNDONE = auto()


UNDONE: Final = _Sign.UNDONE


class Writer(Hand):
    """Runs verbs in groups: each in a savepoint of its own, one commit for all, no answer before it."""

    most = GROUP

    def __init__(self, db: Connection, clock: Clock, committed: Callable[[], None]) -> None:
        self._committed = committed
        self._wal = Wal(db)
        self._shortcut = Shortcut(db.patience)
        super().__init__("writer", db, clock)

    async def ask_briefly(self, verb: Verb[T], single: Verb[T | None] | None = None) -> T:
        """Like ``ask``, for a verb about few jobs: done here and now if that is likely to be quick.

        It then returns without a turn of the event loop, unless the caller has kept the loop for a millisecond.
        ``single`` does the same as the verb in one statement, or nothing and answers None: then the verb has to do. One
        statement is a transaction by itself, and that takes less time than to begin one and to end it.
        """
        if not self._shortcut.take() or not self.lock.acquire(blocking=False):
            return await self.ask(verb)
        try:
            value = self._at_once(verb, single)
        finally:
            self.lock.release()
            if self._shortcut.leave():
                await asyncio.sleep(0)
        return await self.ask(verb) if value is UNDONE else value

    def _at_once(self, verb: Verb[T], single: Verb[T | None] | None) -> T | Literal[_Sign.UNDONE]:
        """The verb and its commit, without waiting for anybody; ``UNDONE`` if the thread should do it instead."""
        if not self.is_open:
            raise StoreUnavailable(CLOSED)
        db, patience = self.db, self.db.patience
        before, patience.seconds = patience.seconds, NOT_AT_ALL
        try:
            value = single(db, self._now()) if single is not None else None
            if value is None:
                db.rows("BEGIN IMMEDIATE")
                value = verb(db, self._now())
                db.commit()
        except (apsw.Error, StoreUnavailable):
            db.rollback()
            return UNDONE
        except BaseException:
            db.rollback()
            raise
        finally:
            patience.seconds = before
        self._committed()
        if self._wal.calls():
            self.nudge()
        return value

    def _work(self, tickets: list[Ticket]) -> None:
        self._shortcut.group_of(len(tickets))
        while tickets:
            self._step_aside()
            with self.lock:
                done = self._group(tickets)
                self._squeeze(tickets[:done])
            deliver(tickets[:done])
            self._committed()
            tickets = tickets[done:]
        if self._wal.is_due():
            self._wal.flush()
            with self.lock:
                self._wal.tend()

    def _step_aside(self) -> None:
        """Leave a gap for other processes if there are some: who just committed would nearly always win."""
        if time.monotonic() - self.db.patience.waited_at < CROWDED_SECONDS:
            time.sleep(_COURTESY_SECONDS)

    def _group(self, tickets: list[Ticket]) -> int:
        """Do as many of the tickets as fit into one transaction; answers how many."""
        done = 0
        try:
            self.db.begin()
            until = time.monotonic() + GROUP_SECONDS
            for ticket in tickets:
                done += 1
                self._verb(ticket, alone=len(tickets) == 1)
                if time.monotonic() > until:
                    break
            self.db.commit()
        except apsw.Error as problem:
            return self._undone(tickets[:done] or tickets, problem)
        return done

    def _verb(self, ticket: Ticket, *, alone: bool) -> None:
        """One verb; if it fails, nothing of it stays and the others of its group go on."""
        db = self.db
        if alone:
            self._do(ticket)
            if ticket.error is not None:
                db.rollback()
            return
        db.rows("SAVEPOINT dibs_verb")
        self._do(ticket)
        if ticket.error is not None:
            db.rows("ROLLBACK TO dibs_verb")  # fails if SQLite already gave up the whole transaction
        db.rows("RELEASE dibs_verb")

    def _undone(self, tickets: list[Ticket], problem: apsw.Error) -> int:
        """Nothing of the group was stored; the reason is the first that was given."""
        self.db.rollback()
        errors = (ticket.error for ticket in tickets if isinstance(ticket.error, StoreUnavailable))
        error = next(errors, None) or translate(problem, self.db.options)
        for ticket in tickets:
            ticket.value, ticket.error = None, error
        return len(tickets)

    def _squeeze(self, tickets: list[Ticket]) -> None:
        """What found no room tries again alone, with a shorter log: a settle may fit where an enqueue did not."""
        refused = [ticket for ticket in tickets if isinstance(ticket.error, NoRoom)]
        if refused:
            self._wal.shorten()
        for ticket in refused:
            self._group([ticket])


class Wal:
    """Keeps the write-ahead log short: copies it into the file after the answers went out, not before."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._log = db.log
        self._synced = db.options.synchronous == "full"
        self._called = False
        self._pages = 0
        self._due = CHECKPOINT_PAGES
        self._told_at = -_TELL_SECONDS
        self._page_size: int = db.rows("PRAGMA page_size")[0][0]
        db.raw.set_wal_hook(self._written)

    def _written(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._pages:
            self._due = CHECKPOINT_PAGES  # it started again from its beginning
        self._pages = pages
        return apsw.SQLITE_OK

    def is_due(self) -> bool:
        """Whether the log has grown enough to be looked after."""
        return self._pages >= self._due

    def calls(self) -> bool:
        """The same, said once: whoever is told sends somebody."""
        if self._called or self._pages < self._due:
            return False
        self._called = True
        return True

    def flush(self) -> None:
        """Have the disk take what the log holds while others write on: who copies from it then need not wait for that.

        Where commits do not wait for the disk, nothing else did. It is done through a descriptor of its own, and not
        the connection, which others use meanwhile. No lock of SQLite is on this file that closing it could take away.
        """
        if self._synced or not hasattr(os, "fdatasync"):
            return
        with suppress(OSError):  # then it is the copying that waits
            descriptor = os.open(self._log, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def tend(self) -> None:
        """Copy what can be copied; make a long log start again from its beginning."""
        self._called = False
        self._due = self._pages + CHECKPOINT_PAGES
        try:
            pages, copied = self._db.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            return  # somebody else does it, or the disk is full; it is due again soon
        if copied < pages:
            self._blame_reader(pages)
        elif pages > RESTART_PAGES:  # other processes write on, so it never comes to its end by itself
            self._checkpoint(apsw.SQLITE_CHECKPOINT_RESTART)

    def shorten(self) -> None:
        """Copy all of the log into the file and cut it to nothing, unless somebody is in the way."""
        self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _checkpoint(self, mode: int) -> None:
        patience = self._db.patience
        before, patience.seconds = patience.seconds, _CHECKPOINT_PATIENCE
        try:
            self._db.raw.wal_checkpoint(mode=mode)
            self._pages, self._due = 0, CHECKPOINT_PAGES
        except apsw.Error:
            return  # it is due again soon
        finally:
            patience.seconds = before

    def _blame_reader(self, pages: int) -> None:
        """Nothing behind the snapshot of the oldest reader can be copied, so the log grows: say so."""
        now, size = time.monotonic(), pages * self._page_size
        if size > JOURNAL_LIMIT and now - self._told_at > _TELL_SECONDS:
            self._told_at = now
            _log.warning(
                "the WAL of %s grew to %d MB because a reader holds an old snapshot: end its transaction",
                self._db.options.path,
                size >> 20,
            )
