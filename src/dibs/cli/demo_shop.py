"""The shop of ``dibs demo``: an app as anybody would write it, but that its work is only pretended.

Run by real workers: ``dibs work dibs.cli.demo_shop:app``.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

from dibs import App, Attempt, Constant, Exponential, NewJob, Priority, current
from dibs.cli.demo_diary import SETTLED, Diary, end_with_the_demo
from dibs.outcome import Outcome

QUEUE = "demo"
BROKEN = '{"order": 17, "items": ['
PAGES = 60

app = App(name="shop", queue=QUEUE, retention=None)


@dataclass(frozen=True)
class Product:
    """What the search index is told about."""

    id: int
    name: str


@app.task
async def send_mail(to: str, subject: str) -> None:
    """Most of what a shop does."""
    await asyncio.sleep(0.05 + len(to + subject) % 7 / 50)


@app.task(priority=Priority.LOW)
def make_thumbnail(picture: int) -> str:
    """A plain function: it runs in a thread."""
    time.sleep(0.05)
    return hashlib.sha256(str(picture).encode() * 20_000).hexdigest()[:12]


@app.task(priority=Priority.HIGH, retry=Exponential(first=1, cap=8), retry_on=TimeoutError)
async def charge_card(order: int, amount: Decimal) -> str:
    """Every second one needs a second attempt."""
    await asyncio.sleep(0.1)
    if order % 2 and current().attempt == 1:
        raise TimeoutError("the bank did not answer")
    return f"{amount} EUR for order {order}"


@app.task(priority=Priority.HIGH)
async def nightly_report(day: date) -> int:
    """Long enough to watch it, and to kill the worker that writes it."""
    attempt = current()
    for page in range(1, PAGES + 1):
        await asyncio.sleep(0.1)
        attempt.progress(page / PAGES, f"page {page} of {PAGES}")
    attempt.log(f"{PAGES} pages for {day}")
    return PAGES


@app.task(priority=Priority.HIGH, max_attempts=3, retry=Constant(1))
async def import_order(text: str) -> int:
    """Poison: what it is given cannot be read, however often it is tried."""
    await asyncio.sleep(0.02)
    try:
        return len(json.loads(text)["items"])
    except json.JSONDecodeError as problem:
        raise ValueError("this order cannot be read") from problem


@app.task(batch=25)
def index_products(products: list[Product]) -> list[int]:
    """Up to 25 jobs in one call, as search engines like it; each gets a result of its own."""
    time.sleep(0.1)
    return [len(product.name.split()) for product in products]


def orders(count: int) -> Iterator[NewJob]:
    """A believable mix: much mail, some pictures, a few payments, a little poison, and one nightly report."""
    random = Random(7)
    yield nightly_report.job(date(2026, 3, 1))
    for number in range(1, count):
        dice = random.random()
        if dice < 0.004:
            yield import_order.job(BROKEN)
        elif dice < 0.05:
            yield charge_card.job(number, Decimal(number) / 100)
        elif dice < 0.15:
            yield make_thumbnail.job(number)
        elif dice < 0.30:
            yield index_products.job(Product(number, f"lamp number {number}"))
        else:
            yield send_mail.job(f"customer-{number}@example.com", "Your order is on its way")


def poisoned(job: Any) -> bool:
    """Whether this job cannot succeed."""
    return bool(job.task == import_order.name)


# --- the diary: what each worker writes down beside the store, for the proof at the end ---------------------

_diary = Diary.of_this_process()
app.on("startup")(end_with_the_demo)


@app.middleware
async def write_down(attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """When each handler began and ended."""
    for each in attempt.batch:
        _diary.began(each)
    try:
        return await call_next()
    finally:
        for each in attempt.batch:
            _diary.ended(each)


def _listen(event: str) -> None:
    @app.on(event)
    def settled(attempt: Attempt, outcome: Outcome | None) -> None:
        _diary.settled(attempt, event, outcome)


for _event in SETTLED:
    _listen(_event)
