"""What a server must be like before dibs trusts it with jobs."""

import re

from dibs.errors import ConfigurationError, SchemaError
from dibs.stores.redis.link import Link
from dibs.stores.redis.scripts import LAYOUT

OLDEST = (6, 2)
HOPS = 5
"""How often a cluster may send us on: while it elects a master, two nodes may name each other."""


async def check(link: Link, hops: int = HOPS) -> None:
    """Refuse a server that is too old, may forget jobs, or holds data of a newer dibs."""
    server, memory, policy, layout = await link.exchange(
        ("INFO", "server"),
        ("INFO", "memory"),
        ("CONFIG", "GET", "maxmemory-policy"),
        ("GET", link.root + b"layout"),
    )
    for answer in (server, memory):
        if isinstance(answer, Exception):
            raise link.explain(answer)
    _check_version(_field(server, "redis_version"))
    if isinstance(policy, list) and len(policy) > 1:
        _check_policy(policy[1].decode())
    else:  # CONFIG is often forbidden where somebody else runs the server
        _check_policy(_field(memory, "maxmemory_policy"))
    if isinstance(layout, Exception):
        if not hops or not await link.follow(layout):
            raise link.explain(layout)
        return await check(link, hops - 1)
    if isinstance(layout, bytes):
        _check_layout(layout)


def _field(info: bytes, name: str) -> str:
    found = re.search(rf"^{name}:(.*?)\r?$", info.decode(errors="replace"), re.MULTILINE)
    return found[1] if found else ""


def _check_version(text: str) -> None:
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    if version < OLDEST:
        raise ConfigurationError(
            f"dibs needs Redis 6.2 or newer, or Valkey; this server says {text or 'nothing'}: upgrade it"
        )


def _check_policy(policy: str) -> None:
    if policy and policy != "noeviction":
        raise ConfigurationError(
            f"this Redis server drops keys when memory is full (maxmemory-policy is {policy}): "
            "jobs would be lost, so set maxmemory-policy to noeviction"
        )


def _check_layout(layout: bytes) -> None:
    if not layout.isdigit() or int(layout) > LAYOUT:
        raise SchemaError(
            f"the jobs in this Redis have layout {layout.decode(errors='replace')[:20]}, "
            f"this dibs knows up to {LAYOUT}: upgrade dibs"
        )
