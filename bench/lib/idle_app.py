"""What the worker of ``bench/idle.py`` runs: a handler that says when it started, on a clock that processes share."""

import time

from dibs import App

app = App()


@app.task
async def start() -> float:
    return time.monotonic()
