"""The SQL of this store: one statement a file, read once."""

import re
from importlib.resources import files

_ROOT = files("dibs.stores.sqlite")


def script(folder: str, name: str) -> str:
    """A file as it is written, comments and all."""
    return (_ROOT / folder / name).read_text("utf-8")


def statement(name: str) -> str:
    """One statement, as short as it can be: SQLite's statement cache compares texts at every call."""
    text = re.sub(r"--[^\n]*", "", script("sql", f"{name}.sql"))
    return " ".join(text.split())


ASK_CANCEL = statement("ask_cancel")
BEAT = statement("beat")
CONFIGURE = statement("configure")
COUNT_FINISHED = statement("count_finished")
COUNT_INDEXED = statement("count_indexed")
COUNT_UNFINISHED = statement("count_unfinished")
ENQUEUE = statement("enqueue")
ENQUEUE_ALL = statement("enqueue_all")
EXPIRED = statement("expired")
EXPIRED_IN_LINE = statement("expired_in_line")
FINISHED = statement("finished")
FINISHED_IDS = statement("finished_ids")
FORGET = statement("forget")
GET = statement("get")
HELD = statement("held")
KEEP = statement("keep")
KEEP_NO_MORE = statement("keep_no_more")
KEPT = statement("kept")
KEY_HOLDER = statement("key_holder")
KNOWN = statement("known")
LINE_UP = statement("line_up")
LOOK = statement("look")
NEXT_PRIORITY = statement("next_priority")
PAUSE = statement("pause")
PRUNE = statement("prune")
PRUNE_WORKERS = statement("prune_workers")
PUT_BACK = statement("put_back")
READY = statement("ready")
REMOVE = statement("remove")
REPORT = statement("report")
REPRIORITISE = statement("reprioritise")
REQUEUE = statement("requeue")
RESCHEDULE = statement("reschedule")
RETIRE = statement("retire")
SEEN = statement("seen")
SETTINGS = statement("settings")
SETTLED_BEFORE = statement("settled_before")
SUCCEED = statement("succeed")
UNFINISHED = statement("unfinished")
UNFINISHED_IDS = statement("unfinished_ids")
UPCOMING = statement("upcoming")
WORKERS = statement("workers")

# By the order of the queue: fifo, lifo.
TAKE = tuple(statement("take").format(direction=direction) for direction in ("", "DESC"))
EXPIRED_AHEAD = tuple(statement("expired_ahead").format(direction=direction) for direction in ("", "DESC"))
