"""An exception's way from a child to its worker: signals arrive as themselves, others by what they say."""

import traceback

from dibs import limits
from dibs.errors import ConfigurationError, Refused
from dibs.signals import Fail, Retry, Snooze
from dibs.worker.processes.failures import MAIN_IN_CHILD, HandlerError, qualified
from dibs.worker.processes.frames import Raised


class NotFound(Exception):
    """The child cannot get at the handler."""


class Unfit(Exception):
    """The stored arguments do not fit the handler, or what it returned cannot be stored."""


def pack(error: BaseException) -> Raised:
    """In the child: what there is to say about the exception."""
    why = "" if error.__cause__ is None else _traceback(error.__cause__)
    match error:
        case Retry():
            delay = None if error.delay is None else error.delay.total_seconds()
            return Raised("retry", message=_text(error.reason), traceback=why, delay=delay)
        case Fail():
            return Raised("fail", message=_text(error.reason), traceback=why)
        case Snooze():
            return Raised("snooze", delay=error.delay.total_seconds())
        case Unfit():
            return Raised("unfit", message=_text(error))
        case NotFound():
            return Raised("not found", message=_text(error), traceback=why)
    mro = tuple(qualified(kind) for kind in type(error).__mro__)
    return Raised("error", mro[0], _text(error), _traceback(error), mro)


def unpack(raised: Raised) -> Exception:
    """In the worker: the exception to raise."""
    error: Exception
    match raised.kind:
        case "retry":
            error = Retry(raised.delay, raised.message)
        case "fail":
            error = Fail(raised.message)
        case "snooze":
            error = Snooze(raised.delay or 0.0)
        case "unfit":
            error = Refused(raised.message)
        case "not found":
            error = ConfigurationError(raised.message)
        case _:
            return HandlerError(raised.name, raised.message, raised.traceback, raised.mro)
    if raised.traceback:  # it was raised from another one, which is all that is left to see of it
        error.__cause__ = HandlerError("", "", raised.traceback)
    return error


def _text(value: object) -> str:
    return limits.clean(value, limits.ERROR_LENGTH)


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as problem:  # no memory left for it, or an exception that cannot be printed
        text = f"<no traceback: {type(problem).__name__}>"
    # The end says most, so a long one loses its beginning.
    return limits.clean(text[-limits.TRACEBACK_LENGTH :], limits.TRACEBACK_LENGTH).replace(MAIN_IN_CHILD, "__main__")
