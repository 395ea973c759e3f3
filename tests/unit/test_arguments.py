"""Arguments and results: through JSON and back as what they were, or refused with the name of what does not fit."""

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Required, TypedDict, Unpack
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest

from dibs.arguments import Signature
from dibs.errors import ConfigurationError, Refused, UnexpectedResult
from tests.unit import stringly

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Order:
    id: int
    at: datetime = NOON
    parts: list["Order"] = field(default_factory=list)


@dataclass
class Customer:
    id: int


class Point(msgspec.Struct, rename="camel"):
    far_x: int


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    lives: int


class Mail(pydantic.BaseModel):
    to: str = pydantic.Field(alias="recipient", min_length=2)
    sent_at: datetime


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Pair(NamedTuple):
    x: int
    y: str


class Options(TypedDict, total=False):
    name: Required[str]
    size: int


UserId = NewType("UserId", int)


def function(annotation: Any, returns: Any = Any) -> Callable[..., Any]:
    def carry(value: Any) -> Any:
        return value

    carry.__annotations__ = {"value": annotation, "return": returns}
    return carry


MAIL = Mail(recipient="ada@example.com", sent_at=NOON)

CARRIED: list[tuple[Any, Any]] = [
    (int, 3),
    (float, 1.5),
    (str, "é"),
    (bool, True),
    (int | None, None),
    (int | str, "x"),
    (Literal["a", "b"], "a"),
    (Any, {"a": [1, None, 2.5]}),
    (object, "anything"),
    (dict[str, object], {"a": 1}),
    (dict[str, Any] | None, {"a": 1}),
    (list[int], [1, 2]),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (dict[int, str], {1: "a"}),
    (dict[date, int], {date(2026, 1, 1): 1}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (bytes, b"\x00\xff"),
    (datetime, NOON),
    (datetime, datetime(2026, 1, 1)),  # naive stays naive
    (date, date(2026, 1, 1)),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=-2, microseconds=5)),
    (UUID, uuid4()),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.RED),
    (Size, Size.SMALL),
    (set[Colour], {Colour.RED}),
    (Path, Path("/a/b")),
    (Order, Order(1, parts=[Order(2)])),
    (Order | None, Order(1)),
    (list[Order], [Order(1)]),
    (Point, Point(3)),
    (Cat | Dog, Dog(1)),
    (Mail, MAIL),
    (Mail | None, MAIL),
    (dict[str, list[Mail]], {"a": [MAIL]}),
    (Pair, Pair(1, "a")),
    (Options, {"name": "a"}),
    (UserId, UserId(7)),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
]


@pytest.mark.parametrize(("annotation", "value"), CARRIED, ids=[str(each) for each, _ in CARRIED])
def test_a_value_of_a_known_type_comes_back_as_what_it_was(annotation: Any, value: Any) -> None:
    signature = Signature.of(function(annotation, annotation))
    stored = json.loads(json.dumps(signature.pack((value,), {})))
    [back], named = signature.unpack(stored)
    assert back == value and type(back) is type(value) and named == {}
    result = signature.unpack_result(json.loads(json.dumps(signature.pack_result(value))))
    assert result == value and type(result) is type(value)


# --- how a call is stored -------------------------------------------------------------------------


def send(to: str, size: int = 3, /, *rest: int, subject: str = "", **extra: float) -> None: ...


def test_arguments_are_stored_by_name_and_what_is_not_given_is_not_stored() -> None:
    signature = Signature.of(send)
    assert signature.pack(("ada",), {}) == {"to": "ada"}
    packed = signature.pack(("ada", 1, 2, 3), {"subject": "hi", "x": 1.5})
    assert packed == {"to": "ada", "size": 1, "rest": (2, 3), "subject": "hi", "extra": {"x": 1.5}}


def test_the_handlers_own_defaults_hold_when_the_job_runs() -> None:
    assert Signature.of(send).unpack({"to": "ada"}) == (("ada", 3), {"subject": ""})


def test_rest_and_extra_reach_the_handler_as_such() -> None:
    stored = {"to": "ada", "size": 1, "rest": [2, 3], "subject": "hi", "extra": {"x": 1.5}}
    assert Signature.of(send).unpack(stored) == (("ada", 1, 2, 3), {"subject": "hi", "x": 1.5})


def test_typed_extras_are_checked_one_by_one() -> None:
    def configure(**options: Unpack[Options]) -> None: ...

    signature = Signature.of(configure)
    assert signature.unpack(signature.pack((), {"name": "a", "size": 1})) == ((), {"name": "a", "size": 1})
    with pytest.raises(Refused, match=r"configure: options\.size: expected int, got str"):
        signature.pack((), {"name": "a", "size": "big"})


def test_annotations_that_are_strings_are_resolved() -> None:
    signature = Signature.of(stringly.ship)
    parcel = stringly.Parcel(Decimal("1.5"))
    assert signature.unpack(signature.pack((parcel,), {})) == ((parcel, None), {})


def test_a_partial_and_an_object_that_can_be_called_have_signatures_too() -> None:
    class Sender:
        def __call__(self, to: str) -> Order:
            return Order(1)

    bound = Signature.of(partial(resize, 1), name="bound")
    assert bound.unpack(bound.pack(((1, 2),), {})) == (((1, 2), None, None), {})
    sender = Signature.of(Sender(), name="sender")
    assert sender.unpack(sender.pack(("ada",), {})) == (("ada",), {})
    assert sender.unpack_result({"id": 1}) == Order(1)


def test_a_string_is_taken_for_what_json_would_make_of_it() -> None:
    id = uuid4()
    assert Signature.of(function(UUID)).unpack({"value": str(id)}) == ((id,), {})


# --- what is refused at enqueue -------------------------------------------------------------------


def resize(
    image: int, size: tuple[int, int], order: Order | None = None, info: dict[str, Any] | None = None
) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "resize: missing a required argument: 'image'"),
        ((1,), {}, "resize: missing a required argument: 'size'"),
        ((1, (1, 2), None, None, 5), {}, "resize: too many positional arguments"),
        ((1, (1, 2)), {"image": 2}, "resize: multiple values for argument 'image'"),
        ((1, (1, 2)), {"colour": 2}, "resize: got an unexpected keyword argument 'colour'"),
        (("1", (1, 2)), {}, "resize: image: expected int, got str"),
        ((True, (1, 2)), {}, "resize: image: expected int, got bool"),
        ((1, (1, "2")), {}, r"resize: size\[1\]: expected int, got str"),
        ((1, (1,)), {}, "resize: size: expected array of length 2, got 1"),
        ((1, (1, 2), Order("1")), {}, r"resize: order\.id: expected int, got str"),  # type: ignore[arg-type]
        ((1, (1, 2), Customer(1)), {}, "resize: order: expected Order, got Customer"),
        ((1, (1, 2)), {"info": {"at": NOON}}, "resize: info must be JSON .* not datetime"),
        ((1, (1, 2)), {"info": {"x": float("nan")}}, "resize: info must not hold nan"),
        ((1, {object()}), {}, "resize: size cannot be stored: dibs does not know how to store a object"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        Signature.of(resize).pack(args, kwargs)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"image": 1}, "resize: the stored arguments do not fit it: size is missing"),
        (
            {"image": 1, "size": [1, 2], "colour": 2},
            "resize: the stored arguments do not fit it: colour is not known here",
        ),
        ({"image": 1, "size": [1, 2], "order": {}}, "resize: the stored arguments do not fit it: order.id is missing"),
    ],
)
def test_what_is_missing_or_unknown_in_a_stored_job_is_named(stored: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as refused:
        Signature.of(resize).unpack(stored)
    assert str(refused.value) == message


def test_a_model_that_pydantic_rejects_is_refused_in_one_line() -> None:
    with pytest.raises(Refused, match="carry: value: 1 validation error for Mail") as refused:
        Signature.of(function(Mail)).pack(({"recipient": "x", "sent_at": NOON},), {})
    assert "\n" not in str(refused.value)


def test_what_has_no_annotation_takes_json_only_since_nothing_would_rebuild_it() -> None:
    def anything(value, other=None):  # type: ignore[no-untyped-def]
        ...

    signature = Signature.of(anything)
    assert signature.pack(([1, {"a": None}],), {}) == {"value": [1, {"a": None}]}
    for value in (NOON, {1: 2}, Order(1), b"", {1}):
        with pytest.raises(Refused, match="anything: value must"):
            signature.pack((value,), {})


@pytest.mark.parametrize("stored", [{}, [], None, {"value": 1, "more": 2}, {"value": "one"}])
def test_stored_arguments_that_do_not_fit_the_function_any_more_are_refused(stored: Any) -> None:
    with pytest.raises(Refused, match="carry: the stored arguments do not fit it: "):
        Signature.of(function(int)).unpack(stored)


# --- results --------------------------------------------------------------------------------------


def test_a_result_that_cannot_be_json_is_refused() -> None:
    with pytest.raises(Refused, match="the result of carry"):
        Signature.of(function(int)).pack_result(object())
    with pytest.raises(Refused, match="the result of carry"):
        Signature.of(function(int, int)).pack_result({object(): 1})


def test_a_result_that_is_not_what_the_annotation_says_is_told_apart_from_a_failure() -> None:
    with pytest.raises(UnexpectedResult, match="the result of carry is not what its annotation says"):
        Signature.of(function(int, int)).unpack_result("three")


# --- what is refused when the task is declared ----------------------------------------------------


class Socket:
    pass


class Odd(enum.Enum):
    BOTH = (1, 2)


@pytest.mark.parametrize("annotation", [Socket, list[Socket], Socket | None, Callable[[], int], Odd, Order | Customer])
def test_a_type_that_cannot_be_carried_is_refused_with_the_parameters_name(annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match="task carry: parameter value cannot be carried") as refused:
        Signature.of(function(annotation))
    assert "\n" not in str(refused.value)


def test_a_result_type_that_cannot_be_carried_is_refused_too() -> None:
    with pytest.raises(ConfigurationError, match="task carry: the result cannot be carried"):
        Signature.of(function(int, Socket))


def test_an_annotation_that_leads_nowhere_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match=r"task lost: an annotation cannot be resolved .*TYPE_CHECKING"):
        Signature.of(stringly.lost)


# --- batches --------------------------------------------------------------------------------------


def test_a_job_of_a_batch_function_carries_one_item() -> None:
    def index(orders: list[Order]) -> list[int | BaseException] | None: ...

    signature = Signature.of(index, batch=True)
    stored = json.loads(json.dumps(msgspec.to_builtins(signature.pack((Order(1),), {}))))
    assert stored.keys() == {"orders"}
    assert signature.unpack(stored) == ((Order(1),), {})
    assert signature.unpack_result(3) == 3
    with pytest.raises(UnexpectedResult):
        signature.unpack_result("three")


def test_a_batch_function_takes_one_list() -> None:
    def two(a: list[int], b: int) -> None: ...

    with pytest.raises(ConfigurationError, match="task two: a batch task takes one parameter"):
        Signature.of(two, batch=True)
