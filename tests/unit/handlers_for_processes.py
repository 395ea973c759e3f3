"""Handlers that a child process can import."""

import os
import time

from dibs.attempt import current
from dibs.signals import Snooze


def add(one: int, two: int) -> int:
    current().log("adding")
    return one + two


def where() -> int:
    return os.getpid()


def sleep() -> None:
    time.sleep(60)


def snooze() -> None:
    raise Snooze(3600)


def divide(by: int) -> float:
    return 1 / by


def die() -> None:
    os._exit(7)


def each(items: list[int]) -> list[int | Exception]:
    return [item * 2 if item else ValueError("zero") for item in items]
