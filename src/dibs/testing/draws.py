"""What the stories of :mod:`dibs.testing.machine` are drawn from."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from dibs.job import LogLine, OnConflict, OnFailure, Report
from dibs.outcome import Cancelled, Failed, Outcome, Released, Retry, Snoozed, Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.testing.clock import START

MICROSECOND, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
QUEUES = ("a", "b", "ü b")
TASKS = ("t1", "t2", "t3")
WORKERS = ("ann", "bob")
KINDS = ("k1", "k2")
KEYS = (None, None, "k1", "k1", "k2")
LIMIT_KEYS = (None, None, "x", "y")
UNIQUE: tuple[dict[str, Any], ...] = (
    {},
    {"unique_for": 3 * SECOND},
    {"unique_for": timedelta(days=1)},
    {"on_conflict": OnConflict.REPLACE},
    {"on_conflict": OnConflict.REPLACE, "unique_for": 40 * SECOND},
    {"on_conflict": OnConflict.DEBOUNCE},
    {"on_conflict": OnConflict.DEBOUNCE, "max_delay": 3 * SECOND, "unique_for": SECOND},
)
"""What is said about a key, if a job has one."""
LASTS = (None,) * 12 + (SECOND, 5 * SECOND, 31 * SECOND)
"""When a job expires, after it is due."""
AGEINGS = (SECOND, 5 * SECOND, None)
SCOPES = (
    *(Scope(queue=queue) for queue in ("a", "b")),
    *(Scope(queue=queue, each_key=True) for queue in ("a", "ü b")),
    Scope(task="t1"),
)
LIMITS = (
    Limit(concurrency=1),
    Limit(concurrency=2),
    Limit(concurrency=3),
    Limit(rate=Rate(2, 3 * SECOND)),
    Limit(rate=Rate(3, SECOND), concurrency=2),
    None,
    Limit(concurrency=0),
)
LEASES = (SECOND, 30 * SECOND, 60 * SECOND)
OFFSETS = (None, None, -5 * SECOND, timedelta(0), MICROSECOND, SECOND, 5 * SECOND)
MOVES = (MICROSECOND, SECOND / 2, SECOND, 2 * SECOND, 30 * SECOND, timedelta(days=1))
OUTCOMES: tuple[Outcome, ...] = (
    Succeeded({"n": 1}),
    Succeeded(float("inf")),
    Retry("boom"),
    Retry("boom", SECOND, "Traceback"),
    Failed("boom"),
    Cancelled(),
    Released(),
    Snoozed(2 * SECOND),
)

REPORTS = (
    None,
    None,
    Report(0.5, "half"),
    Report(float("nan"), "\0", (LogLine(START, 1, "one"), LogLine(START + SECOND, 2, "two"))),
    Report(2),
    Report(),
)

SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((),),
    ((), ()),
    ((), (0,), (1,)),
    ((), (0,), (0,), (1, 2)),
    ((), (), (0, 1), (2,)),
    ((), (), (0, 1), (0,), (2, 3)),
)
"""Small flows: for each step the numbers of those that it needs."""

VERBS = ("cancel", "cancel", "requeue", "requeue", "reschedule", "reprioritise", "delete")

ACTIONS = (
    *("claim",) * 5,
    *("settle",) * 5,
    "settle_with_steps",
    "replace_a_step",
    *("work_a_while",) * 2,
    *("advance",) * 2,
    *("advance_to_an_instant_that_matters",) * 2,
    *("enqueue",) * 2,
    *("ask_for_the_same_key",) * 3,
    *("start",) * 2,
    *("heartbeat",) * 2,
    *("settle_late_or_forged",) * 2,
    "settle_when_the_lease_ends",
    *("change",) * 3,
    "change_a_flow",
    "ask_for_a_cancel",
    "requeue_what_is_finished",
    *("sweep",) * 3,
    "prune",
    "look",
    *("set_up_a_queue",) * 2,
    "limit",
    *("keep",) * 2,
)
"""What happens in a story, as often as it is named."""

limits = st.sampled_from((1, 2, 3, 10))
queues = st.sampled_from(QUEUES)
workers = st.sampled_from(WORKERS)
leases = st.sampled_from(LEASES)
outcomes = st.sampled_from(OUTCOMES)
reports = st.sampled_from(REPORTS)
offsets = st.sampled_from(OFFSETS)
number = st.sampled_from((0, 0, 1, 1, 2, 3, 5, 8, 13, 21, 34))  # which of the latest
numbers = st.lists(number, min_size=1, max_size=4)
requests = st.fixed_dictionaries(
    {
        "queue": queues,
        "task": st.sampled_from(TASKS),
        "key": st.sampled_from(KEYS),
        "priority": st.integers(-1, 1),
        "max_attempts": st.integers(1, 3),
        "offset": offsets,
        "lasts": st.sampled_from(LASTS),
        "unique": st.sampled_from(UNIQUE),
        "limit_key": st.sampled_from(LIMIT_KEYS),
        "shelf": st.sampled_from((2, 2, 2, 1, 3)),
    }
)
ageings = st.sampled_from(AGEINGS)
scopes = st.sampled_from(SCOPES)
some_limits = st.sampled_from(LIMITS)
uniques = st.sampled_from(UNIQUE[1:])
policies = st.sampled_from((OnFailure.STOP, OnFailure.STOP, OnFailure.CONTINUE))
shapes = st.sampled_from(SHAPES)
some_tasks = st.sampled_from((None, None, None, ("t1",), ("t2", "t1"), ()))
choices = st.sampled_from(
    ("held", "held", "ids", "ids", "queues", "tasks", "states", "workers", "keys", "times", "flows", "all")
)
