"""What crosses the store: the arguments of a call and its result, as JSON, and back as the annotated types.

Arguments are stored by parameter name. What has a default and is not given is not stored: the handler's own default
holds when the job runs. ``*rest`` is a list under its name, ``**extra`` a dict under its name.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from types import UnionType
from typing import Any, Never, NoReturn, Union, Unpack, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as shapes

from dibs import limits
from dibs.errors import ConfigurationError, Refused, UnexpectedResult

_SCALARS = frozenset({str, int, float, bool, type(None)})
_UNBOUNDED = limits.Limits(max_bytes=sys.maxsize)  # how long arguments may be is for the store to say
_NATIVE = shapes.NoneType | shapes.BoolType | shapes.IntType | shapes.FloatType | shapes.StrType
_PLACE = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.DOTALL)
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_REST, _EXTRA = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_MISSING: Any = inspect.Parameter.empty


class Signature:
    """How one function is called through the store. Made once, when its task is declared."""

    def __init__(self, task: str, signature: inspect.Signature, result: Any) -> None:
        given = list(signature.parameters.values())
        self.task = task
        self.names = tuple(each.name for each in given)
        self.defaults = {each.name: each.default for each in given if each.default is not _MISSING}
        self._signature = signature
        self._positional = tuple(each.name for each in given if each.kind in _POSITIONAL)
        self._by_name = frozenset(each.name for each in given if each.kind in _BY_NAME)
        self._by_name_only = tuple(each.name for each in given if each.kind is inspect.Parameter.KEYWORD_ONLY)
        self._rest = next((each.name for each in given if each.kind is _REST), None)
        self._extra = next((each.name for each in given if each.kind is _EXTRA), None)
        self._required = frozenset(self.names) - self.defaults.keys() - {self._rest, self._extra}
        self._simple = len(self._positional) == len(given)
        self._form, self._plain = _form(task, given)
        self._rebuild = _rebuilder(self._form)
        self._records = {each.name: _records(each.annotation) for each in given}
        self._result, self._result_plain = _carried(task, "the result", result)

    @classmethod
    def of(cls, function: Callable[..., Any], *, batch: bool = False, name: str | None = None) -> "Signature":
        """Read a function's annotations; a ConfigurationError names what of them cannot be carried.

        A batch function takes a list: its jobs carry one item each, and its result is one of the list it returns.
        """
        task = name or function.__name__
        signature = _resolved(task, function)
        if batch:
            return cls(task, _single(task, signature), _each(signature.return_annotation))
        return cls(task, signature, signature.return_annotation)

    # --- on the way in --------------------------------------------------------------------------------------

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name, as Python would hand them over; Refused if it would not."""
        if self._simple and not kwargs and len(args) == len(self._positional):
            return dict(zip(self._positional, args, strict=True))
        if not args and self._required <= kwargs.keys() <= self._by_name:
            return dict(kwargs)
        if len(args) <= len(self._positional):
            bound = dict(zip(self._positional, args, strict=False))
            if not kwargs or (kwargs.keys() <= self._by_name and bound.keys().isdisjoint(kwargs)):
                bound.update(kwargs)
                if self._required <= bound.keys():
                    return bound
        try:  # *rest, **extra, or a mistake: Python knows best what to call it
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as problem:
            raise Refused(f"{self.task}: {problem}") from None

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are stored; Refused names the task, the parameter, what was wanted and got."""
        return self.pack_bound(self.bind(args, kwargs))

    def pack_bound(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """As ``pack``, for arguments that are bound already."""
        stored = {
            name: value if type(value) in _SCALARS else self._packed(name, value) for name, value in bound.items()
        }
        try:
            self._rebuild(stored, self._form)
        except msgspec.ValidationError as problem:
            raise Refused(f"{self.task}: {_in_words(problem)}") from None
        return stored

    def _packed(self, name: str, value: Any) -> Any:
        records = self._records[name]
        if records and _is_record(type(value)) and not isinstance(value, records):
            # As JSON it might look like what is wanted.
            wanted = " or ".join(each.__qualname__ for each in records)
            raise Refused(f"{self.task}: {name}: expected {wanted}, got {type(value).__qualname__}")
        return _as_json(value, f"{self.task}: {name}", plain=name in self._plain)

    def blame(self, problem: Refused, *packed: Mapping[str, Any]) -> Refused:
        """What a store said against packed arguments, with the name of the parameter that it meant."""
        for name, value in (each for stored in packed for each in stored.items()):
            try:
                limits.to_json(value, f"{self.task}: {name}", _UNBOUNDED)
            except Refused as found:
                return found
        return Refused(f"{self.task}: {problem}")

    def pack_result(self, value: Any) -> Any:
        """What the function returned, as it is stored; Refused if it cannot be."""
        if type(value) in _SCALARS:
            return value
        return _as_json(value, f"the result of {self.task}", plain=self._result_plain)

    # --- on the way out -------------------------------------------------------------------------------------

    def unpack(self, stored: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with; Refused if what is stored does not fit it (any more)."""
        try:
            form = self._rebuild(stored, self._form)
        except msgspec.ValidationError as problem:
            raise Refused(f"{self.task}: the stored arguments do not fit it: {_in_words(problem)}") from None
        if self._simple:
            return msgspec.structs.astuple(form), {}
        args = [getattr(form, name) for name in self._positional]
        kwargs = {name: getattr(form, name) for name in self._by_name_only}
        if self._rest is not None:
            args += getattr(form, self._rest)
        if self._extra is not None:
            kwargs |= getattr(form, self._extra)
        return tuple(args), kwargs

    def unpack_result(self, stored: Any) -> Any:
        """A stored result as the type that the function says it returns."""
        try:
            return msgspec.convert(stored, self._result, str_keys=True, dec_hook=_decode)
        except msgspec.ValidationError as problem:
            raise UnexpectedResult(f"the result of {self.task} is not what its annotation says: {problem}") from None


def _in_words(problem: msgspec.ValidationError) -> str:
    """ "Expected `int`, got `str` - at `$.size`" as "size: expected int, got str", on one line."""
    text = " ".join(str(problem).split())
    found = _PLACE.fullmatch(text)
    what, place = (found[1], found[2]) if found else (text, "")
    if (field := _FIELD.fullmatch(what)) is not None:
        name = f"{place}.{field[2]}" if place else field[2]
        return f"{name} is {'missing' if field[1].startswith('missing') else 'not known here'}"
    return (f"{place}: " if place else "") + (what[:1].lower() + what[1:]).replace("`", "")


# --- reading a function -------------------------------------------------------------------------------------


def _resolved(task: str, function: Callable[..., Any]) -> inspect.Signature:
    """The signature with real types in it, also where annotations are strings."""
    try:
        hints = get_type_hints(_annotated(function), include_extras=True)
    except (NameError, TypeError) as problem:
        raise ConfigurationError(
            f"task {task}: an annotation cannot be resolved ({problem}): define or import its type at the top of the "
            "module, above the task and outside of TYPE_CHECKING"
        ) from None
    signature = inspect.signature(function)
    return signature.replace(
        parameters=[each.replace(annotation=hints.get(each.name, Any)) for each in signature.parameters.values()],
        return_annotation=hints.get("return", Any),
    )


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the annotations are: of a partial in its function, of an object in its ``__call__``."""
    if isinstance(function, partial):
        return _annotated(function.func)
    return function if hasattr(function, "__annotations__") else type(function).__call__


def _single(task: str, signature: inspect.Signature) -> inspect.Signature:
    """The signature for one item of a batch function."""
    parameters = list(signature.parameters.values())
    if len(parameters) != 1 or parameters[0].kind not in _POSITIONAL:
        raise ConfigurationError(f"task {task}: a batch task takes one parameter, the list of items")
    item = (get_args(parameters[0].annotation) or (Any,))[0]
    return signature.replace(parameters=[parameters[0].replace(annotation=item, default=_MISSING)])


def _each(returned: Any) -> Any:
    """The type of one result of a batch function: of ``list[int | BaseException] | None`` it is int."""
    lists = [each for each in _alternatives(returned) if get_args(each)]
    if len(lists) != 1:
        return Any
    kept = [
        each
        for each in _alternatives(get_args(lists[0])[0])
        if not (isinstance(each, type) and issubclass(each, BaseException))
    ]
    return Union[tuple(kept)] if kept else Any  # noqa: UP007 - made at run time


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _form(task: str, parameters: list[inspect.Parameter]) -> tuple[type[msgspec.Struct], frozenset[str]]:
    """A struct with a field per parameter, which converts all of them at once; and which of them are plain JSON."""
    fields: list[tuple[str, Any, Any]] = []
    plain = set()
    for each in parameters:
        annotation, is_plain = _carried(task, f"parameter {each.name}", _stored_type(each))
        if is_plain:
            plain.add(each.name)
        fields.append((each.name, annotation, _field(each)))
    return msgspec.defstruct(task, fields, kw_only=True, forbid_unknown_fields=True, gc=False), frozenset(plain)


def _rebuilder(form: type[msgspec.Struct]) -> Callable[[Any, type[msgspec.Struct]], msgspec.Struct]:
    """What makes a form of stored arguments: msgspec by itself where it can, which takes a third of the time."""
    parts = list(_within(shapes.type_info(form), set()))
    if any(isinstance(each, shapes.CustomType) or _has_odd_keys(each) for each in parts):
        return partial(msgspec.convert, str_keys=True, dec_hook=_decode)
    return msgspec.convert


def _has_odd_keys(shape: shapes.Type) -> bool:
    """Whether it has keys that JSON holds as strings and Python does not."""
    return isinstance(shape, shapes.DictType) and not isinstance(shape.key_type, shapes.StrType | shapes.AnyType)


def _stored_type(parameter: inspect.Parameter) -> Any:
    annotation: Any = parameter.annotation
    if parameter.kind is _REST:
        return list[annotation]
    if parameter.kind is _EXTRA:
        return get_args(annotation)[0] if get_origin(annotation) is Unpack else dict[str, annotation]
    return annotation


def _field(parameter: inspect.Parameter) -> Any:
    if parameter.kind is _REST:
        return msgspec.field(default_factory=list)
    if parameter.kind is _EXTRA:
        return msgspec.field(default_factory=dict)
    default = parameter.default
    if default is _MISSING:
        return msgspec.field()
    if type(default) in _SCALARS:
        return msgspec.field(default=default)
    # The very object that a direct call would get, also if it is mutable.
    return msgspec.field(default_factory=lambda: default)


# --- which types can be carried -----------------------------------------------------------------------------


def _carried(task: str, what: str, annotation: Any) -> tuple[Any, bool]:
    """The type, checked, and whether it is plain JSON: then only JSON is let in, since nothing would rebuild it."""
    if annotation in (Never, NoReturn):
        annotation = Any
    try:
        msgspec.json.Decoder(annotation)
        shape = shapes.type_info(annotation)
    except (TypeError, ValueError) as problem:
        raise ConfigurationError(f"task {task}: {what} cannot be carried: {problem}") from None
    for custom in [each.cls for each in _within(shape, set()) if isinstance(each, shapes.CustomType)]:
        if not _has_hook(custom):
            raise ConfigurationError(
                f"task {task}: {what} cannot be carried: dibs does not know how to store a {custom.__qualname__}; "
                "pass an id, or a dataclass, msgspec.Struct or pydantic model of what is needed"
            )
    return annotation, _is_plain(shape)


def _within(shape: Any, seen: set[int]) -> Iterator[shapes.Type]:
    """All types that a type is made of. Types may be recursive."""
    if isinstance(shape, tuple):
        for each in shape:
            yield from _within(each, seen)
    elif isinstance(shape, shapes.Type | shapes.Field) and id(shape) not in seen:
        seen.add(id(shape))
        if isinstance(shape, shapes.Type):
            yield shape
        if not isinstance(shape, shapes.CustomType):
            for name in shape.__struct_fields__:
                yield from _within(getattr(shape, name), seen)


def _records(annotation: Any) -> tuple[type, ...]:
    """The classes that a parameter takes, if nothing but classes with fields will do."""
    kinds = [each for each in _alternatives(annotation) if each is not type(None)]
    return tuple(kinds) if all(map(_is_record, kinds)) else ()


def _is_record(kind: Any) -> bool:
    """A class that is stored as an object of its fields: a dataclass, msgspec.Struct, pydantic model or attrs class."""
    marks = ("__dataclass_fields__", "__struct_fields__", "model_fields", "__attrs_attrs__")
    return inspect.isclass(kind) and any(hasattr(kind, mark) for mark in marks)


def _is_plain(shape: shapes.Type) -> bool:
    """Whether a type says "any JSON" somewhere, and nothing but JSON elsewhere."""
    parts = list(_parts(shape))
    return any(map(_is_any, parts)) and all(isinstance(each, _NATIVE) or _is_any(each) for each in parts)


def _is_any(shape: shapes.Type) -> bool:
    return isinstance(shape, shapes.AnyType) or (isinstance(shape, shapes.CustomType) and shape.cls is object)


def _parts(shape: shapes.Type) -> Iterator[shapes.Type]:
    if isinstance(shape, shapes.ListType):
        yield from _parts(shape.item_type)
    elif isinstance(shape, shapes.DictType):
        yield from _parts(shape.key_type)
        yield from _parts(shape.value_type)
    elif isinstance(shape, shapes.UnionType):
        for each in shape.types:
            yield from _parts(each)
    else:
        yield shape


# --- values -------------------------------------------------------------------------------------------------


def _as_json(value: Any, what: str, *, plain: bool) -> Any:
    if plain:
        limits.to_json(value, what, _UNBOUNDED)
        return value
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Refused(f"{what} cannot be stored: {problem}") from None


def _has_hook(custom: type) -> bool:
    return (
        custom is object
        or hasattr(custom, "model_validate")
        or (inspect.isclass(custom) and issubclass(custom, PurePath))
    )


def _encode(value: Any) -> Any:
    """What msgspec does not know: pydantic models, paths, and the subclasses of what JSON has."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, PurePath):
        return str(value)
    for native in (str, int, float):
        if isinstance(value, native):
            return native(value)
    raise TypeError(f"dibs does not know how to store a {type(value).__qualname__}")


def _decode(wanted: Any, value: Any) -> Any:
    if wanted is object:
        return value
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    return wanted(value)
