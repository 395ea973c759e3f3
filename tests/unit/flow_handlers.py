"""An app whose tasks are steps of flows in tests; a child process can import it."""

import threading
from dataclasses import dataclass

from dibs import App, Fail, current

app = App("memory://")
ran: list[str] = []


@dataclass
class Page:
    """A result that JSON does not know."""

    url: str
    words: int


@app.task
async def fetch(url: str) -> Page:
    ran.append(current().step or "?")
    return Page(url, len(url))


@app.task
def total() -> int:
    ran.append(current().step or "?")
    return sum(fetch.result_from(page).words for page in current().inputs.values())


@app.task
async def say(text: str) -> str:
    ran.append(current().step or "?")
    return "".join([*map(str, current().inputs.values()), text])


@app.task(max_attempts=1)
async def fail(reason: str = "broken") -> None:
    ran.append(current().step or "?")
    raise Fail(reason)


@app.task(batch=10)
async def measure(items: list[str]) -> list[int]:
    ran.append(",".join(sorted(attempt.step or "?" for attempt in current().batch)))
    for attempt, item in zip(current().batch, items, strict=True):
        if item == "more":
            attempt.add_step("more-said", say.job("!"), needs=attempt.step or "?")
    return [len(item) for item in items]


def _fan_out(count: int, then: str) -> int:
    step = current()
    parts = [step.add_step(f"part-{n}", say.job(str(n)), needs=[step.step or "?"]) for n in range(count)]
    step.add_step("whole", say.job("."), needs=parts)
    if then == "fail":
        raise Fail("after it has added")
    return count


@app.task(max_attempts=1)
async def fan_async(count: int, then: str = "succeed") -> int:
    return _fan_out(count, then)


@app.task(max_attempts=1)
def fan_thread(count: int, then: str = "succeed") -> int:
    assert threading.current_thread() is not threading.main_thread()
    return _fan_out(count, then)


@app.task(max_attempts=1, executor="process")
def fan_process(count: int, then: str = "succeed") -> int:
    return _fan_out(count, then)


@app.task(executor="process")
def say_in_process(text: str) -> str:
    return "".join([*map(str, current().inputs.values()), text])


FANS = {"async": fan_async, "thread": fan_thread, "process": fan_process}
