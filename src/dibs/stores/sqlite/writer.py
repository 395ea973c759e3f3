"""The one thread of a handle that writes. What queues up while a commit is on its way shares the next one."""

import asyncio
import logging
import time
from collections.abc import Callable

import apsw

from dibs.clock import Clock
from dibs.errors import StoreUnavailable
from dibs.stores.sqlite.connect import JOURNAL_LIMIT, Connection, NoRoom, translate
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


class Writer(Hand):
    """Runs verbs in groups: each in a savepoint of its own, one commit for all, no answer before it."""

    most = GROUP

    def __init__(self, db: Connection, clock: Clock, committed: Callable[[], None]) -> None:
        self._committed = committed
        self._wal = Wal(db)
        self._shortcut = Shortcut(db.patience)
        super().__init__("writer", db, clock)

    async def ask_briefly(self, verb: Verb[T]) -> T:
        """Like ``ask``, for a verb about few jobs: done here and now if that is likely to be quick."""
        if not self._shortcut.is_open() or not self.lock.acquire(blocking=False):
            return await self.ask(verb)
        ticket = Ticket(verb, asyncio.get_running_loop())
        try:
            with self._shortcut.taken():
                done = self._at_once(ticket)
        finally:
            self.lock.release()
        if done:
            self._committed()
            if self._wal.is_due():
                self.nudge()
        try:
            await asyncio.sleep(0)
        finally:
            self._shortcut.left()
        if not done:
            return await self.ask(verb)
        if ticket.error is not None:
            raise ticket.error
        value: T = ticket.value
        return value

    def _at_once(self, ticket: Ticket) -> bool:
        """The verb and its commit, without waiting for anybody; False if nothing was done and the thread should."""
        if not self.is_open:
            raise StoreUnavailable(CLOSED)
        try:
            if not self.db.begin_at_once():
                return False
            self._verb(ticket, alone=True)
            if self.db.raw.in_transaction:
                self.db.rows("COMMIT")
        except apsw.Error:
            self.db.rollback()
            return False
        return not isinstance(ticket.error, StoreUnavailable)

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
            if self.db.raw.in_transaction:
                self.db.rows("COMMIT")
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

    def tend(self) -> None:
        """Copy what can be copied; make a long log start again from its beginning."""
        if not self.is_due():
            return
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
