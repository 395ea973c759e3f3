"""Where the file is and how to work on it, from a URL or from arguments."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from dibs.errors import ConfigurationError
from dibs.limits import DEFAULT, Limits

SYNCHRONOUS = ("full", "normal")
BUSY_TIMEOUT = 30.0
KNOWN = ("busy_timeout", "max_bytes", "migrate", "synchronous")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL can say."""

    path: Path
    synchronous: str = "full"
    busy_timeout: float = BUSY_TIMEOUT
    """How many seconds to wait for another program's transaction before giving up."""
    migrate: bool = False
    """Bring an older schema, or a file that holds other tables, up to date in ``setup``."""
    limits: Limits = DEFAULT

    def __post_init__(self) -> None:
        if self.synchronous not in SYNCHRONOUS:
            raise ConfigurationError(f"synchronous must be full or normal, not {self.synchronous!r}")
        if not 0 < self.busy_timeout <= 3600:
            raise ConfigurationError("busy_timeout must be a number of seconds, more than 0 and up to 3600")


def parse(url: str) -> Options:
    """Read ``sqlite:///relative.db`` or ``sqlite:////absolute.db``, with its options."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        raise ConfigurationError("the URL of an SQLite store starts with sqlite:///")
    if parts.netloc or parts.fragment:
        raise ConfigurationError("write sqlite:///jobs.db (relative) or sqlite:////srv/jobs.db (absolute)")
    name = unquote(parts.path).removeprefix("/")
    if name in ("", ":memory:") or "\0" in name:
        raise ConfigurationError(
            "this SQLite URL names no file: write sqlite:///jobs.db, or memory:// for jobs that need not last"
        )
    given = _given(parts.query)
    return Options(
        path=Path(name),
        synchronous=given.get("synchronous", "full"),
        busy_timeout=_number(given, "busy_timeout", BUSY_TIMEOUT),
        migrate=_migrate(given.get("migrate")),
        limits=Limits(max_bytes=int(_number(given, "max_bytes", DEFAULT.max_bytes))),
    )


def _given(query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in KNOWN:
            raise ConfigurationError(f"unknown option {option[:40]!a} in the SQLite URL: it knows {', '.join(KNOWN)}")
        if option in given:
            raise ConfigurationError(f"the SQLite URL says {option} twice: say it once")
        given[option] = value
    return given


def _number(given: Mapping[str, str], option: str, default: float) -> float:
    try:
        number = float(given.get(option, default))
    except ValueError:
        number = 0.0
    if not 0 < number < 2**40:
        raise ConfigurationError(f"{option} in the SQLite URL must be a number greater than 0")
    return number


def _migrate(value: str | None) -> bool:
    if value not in (None, "auto"):
        raise ConfigurationError("migrate in the SQLite URL can only be auto: leave it out otherwise")
    return value == "auto"
