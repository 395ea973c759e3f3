"""A store with a bit of everything in it."""

import asyncio
from datetime import timedelta
from typing import Any

import dibs


def declare(app: dibs.App) -> dict[str, Any]:
    """Tasks that succeed, fail, take secrets."""

    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(max_attempts=1, queue="mail", redact=["card"])
    async def pay(card: str, amount: int) -> None:
        raise ValueError(f"card {card} was refused for {amount} EUR")

    return {"add": add, "pay": pay}


def fill(app: dibs.App, url: str = "") -> None:
    """From another thread than the server's."""
    tasks = declare(app)

    async def work() -> None:
        async with app:
            await filled(app, tasks)

    asyncio.run(work())


async def filled(app: dibs.App, tasks: dict[str, Any]) -> None:
    add, pay = tasks["add"], tasks["pay"]
    for number in range(5):
        await add.enqueue(number)
        await pay.enqueue("4111-1111-1111", number)
    plan = app.flow("sums")
    plan.step("one", add.job(1))
    plan.step("two", add.job(2), needs=["one"])
    await plan.start()
    await app.drain()
    await app.schedules.add("nightly", add.job(1), cron="0 3 * * *")
    await app.schedules.add("often", add.job(2), every=timedelta(hours=1), paused=True)
    for number in range(5):
        await add.options(delay=3600, queue="later").enqueue(number)
    await (await app.store()).pause("later")
