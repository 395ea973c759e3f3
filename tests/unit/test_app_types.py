"""What a type checker knows of a task: asked of mypy itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"

SAMPLE = """
from dataclasses import dataclass
from datetime import timedelta

from dibs import App, Constant, OnConflict, Rate

app = App("memory://")


@dataclass
class Order:
    id: int


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
def ship(order: Order, *, express: bool = False) -> str:
    return "ok"


@app.task(queue="mail", retry=Constant(5), key="mail-{to}", timeout=3, retry_on=(OSError,))
async def mail(to: str) -> None: ...


@app.task(key="{n}", unique_for=60, on_conflict="debounce", max_delay=timedelta(hours=1), expires_in=5, limit_key="{n}")
async def tidy(n: int) -> str:
    return str(n)


@app.task(concurrency=3, rate="10/s")
def charge(order: int) -> int:
    return order


app.limit(task=charge, concurrency=3, rate=Rate(10, per=1))
app.limit(queue="mail", each_key=True, concurrency=1)


@app.task(executor="process")
def burn(n: int) -> float:
    return n / 2


@app.task(batch=100)
def index(orders: list[Order]) -> list[int | BaseException]:
    return [each.id for each in orders]


@app.task(batch=100, queue="mail")
async def forget(names: list[str]) -> None: ...


@app.schedule(cron="@daily", zone="Europe/Berlin", missed="all")
@app.task
async def clean(rooms: int = 3) -> int:
    return rooms


async def good() -> None:
    reveal_type((await tidy.options(on_conflict=OnConflict.REPLACE).enqueue(1)).changed)  # bool
    reveal_type(await app.limits.set(queue="mail", rate=Rate(5, per=timedelta(minutes=1))))  # dibs.scope.Limit
    reveal_type(await app.limits.reset(task=charge))  # dibs.scope.Limit | None
    reveal_type(await (await clean.enqueue(rooms=2)).result())  # int
    reveal_type(await app.schedules.add("x", add.job(1), every=5))  # dibs.schedule.Schedule
    app.schedule("y", clean, every=timedelta(hours=1), overlap="skip")
    reveal_type(await add.enqueue(1, b=2))  # dibs.handle.Handle[int]
    reveal_type(await (await add.enqueue(1)).result())  # int
    reveal_type(await (await ship.enqueue(Order(1), express=True)).result(5))  # str
    reveal_type(await (await mail.enqueue("x")).result(timedelta(seconds=1)))  # None
    reveal_type(await (await burn.options(delay=5, priority=3).enqueue(1)).result())  # float
    reveal_type(await (await index.enqueue(Order(1))).result())  # int
    reveal_type(await (await forget.enqueue("a")).result())  # None
    reveal_type(await add(1))  # int
    reveal_type(ship(Order(1)))  # str
    reveal_type(add.job(1))  # dibs.job.NewJob
    reveal_type(await add.enqueue_many(add.job(n) for n in range(3)))  # int
    async for handle in add.enqueue_many([(1,)]):
        reveal_type(handle)  # dibs.handle.Handle[int]


reveal_type(app.sync(add.enqueue(1)))  # dibs.handle.Handle[int]
reveal_type(app.sync(app.sync(add.enqueue(1)).result()))  # int


async def bad() -> None:
    await add.enqueue("x")  # error: arg-type
    await add.enqueue(1, c=2)  # error: call-arg
    await add.enqueue()  # error: call-arg
    add.job("x")  # error: arg-type
    await ship.enqueue(Order(1), True)  # error: call-arg
    await index.enqueue(1)  # error: arg-type
    await add.options(delay="soon").enqueue(1)  # error: arg-type
    app.task(quue="mail")  # error: call-overload
    app.task(key="k", on_conflict="merge")  # error: call-overload
    tidy.options(on_conflict="merge")  # error: arg-type
    tidy.options(concurrency=3)  # error: call-arg
    app.limit(queues="mail", concurrency=1)  # error: call-arg
    app.limit(queue="mail", rate=5)  # error: arg-type
    app.task(executor="thread")  # error: call-overload
    app.schedule("z", clean, cron="@daily", missed="some")  # error: call-overload
    app.schedule("z", clean, corn="@daily")  # error: call-overload
    await app.schedules.add("z", clean, corn="@daily")  # error: call-arg
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What mypy says about the sample, by line: the type of a reveal, or the code of an error."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "sample.py").write_text(SAMPLE)
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCES}\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "sample.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found = {}
    for line in done.stdout.splitlines():
        if reveal := re.match(r'sample\.py:(\d+): note: Revealed type is "(.*)"', line):
            found[int(reveal[1])] = reveal[2]
        elif error := re.match(r"sample\.py:(\d+): error: .*\[([\w-]+)\]$", line):
            found[int(error[1])] = f"error: {error[2]}"
    return found


def _marked() -> dict[int, str]:
    lines = enumerate(SAMPLE.splitlines(), 1)
    return {number: line.rpartition("  # ")[2] for number, line in lines if "  # " in line}


@pytest.mark.parametrize("line", _marked(), ids=lambda line: SAMPLE.splitlines()[line - 1].strip())
def test_mypy_knows_the_type_or_the_mistake(line: int, said: dict[int, str]) -> None:
    assert said.get(line) == _marked()[line]


def test_mypy_finds_nothing_else_to_say(said: dict[int, str]) -> None:
    assert said.keys() == _marked().keys()
