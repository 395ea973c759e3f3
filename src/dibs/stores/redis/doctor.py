"""What ``dibs doctor`` looks at in Redis and Valkey."""

from collections.abc import Iterator, Mapping
from typing import Any

from dibs.clock import from_micros, system_clock
from dibs.errors import DibsError
from dibs.stores.doctor import Finding, clocks, fail, ok, unfit, warn
from dibs.stores.redis import options as opts
from dibs.stores.redis.checks import check
from dibs.stores.redis.link import Link

_SETTINGS = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")


async def examine(url: str) -> list[Finding]:
    """Connect once and read; nothing is written."""
    options = opts.parse(url)
    link = Link(options)
    try:
        asked = system_clock()
        [time] = await link.exchange(("TIME",))
        answered = system_clock()
        if isinstance(time, Exception):
            raise link.explain(time)
        [info] = await link.exchange(("INFO",))
        if isinstance(info, Exception):
            raise link.explain(info)
        facts = _facts(info)
        return [
            ok("store", f"the Redis server at {options.where} answers"),
            ok("version", _version(facts)),
            await _fitness(link),
            clocks(asked, from_micros(int(time[0]) * 1_000_000 + int(time[1])), answered),
            *_durability(facts, await _settings(link)),
            *_server(facts),
        ]
    finally:
        await link.close()


def _facts(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _version(facts: Mapping[str, str]) -> str:
    valkey = facts.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {facts.get('redis_version', 'of unknown version')}"


async def _fitness(link: Link) -> Finding:
    """What ``setup`` would say: version, eviction policy, layout."""
    try:
        await check(link)
    except DibsError as problem:
        return unfit("settings", problem)
    return ok("settings", "no eviction, and a layout that this dibs knows")


async def _settings(link: Link) -> dict[str, str] | None:
    """The settings that matter, or None where CONFIG is forbidden."""
    answers: list[Any] = await link.exchange(*(("CONFIG", "GET", name) for name in _SETTINGS))
    if any(isinstance(answer, Exception) for answer in answers):
        return None
    return {answer[0].decode(): answer[1].decode() for answer in answers if len(answer) > 1}


def _durability(facts: Mapping[str, str], settings: Mapping[str, str] | None) -> Iterator[Finding]:
    appending = facts.get("aof_enabled") == "1"
    if not appending:
        yield warn(
            "durability",
            "appendonly is off: when the server dies, jobs since its last snapshot are lost",
            "set appendonly yes",
        )
    elif settings is None:
        yield ok("durability", "appendonly is on (CONFIG is forbidden, so appendfsync cannot be read)")
    elif settings.get("appendfsync") == "no":
        yield warn("durability", "appendfsync is no: the kernel decides when to write", "set appendfsync everysec")
    else:
        how = settings.get("appendfsync", "unknown")
        note = ": a power cut may take the last second or two" if how == "everysec" else ""
        yield ok("durability", f"appendonly is on, appendfsync is {how}{note}")
    if appending and facts.get("aof_last_write_status", "ok") != "ok":
        yield fail("durability", "the last write to the append-only file failed", "free space on the server's disk")


def _server(facts: Mapping[str, str]) -> Iterator[Finding]:
    if facts.get("role", "master") != "master":
        yield fail("role", "this server is a replica: nothing can be written", "connect to the master")
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if most and used > most * 0.8:
        yield warn(
            "memory",
            f"{used / most:.0%} of maxmemory is in use: enqueues are refused when it is full",
            "prune jobs, or raise maxmemory",
        )
    else:
        limit = f" of {most >> 20:,} MiB" if most else ", no limit"
        yield ok("memory", f"{used >> 20:,} MiB in use{limit}")
