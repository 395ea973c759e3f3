"""What ``dibs doctor`` can ask of a store: findings, each with what to do about it.

Beside the protocol, like migrations: server settings and clocks are different things on every store, and nothing
above needs them to work.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from importlib import import_module

import msgspec

from dibs.errors import DibsError, StoreUnavailable
from dibs.stores import import_kind, kind_of, scheme_of

CLOCK_WARNING = timedelta(seconds=1)
CLOCK_FAILURE = timedelta(seconds=30)


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: what was found, and what to do if it is not well."""

    check: str
    level: Level
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Level.OK, text)


def warn(check: str, text: str, fix: str) -> Finding:
    """It works, but somebody should know."""
    return Finding(check, Level.WARN, text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """It does not work, or jobs can get lost."""
    return Finding(check, Level.FAIL, text, fix)


async def examine(url: str) -> list[Finding]:
    """Look at the store behind a URL. Never raises for what it finds: that a store is out of reach is a finding."""
    try:
        kind = kind_of(url)
        import_kind(kind, scheme_of(url))
        look: Callable[[str], Awaitable[list[Finding]]] = import_module(f"{kind.module}.doctor").examine
        return await look(url)
    except StoreUnavailable as problem:
        return [fail("store", str(problem), "start the server, or correct the URL")]
    except DibsError as problem:
        return [unfit("store", problem)]


def unfit(check: str, problem: DibsError) -> Finding:
    """A refusal as a finding: by the rule for messages, what to do stands behind the last colon."""
    said, _, advice = str(problem).rpartition(": ")
    return fail(check, said or advice, advice if said else "check the URL and the server")


def clocks(asked: datetime, told: datetime, answered: datetime) -> Finding:
    """Compare the store's clock, read between two looks at this machine's."""
    apart = told - (asked + (answered - asked) / 2)
    unsure = (answered - asked) / 2
    seconds = apart.total_seconds()
    if abs(apart) <= max(CLOCK_WARNING, unsure):
        within = max(abs(apart), unsure).total_seconds()
        return ok("clock", f"this machine and the store agree to within {within:.3f} s")
    text = f"the store's clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    advice = "synchronise both with NTP: leases are safe, but delays given here come true early or late"
    return (fail if abs(apart) > CLOCK_FAILURE else warn)("clock", text, advice)
