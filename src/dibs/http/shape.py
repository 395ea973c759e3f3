"""How a handler is called, seen from both sides: by a framework that has a request, by a worker that has a job."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dibs.errors import ConfigurationError
from dibs.http.request import JobRequest
from dibs.http.responses import Answer, answer_of, answer_of_error

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Shape(msgspec.Struct, frozen=True):
    """A handler and its parameters."""

    function: Callable[..., Any]
    name: str
    parameters: tuple[inspect.Parameter, ...]
    wants_request: str | None
    """The parameter that takes the request, if there is one."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Shape":
        """Read a handler; a ConfigurationError says what no endpoint can give it."""
        name = getattr(function, "__name__", "")
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError as problem:
            raise ConfigurationError(
                f"{name}: an annotation cannot be resolved ({problem}): import its type outside of TYPE_CHECKING"
            ) from None
        found = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in _parameters(function)]
        if len(found) == 1 and found[0].annotation is inspect.Parameter.empty:
            found = [found[0].replace(annotation=JobRequest)]  # the way of Starlette: def handler(request)
        for each in found:
            if isinstance(each.annotation, type) and issubclass(each.annotation, Request):
                raise ConfigurationError(
                    f"{name}: {each.name} cannot be a Request, which is over when the job runs: take a JobRequest"
                )
        wanting = [each.name for each in found if JobRequest in (each.annotation, *get_args(each.annotation))]
        if len(wanting) > 1:
            raise ConfigurationError(f"{name}: one JobRequest is enough, not {' and '.join(wanting)}")
        return cls(function, name, tuple(found), wanting[0] if wanting else None)

    def handler(self) -> Callable[..., Any]:
        """The function of the task: takes what a job carries, gives an ``Answer``."""
        function = self.function
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def handle(**values: Any) -> Answer:
                try:
                    return answer_of(await function(**values))
                except HTTPException as error:
                    return answer_of_error(error)
        else:

            @functools.wraps(function)
            def handle(**values: Any) -> Answer:
                try:
                    return answer_of(function(**values))
                except HTTPException as error:
                    return answer_of_error(error)

        plain = [inspect.Parameter(each.name, _KEYWORD, annotation=_bare(each.annotation)) for each in self.parameters]
        handle.__signature__ = inspect.Signature(plain, return_annotation=Answer)  # type: ignore[attr-defined]
        handle.__annotations__ = {each.name: each.annotation for each in plain} | {"return": Answer}
        return handle

    def outside(self, request: str) -> inspect.Signature:
        """What a framework that reads signatures has to bring: all but the JobRequest, and the request."""
        kept = [each.replace(kind=_KEYWORD) for each in self.parameters if each.name != self.wants_request]
        return inspect.Signature([*kept, inspect.Parameter(request, _KEYWORD, annotation=Request)])


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    given = list(inspect.signature(function).parameters.values())
    for each in given:
        if each.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ConfigurationError(f"{function.__name__}: an endpoint has named parameters, not *{each.name}")
    return given


def _bare(annotation: Any) -> Any:
    """Without what is said to the framework: ``Annotated[int, Path()]`` is an int."""
    if annotation is inspect.Parameter.empty:
        return Any
    return getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
