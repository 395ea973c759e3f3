"""An exception's way from a child to its worker: signals arrive as themselves, others by what they say."""

import traceback

from dibs import limits
from dibs.errors import ConfigurationError, Refused
from dibs.signals import Fail, Retry, Snooze
from dibs.worker.processes.failures import MAIN_IN_CHILD, HandlerError, qualified
from dibs.worker.processes.frames import Raised


class NotFound(Exception):
    """The child cannot get at the handler."""


class Unstorable(Exception):
    """The handler returned, but what it returned cannot be kept."""


def pack(error: BaseException) -> Raised:
    """In the child: what there is to say about the exception."""
    match error:
        case Retry():
            delay = None if error.delay is None else error.delay.total_seconds()
            return Raised("retry", message=_text(error.reason), delay=delay)
        case Fail():
            return Raised("fail", message=_text(error.reason))
        case Snooze():
            return Raised("snooze", delay=error.delay.total_seconds())
        case Unstorable():
            return Raised("unstorable", message=_text(error))
        case NotFound():
            cause = error.__cause__
            return Raised("not found", message=_text(error), traceback="" if cause is None else _traceback(cause))
    mro = tuple(qualified(kind) for kind in type(error).__mro__)
    return Raised("error", mro[0], _text(error), _traceback(error), mro)


def unpack(raised: Raised) -> Exception:
    """In the worker: the exception to raise."""
    match raised.kind:
        case "retry":
            return Retry(raised.delay, raised.message)
        case "fail":
            return Fail(raised.message)
        case "snooze":
            return Snooze(raised.delay or 0.0)
        case "unstorable":
            return Refused(raised.message)
        case "not found":
            problem = ConfigurationError(raised.message)
            if raised.traceback:
                problem.add_note(raised.traceback)
            return problem
    return HandlerError(raised.name, raised.message, raised.traceback, raised.mro)


def _text(value: object) -> str:
    return limits.clean(value, limits.ERROR_LENGTH)


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as problem:  # no memory left for it, or an exception that cannot be printed
        text = f"<no traceback: {type(problem).__name__}>"
    # The end says most, so a long one loses its beginning.
    return limits.clean(text[-limits.TRACEBACK_LENGTH :], limits.TRACEBACK_LENGTH).replace(MAIN_IN_CHILD, "__main__")
