"""A system that loses jobs, or runs one twice, as its setting says: the benchmark must not give it a figure."""

import os
import time
from pathlib import Path

from bench.peers.scripts.side import URL, Job, handle, setting

JOBS = Path(URL.removeprefix("sqlite:///"))


class Client:
    def open(self) -> None: ...

    def close(self) -> None: ...

    def one(self, job: Job) -> None:
        with JOBS.open("a") as file:
            file.write(f"{job.i}\n")


def worker() -> None:
    for number in map(int, JOBS.read_text().split()):
        if number == 3 and setting("loses", 0):
            number = 4  # noqa: PLW2901 (so that another runs twice and the count is right)
        handle(number)
        if number == 3 and setting("doubles", 0):
            handle(number)
    JOBS.write_text("")
    while os.getppid() > 1:
        time.sleep(1)


async def left() -> int:
    return len(JOBS.read_text().split())
