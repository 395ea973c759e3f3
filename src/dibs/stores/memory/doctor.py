"""What can be said about a memory store: there is nothing behind it."""

from dibs.stores.doctor import Finding, ok, warn


async def examine(url: str) -> list[Finding]:
    """Memory is always there, and never for long."""
    return [
        ok("store", "memory:// is always reachable"),
        warn(
            "durability",
            "jobs live in one process and end with it",
            "use sqlite:///jobs.db or a server for jobs that must last",
        ),
    ]
