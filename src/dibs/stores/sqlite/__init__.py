"""Jobs in an SQLite file, shared by any number of processes on one machine."""

from dibs.stores.sqlite.store import SQLiteStore
from dibs.stores.sqlite.transaction import enqueue_in, enqueue_with, start_in

__all__ = ["SQLiteStore", "enqueue_in", "enqueue_with", "start_in"]
