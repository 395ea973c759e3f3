"""The worker's logger. Never arguments at info level, never an address with its password."""

import logging
from typing import Any

from dibs.attempt import Attempt

log = logging.getLogger("dibs.worker")


def about(attempt: Attempt) -> dict[str, Any]:
    """What a line about an attempt says beside its message, for those who read it by program."""
    return {"job": str(attempt.id), "task": attempt.task, "queue": attempt.queue, "attempt": attempt.attempt}
