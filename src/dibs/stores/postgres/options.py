"""What a PostgreSQL URL may say to dibs; the rest of it belongs to the driver."""

from typing import Annotated, Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from dibs.errors import ConfigurationError


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of dibs, each with a default that most people never change."""

    claim: Literal["single", "two-phase"] = "single"
    """How jobs are claimed: in one statement, or by locking first and updating then, in one transaction."""
    migrate: Literal["never", "auto"] = "never"
    """Whether ``setup`` may create and upgrade the schema. ``auto`` suits development."""
    pool: Annotated[int, msgspec.Meta(ge=1)] = 10
    """How many connections a process may hold, besides the one that listens for wake-ups."""
    pooler: Literal["none", "transaction"] = "none"
    """Set to ``transaction`` behind a transaction-mode pooler: no prepared statements, no LISTEN."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 20
    """The longest arguments, and the longest result, as JSON in UTF-8."""
    look_every: Annotated[float, msgspec.Meta(ge=0, le=60)] = 1.0
    """At most so many seconds between two claims that look through a queue from its beginning; 0: all do."""


_TAKES = {
    "claim": "single or two-phase",
    "migrate": "never or auto",
    "pool": "a number from 1",
    "pooler": "none or transaction",
    "max_bytes": "a number from 1",
    "look_every": "a number of seconds from 0 to 60",
}


def split(url: str) -> tuple[str, Options]:
    """Take the options of dibs out of a URL; what is left is for the driver."""
    parts = _parts(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in query if name in _TAKES}
    theirs = [(name, value) for name, value in query if name not in _TAKES]
    try:
        options = msgspec.convert(ours, Options, strict=False)
    except msgspec.ValidationError as problem:
        name = str(problem).rpartition("$.")[2].rstrip("`")
        message = f"{name} in a postgresql:// URL must be {_TAKES[name]}, not {ours[name]!r}"
        raise ConfigurationError(message) from None
    return urlunsplit(parts._replace(query=urlencode(theirs))), options


def _parts(url: str) -> SplitResult:
    """The parts of a URL. A password that would be taken for a port or a path is not shown to anybody, but refused."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = SplitResult("", "", "", "", fragment="unreadable")
    host = parts.netloc.rpartition("@")
    if parts.fragment or "@" in host[0] + parts.path or ("@" in parts.query and not host[1]):
        raise ConfigurationError(
            "bad postgresql:// URL: percent-encode the user and the password, @ as %40 for example"
        )
    return parts
