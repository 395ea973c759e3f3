"""A job's key and its limit key, made of the arguments that it was enqueued with."""

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from dibs.arguments import Signature
from dibs.errors import ConfigurationError, Refused

Key = str | Callable[..., str | None]
"""``"user-{user_id}"``, or a function that gets what the task gets and answers the key, or None for no key."""

MakeKey = Callable[[tuple[Any, ...], Mapping[str, Any], Mapping[str, Any]], str | None]
"""From the arguments as given, positional and named, and by parameter name."""

_ROOT = re.compile(r"[.\[]")


def literal(key: str) -> str:
    """A template that makes exactly this key."""
    return key.replace("{", "{{").replace("}", "}}")


def make_key(task: str, key: Key | None, signature: Signature, what: str = "key") -> MakeKey | None:
    """How a task makes its keys, or its limit keys (``what``); None if its jobs have none."""
    if key is None:
        return None
    if isinstance(key, str):
        return _from_template(task, key, signature, what)
    return lambda args, kwargs, bound: key(*args, **kwargs)


def _from_template(task: str, template: str, signature: Signature, what: str) -> MakeKey:
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as problem:
        raise ConfigurationError(f"task {task}: the {what} {template!r} is no template: {problem}") from None
    for field in fields:
        if _ROOT.split(field, maxsplit=1)[0] not in signature.names:
            known = ", ".join(signature.names) or "no parameters"
            raise ConfigurationError(
                f"task {task}: the {what} {template!r} names {field or 'nothing'!r}; the function has {known}"
            )

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Mapping[str, Any]) -> str:
        try:
            return template.format(**{**signature.defaults, **bound})
        except (AttributeError, KeyError, IndexError, ValueError, TypeError) as problem:
            raise Refused(f"{task}: the {what} {template!r} does not fit these arguments: {problem!r}") from None

    return make
