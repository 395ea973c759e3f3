"""A store with something of everything in it, and names that nobody would choose who means well."""

from datetime import timedelta
from typing import Any

import dibs
from dibs.clock import system_clock
from dibs.job import LogLine, NewFlow, NewJob, NewStep, Report
from dibs.outcome import Failed, Outcome, Retry, Succeeded
from dibs.scope import Limit, Rate, Scope
from dibs.store import Store

HOSTILE = "<img src=x onerror=alert(1)>\"'`{{7*7}}</script><script>alert(2)</script>"
"""What would run in a page that believed it."""
LEASE = timedelta(minutes=5)


def new_app() -> dibs.App:
    app = dibs.App("memory://")

    @app.task(queue="mail", name="welcome")
    async def welcome(user: str) -> str:
        return user

    @app.task(name="charge", max_attempts=2)
    async def charge(order: int) -> str:
        return "paid"

    app.schedule("nightly", charge.job(1), cron="0 3 * * *", zone="Europe/Berlin")
    return app


async def fill(app: dibs.App, word: str = "quiet") -> Store:
    """Jobs in every state, a flow, a worker at work, a limit, a schedule; ``word`` is in all that users name."""
    store = await app.store()
    await store.heartbeat("worker-1", [], LEASE, {"queues": ["default", "mail"], "tasks": None, "concurrency": 10})
    await _ended(store, word)
    await _running(store, word)
    await _flow(store, word)
    await store.enqueue([_job(word, queue="mail") for _ in range(3)])
    await store.enqueue([_job(word, run_at=system_clock() + timedelta(hours=1), key=f"key {word}"[:200])])
    await store.limit(Scope(queue="mail"), Limit(concurrency=5, rate=Rate(100, timedelta(minutes=1))), rank=1)
    await app.schedules.add(f"stored {word}"[:200], NewJob(task="report", args={"word": word}), every=3600)
    return store


def _job(word: str, **more: Any) -> NewJob:
    return NewJob(
        task=f"send {word}"[:200], args={"word": word, "list": [1, {"deep": word}]}, meta={"from": word}, **more
    )


async def _ended(store: Store, word: str) -> None:
    sent = await store.enqueue([_job(word, max_attempts=1) for _ in range(6)])
    claims = await store.claim("default", "worker-1", 6, LEASE)
    traceback = f"Traceback (most recent call last):\n  {word}\nValueError: {word}"
    outcomes: list[Outcome] = [
        *(Failed(f"ValueError: order {number} of {word}", traceback) for number in range(3)),
        Succeeded({"said": word}),
        Succeeded(word),
    ]
    await store.settle([claim.settled(outcome) for claim, outcome in zip(claims, outcomes, strict=False)])
    await store.cancel(dibs.Filter(ids=(sent[5].id,)), force=True)


async def _running(store: Store, word: str) -> None:
    await store.enqueue([_job(word, max_attempts=3)])
    [claim] = await store.claim("default", "worker-1", 1, LEASE)
    await store.settle([claim.settled(Retry(f"once: {word}"))])
    [claim] = await store.claim("default", "worker-1", 1, LEASE)
    line = LogLine(system_clock(), 2, f"a line: {word}")
    await store.heartbeat("worker-1", [claim], LEASE, reports={claim.id: Report(0.4, f"note {word}", (line,))})


async def _flow(store: Store, word: str) -> None:
    steps = (
        NewStep(name="fetch", job=_job(word)),
        NewStep(name=f"parse {word}"[:200], job=_job(word), needs=("fetch",)),
        NewStep(name="check", job=_job(word), needs=("fetch",)),
        NewStep(name="index", job=_job(word), needs=(f"parse {word}"[:200], "check")),
    )
    await store.start(NewFlow(name=f"import {word}"[:200], steps=steps))
    claims = await store.claim("default", "worker-1", 1, LEASE)
    await store.settle([claim.settled(Succeeded(word)) for claim in claims])
