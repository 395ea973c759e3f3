"""What a PostgreSQL URL may say to dibs; the rest of it belongs to the driver."""

from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from dibs.errors import ConfigurationError


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of dibs, each with a default that most people never change."""

    claim: Literal["single", "two-phase"] = "single"
    """How jobs are claimed: in one statement, or by locking first and updating then, in one transaction."""
    migrate: Literal["never", "auto"] = "never"
    """Whether ``setup`` may create and upgrade the schema. ``auto`` suits development."""
    pool: int = 10
    """How many connections a process may hold, besides the one that listens for wake-ups."""
    pooler: Literal["none", "transaction"] = "none"
    """Set to ``transaction`` behind a transaction-mode pooler: no prepared statements, no LISTEN."""
    max_bytes: int = 1 << 20
    """The longest arguments, and the longest result, as JSON in UTF-8."""
    look_every: float = 1.0
    """At most so many seconds between two claims that look through a queue from its beginning."""


def split(url: str) -> tuple[str, Options]:
    """Take the options of dibs out of a URL; what is left is for the driver."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in query if name in Options.__struct_fields__}
    theirs = [(name, value) for name, value in query if name not in Options.__struct_fields__]
    try:
        options = msgspec.convert(ours, Options, strict=False)
    except msgspec.ValidationError as problem:
        raise ConfigurationError(f"bad option in the postgresql:// URL: {problem}") from None
    if options.pool < 1:
        raise ConfigurationError("the pool of a postgresql:// URL must have at least 1 connection")
    return urlunsplit(parts._replace(query=urlencode(theirs))), options
