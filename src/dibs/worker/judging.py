"""Judging: what a handler returned or raised, as the outcome to record."""

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dibs import limits, outcome, retry, signals
from dibs.errors import ConfigurationError, Refused
from dibs.outcome import Cancelled, Failed, Outcome, Released, Snoozed, Succeeded
from dibs.worker.log import about, log
from dibs.worker.plan import Unfit
from dibs.worker.processes import HandlerError, caused_by
from dibs.worker.run import Run, Why

FRAMES = 50
"""The last frames of a traceback that are kept."""

_OURS = str(Path(__file__).parent)
_NOTHING = Succeeded(None)


def judge_result(run: Run, result: Any) -> Outcome:
    """The handler returned. A result that cannot be stored fails the job with that reason."""
    if run.why is Why.TIMEOUT:
        return judge_error(run, _too_long(run))
    if result is None and run._added is None:
        return _NOTHING
    if run._added is not None and run.cancelled:
        return Cancelled()  # or the flow that somebody cancelled would go on with what it adds
    pack = run.plan.pack_result
    try:
        return Succeeded(result if pack is None else pack(result), run.added)
    except Exception as problem:
        return Failed(f"the result cannot be stored: {problem}")


def judge_batch(runs: Sequence[Run], result: Any) -> list[Outcome]:
    """A batch handler returned: nothing, or for each job a result or an exception."""
    if result is None:
        return [judge_result(run, None) for run in runs]
    if not isinstance(result, list | tuple) or len(result) != len(runs):
        got = f"{len(result)} of them" if isinstance(result, list | tuple) else type(result).__name__
        return [Failed(f"a batch task returns None or a list of {len(runs)} results here, not {got}")] * len(runs)
    return [
        judge_error(run, each) if isinstance(each, BaseException) else judge_result(run, each)
        for run, each in zip(runs, result, strict=True)
    ]


def judge_error(run: Run, error: BaseException) -> Outcome:
    """The handler raised: a signal says itself what it means, anything else is for the task's retry policy."""
    try:
        if isinstance(error, signals.Signal) and run.why is not Why.TIMEOUT:
            return _judge_signal(run, error)
        if run.why is not None:
            return _judge_interrupted(run, error)
        return _judge_problem(run, error)
    except Exception as problem:  # a retry rule of the user's, most likely: the job must not stay running for it
        log.exception("job %s (%s): its error could not be judged", run.id, run.task, extra=about(run))
        return Failed(f"{describe(error)} (and then {describe(problem)})", _traceback(error))


def _judge_signal(run: Run, signal: signals.Signal) -> Outcome:
    match signal:
        case signals.Snooze():
            return Snoozed(signal.delay)
        case signals.Fail():
            return Failed(signal.reason or "Fail", _traceback(signal.__cause__))
        case signals.Retry():
            text, trace = signal.reason or "Retry", _traceback(signal.__cause__)
            if signal.delay is None:
                return _retry(run, signal, text, trace)
            return outcome.Retry(text, signal.delay, trace)
    return _judge_problem(run, signal)


def _judge_interrupted(run: Run, error: BaseException) -> Outcome:
    """It was stopped by us, and whatever came out of it came of that."""
    match run.why:
        case Why.TIMEOUT:
            return _judge_problem(run, _too_long(run).with_traceback(error.__traceback__))
        case Why.STOP:
            return Released()
        case _:
            return Cancelled()


def _judge_problem(run: Run, error: BaseException) -> Outcome:
    if run.plan.in_process and isinstance(error, TimeoutError):  # the pool's own: a handler's comes as a HandlerError
        error = _too_long(run)
    text, trace = describe(error), _traceback(error)
    options = run.plan.task.defaults
    if isinstance(error, Unfit) or (run.plan.in_process and isinstance(error, Refused | ConfigurationError)):
        return Failed(str(error), "" if isinstance(error, Unfit) else trace)
    if caused_by(error, options.fail_on):
        return Failed(text, trace)
    if options.retry_on is not None and not caused_by(error, options.retry_on):
        return Failed(text, trace)
    return _retry(run, error, text, trace)


def _retry(run: Run, error: BaseException, text: str, trace: str) -> Outcome:
    wait = retry.wait_after(run.plan.task.defaults.retry, run.attempt, error)
    return Failed(text, trace) if wait is None else outcome.Retry(text, wait, trace)


def _too_long(run: Run) -> TimeoutError:
    span = run.plan.task.defaults.timeout
    return TimeoutError(f"the handler took longer than {span.total_seconds() if span else 0:g} s")


# --- errors in words ----------------------------------------------------------------------------------------


def describe(error: BaseException) -> str:
    """``TypeName: message``, on as few lines as the message has."""
    if isinstance(error, HandlerError):
        return str(error)
    message = limits.clean(error, limits.ERROR_LENGTH)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _traceback(error: BaseException | None) -> str:
    """As Python prints it, without the frames of the worker that stand above the handler's."""
    if error is None:
        return ""
    if isinstance(error, HandlerError):
        return error.traceback
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    if frame is None:  # it was raised here; what it was raised from may come from a handler
        return _traceback(error.__cause__)
    try:
        return "".join(traceback.format_exception(type(error), error, frame, limit=-FRAMES))
    except Exception as problem:  # an exception that cannot be printed, or no memory to do it
        return f"<no traceback: {type(problem).__name__}>"
