"""What a Redis URL may say."""

from typing import Literal, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec

from dibs.errors import ConfigurationError

SCHEMES = ("redis", "rediss", "unix")
OPTIONS = ("claim", "prefix", "pool", "max_bytes")
CLAIMS = ("script", "watch")
_PREFIX = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")

ClaimWay = Literal["script", "watch"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A URL taken apart: where the server is, and how to use it."""

    server: str
    """The URL without our options; may hold a password."""
    where: str
    """The server as messages name it: no user, no password."""
    claim: ClaimWay = "script"
    prefix: str = "dibs"
    pool: int = 10
    max_bytes: int | None = None


def parse(url: str) -> Options:
    """Take a URL apart; refuse what nobody can mean."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ConfigurationError(f"a Redis URL begins with one of {known}")
    # A Unix socket has no path left for the database number: there it is an option.
    known_options = (*OPTIONS, "db") if parts.scheme == "unix" else OPTIONS
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in known_options:
            raise ConfigurationError(f"unknown option {name!r} in a Redis URL: known are {', '.join(known_options)}")
    db = given.pop("db", None)
    query = "" if db is None else f"?db={_number('db', db, least=0)}"
    server = f"{parts.scheme}://{parts.netloc}{parts.path}{query}"
    if parts.scheme != "unix" and parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise ConfigurationError("the path of a Redis URL is a database number, as in redis://host:6379/0")
    maximum = given.get("max_bytes")
    return Options(
        server=server,
        where=_where(url),
        claim=claim_way(given.get("claim", "script")),
        prefix=prefix(given.get("prefix", "dibs")),
        pool=_number("pool", given.get("pool", "10"), least=1),
        max_bytes=None if maximum is None else _number("max_bytes", maximum, least=1),
    )


def claim_way(value: str) -> ClaimWay:
    """``script`` or ``watch``."""
    if value not in CLAIMS:
        raise ConfigurationError(f"claim must be one of {', '.join(CLAIMS)}, not {value!r}")
    return cast(ClaimWay, value)


def prefix(value: str) -> str:
    """What all keys begin with. Braces would end the hash tag, so only plain characters will do."""
    if not value or not set(value) <= _PREFIX or len(value) > 100:
        raise ConfigurationError(f"prefix must be 1 to 100 letters, digits or -_.: characters, not {value!r}")
    return value


def _number(name: str, value: str, *, least: int) -> int:
    if not (value.isascii() and value.isdecimal()) or int(value) < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _where(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    try:
        port = parts.port or 6379
    except ValueError:
        raise ConfigurationError("the port in the Redis URL is not a number") from None
    return f"{parts.hostname or 'localhost'}:{port}"
