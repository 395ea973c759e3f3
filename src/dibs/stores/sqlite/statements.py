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


ADD_NEED = statement("add_need")
ADD_STEP = statement("add_step")
ASK_CANCEL = statement("ask_cancel")
ASK_FLOW = statement("ask_flow")
ASKED = statement("asked")
BEAT = statement("beat")
CONFIGURE = statement("configure")
COUNT_FINISHED = statement("count_finished")
COUNT_INDEXED = statement("count_indexed")
COUNT_STEPS = statement("count_steps")
COUNT_UNFINISHED = statement("count_unfinished")
DROP_FLOW = statement("drop_flow")
DROP_NEEDS = statement("drop_needs")
DROP_RESULTS = statement("drop_results")
ENQUEUE = statement("enqueue")
ENQUEUE_ALL = statement("enqueue_all")
EXPIRED = statement("expired")
EXPIRED_IN_LINE = statement("expired_in_line")
FINISH_FLOW = statement("finish_flow")
FINISHED = statement("finished")
FINISHED_IDS = statement("finished_ids")
FLOW = statement("flow")
FLOW_MODE = statement("flow_mode")
FLOWS = statement("flows")
FORGET = statement("forget")
GET = statement("get")
HELD = statement("held")
IN_VAIN = statement("in_vain")
KEEP_RESULT = statement("keep_result")
KEY_HOLDER = statement("key_holder")
KNOWN = statement("known")
LINE_UP = statement("line_up")
LINE_UP_FLOW = statement("line_up_flow")
LINE_UP_STEPS = statement("line_up_steps")
LOOK = statement("look")
LOOK_AGAIN = statement("look_again")
MEET = statement("meet")
NEEDS = statement("needs")
NEXT_PRIORITY = statement("next_priority")
NOT_STARTED = statement("not_started")
PAUSE = statement("pause")
PRUNABLE = statement("prunable")
PRUNE = statement("prune")
PRUNE_WORKERS = statement("prune_workers")
PUT_BACK = statement("put_back")
READY = statement("ready")
REMOVE = statement("remove")
REMOVE_STEP = statement("remove_step")
REPORT = statement("report")
REPRIORITISE = statement("reprioritise")
REQUEUE = statement("requeue")
RESCHEDULE = statement("reschedule")
RESUME_FLOW = statement("resume_flow")
RETIRE = statement("retire")
SEEN = statement("seen")
SETTINGS = statement("settings")
SETTLED_BEFORE = statement("settled_before")
START_FLOW = statement("start_flow")
STEP_KNOWN = statement("step_known")
STOP_FLOW = statement("stop_flow")
SUCCEED = statement("succeed")
UNFINISHED = statement("unfinished")
UNFINISHED_IDS = statement("unfinished_ids")
UPCOMING = statement("upcoming")
WAIT_AGAIN = statement("wait_again")
WORKERS = statement("workers")

# By the order of the queue: fifo, lifo.
TAKE = tuple(statement("take").format(direction=direction) for direction in ("", "DESC"))
EXPIRED_AHEAD = tuple(statement("expired_ahead").format(direction=direction) for direction in ("", "DESC"))
