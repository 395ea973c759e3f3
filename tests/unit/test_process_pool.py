"""What of the process executor needs no process: addresses of functions, frames, errors by name."""

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from dibs.app import App
from dibs.errors import ConfigurationError, Refused
from dibs.ids import new_id
from dibs.job import Claim
from dibs.signals import Fail, Retry, Snooze
from dibs.task import Task
from dibs.worker.processes import HandlerError, ProcessDied, ProcessPool, Reference, caused_by, refer
from dibs.worker.processes import raised as errors
from dibs.worker.processes.frames import LENGTH, Call, Log, decode_in_child, decode_in_worker, frame
from dibs.worker.processes.reference import Main, check

NOW = datetime(2030, 1, 2, tzinfo=UTC)


def top_level() -> None:
    """A function that any process can import."""


def local() -> Callable[[], None]:
    def inner() -> None:
        """A function that none can."""

    return inner


def shout(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def louder(*args: Any) -> Any:
        return function(*args)

    return louder


@shout
def wrapped_below() -> None:
    """A decorator under the task."""


task_below: Task[..., Any] = Task(wrapped_below)


def on_top() -> None:
    """A decorator over the task."""


task_inside: Task[..., Any] = Task(on_top)
on_top = shout(task_inside)


# --- addresses ----------------------------------------------------------------------------------------------


def test_a_function_is_known_by_its_module_and_name() -> None:
    assert refer(top_level, "t") == Reference(__name__, "top_level")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (local(), "local.<locals>.inner is local to another function"),
        (lambda: None, "a lambda has no name of its own"),
        (functools.partial(top_level), "has no name of its own"),
    ],
)
def test_a_function_that_no_process_could_import_is_refused_in_one_line_that_says_what_to_do(
    function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        refer(function, "mail")
    said = str(caught.value)
    assert said.startswith("task mail ")
    assert why in said
    assert said.endswith("define it at the top level of a module")
    assert "\n" not in said


def test_such_a_function_is_refused_when_it_is_declared() -> None:
    app = App("memory://")
    with pytest.raises(ConfigurationError, match=r"task inner .* is local to another function"):
        app.task(executor="process")(local())
    assert app.task(local()).name == "inner", "a thread needs no import"


def in_main(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> Callable[[], None]:
    main = ModuleType("__main__")
    main.__dict__.update(attributes)
    monkeypatch.setitem(sys.modules, "__main__", main)

    def function() -> None:
        """A function of a script."""

    function.__module__, function.__qualname__ = "__main__", "function"
    return function


def test_a_function_of_a_script_is_known_by_the_path_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    function = in_main(monkeypatch, __file__=__file__, __spec__=None)
    assert refer(function, "t") == Reference("__main__", "function", Main(path=__file__))


def test_a_function_of_a_module_that_runs_as_the_script_is_known_by_the_name_of_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = in_main(monkeypatch, __file__=__file__, __spec__=pytest.__spec__)
    assert refer(function, "t") == Reference("__main__", "function", Main(name="pytest"))


@pytest.mark.parametrize("attributes", [{}, {"__file__": "<stdin>"}], ids=["prompt", "stdin"])
def test_a_function_that_was_typed_in_is_refused(monkeypatch: pytest.MonkeyPatch, attributes: dict[str, str]) -> None:
    function = in_main(monkeypatch, **attributes)
    with pytest.raises(ConfigurationError, match="typed into an interactive session"):
        refer(function, "t")


@pytest.mark.parametrize("task", [task_below, task_inside], ids=["below", "on top"])
def test_a_task_is_found_whatever_decorators_stand_above_and_below_it(task: Task[..., Any]) -> None:
    check(refer(task.function, "t"), task.function, "t")


def test_a_name_that_leads_to_another_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="something else by now"):
        check(Reference(__name__, "local"), top_level, "t")
    with pytest.raises(ConfigurationError, match="has no nothing any more"):
        check(Reference(__name__, "nothing"), top_level, "t")
    with pytest.raises(ConfigurationError, match="the module nowhere cannot be imported"):
        check(Reference("nowhere", "f"), top_level, "t")


# --- frames -------------------------------------------------------------------------------------------------


def test_a_claim_crosses_the_line_unchanged() -> None:
    args = {"text": "ü\n", "numbers": [1.5, -(2**63), 2**63 - 1, None, True], "deep": {"a": [{}]}}
    claim = Claim(new_id(), 3, "w", "q", "t", args, 0, NOW, NOW, 1, 5, NOW, key="k", meta={"a": 1})
    call = Call(Reference("m", "f", Main(path="p")), "t", False, [claim])
    sent = frame(call)
    assert LENGTH.unpack(sent[: LENGTH.size]) == (len(sent) - LENGTH.size,)
    assert decode_in_child(sent[LENGTH.size :]) == call


def test_what_is_not_a_frame_of_ours_is_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="Invalid value 'log'"):
        decode_in_child(frame(Log(0, "not for a child"))[LENGTH.size :])
    with pytest.raises(ValueError, match="object"):
        decode_in_worker(b"\x93abc")


# --- errors -------------------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def sent(error: BaseException) -> Exception:
    return errors.unpack(errors.pack(error))


def test_signals_cross_as_themselves() -> None:
    retry, policy, fail, snooze = sent(Retry(2.5, "r")), sent(Retry()), sent(Fail("f")), sent(Snooze(4))
    assert isinstance(retry, Retry) and (retry.delay, retry.reason) == (timedelta(seconds=2.5), "r")
    assert isinstance(policy, Retry) and policy.delay is None
    assert isinstance(fail, Fail) and fail.reason == "f"
    assert isinstance(snooze, Snooze) and snooze.delay == timedelta(seconds=4)


def test_a_signal_brings_what_it_was_raised_from() -> None:
    fail = Fail("beyond help")
    fail.__cause__ = KeyError("lost")
    cause = sent(fail).__cause__
    assert isinstance(cause, HandlerError)
    assert cause.traceback == "KeyError: 'lost'\n"


def test_an_error_is_judged_by_the_names_of_its_classes() -> None:
    error = sent(ConnectionResetError("gone"))
    assert str(error) == "ConnectionResetError: gone"
    assert caused_by(error, (OSError,))
    assert caused_by(error, (ValueError, ConnectionError))
    assert not caused_by(error, (ConnectionAbortedError, ValueError))
    assert caused_by(KeyError("here"), (LookupError,)), "one that was raised in this process is judged as ever"
    assert not caused_by(error, ())


def test_an_error_that_cannot_be_printed_crosses_all_the_same() -> None:
    error = sent(Unprintable())
    assert isinstance(error, HandlerError)
    assert error.message == "<no text: RuntimeError>"


def test_a_long_traceback_keeps_its_end() -> None:
    try:
        raise ValueError("x" * 100_000 + " the end")
    except ValueError as problem:
        error = sent(problem)
    assert isinstance(error, HandlerError)
    assert len(error.traceback) <= 20_000
    assert error.traceback.rstrip().endswith("the end")


def test_a_death_says_how() -> None:
    assert (ProcessDied(3).code, ProcessDied(3).signal) == (3, None)
    assert (ProcessDied(-11).code, ProcessDied(-11).signal) == (None, 11)
    assert str(ProcessDied(-40)).endswith("ended by signal 40")


# --- settings -----------------------------------------------------------------------------------------------


def test_a_pool_refuses_sizes_that_make_no_sense() -> None:
    with pytest.raises(ConfigurationError, match="at least 1 process, not 0"):
        ProcessPool(0)
    with pytest.raises(ConfigurationError, match="at least 1 call, not 0"):
        ProcessPool(1, recycle=0)


def test_a_result_that_cannot_be_stored_crosses_as_refused() -> None:
    refused = sent(errors.Unfit("the result cannot be stored: no"))
    assert isinstance(refused, Refused)
    assert str(refused) == "the result cannot be stored: no"
