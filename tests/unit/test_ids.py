"""Ids: UUIDv7, rising within a process, different among processes."""

import copy
import ctypes
import os
import pickle
import threading
import time
from collections.abc import Callable
from uuid import RFC_4122, UUID

import pytest

from dibs import new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = new_id()
    assert (made.version, made.variant) == (7, RFC_4122)


def test_an_id_is_like_any_other_uuid() -> None:
    made = new_id()
    like = UUID(int=made.int)
    assert (made, hash(made), str(made), made.is_safe) == (like, hash(like), str(like), like.is_safe)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_an_id_begins_with_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id().int >> 80
    # A burst of ids may run ahead of the clock, by a millisecond for every 4,096 of them.
    assert before <= made <= time.time_ns() // 1_000_000 + 1_000


def test_ids_rise_also_within_a_millisecond() -> None:
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_threads_never_make_the_same_id() -> None:
    made: list[list[UUID]] = [[] for _ in range(8)]
    threads = [threading.Thread(target=lambda own=own: own.extend(new_id() for _ in range(2_000))) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(own == sorted(own) for own in made)
    assert len({one for own in made for one in own}) == 16_000


@pytest.mark.parametrize("fork", [os.fork, ctypes.CDLL(None).fork], ids=["by Python", "behind Python's back"])
def test_a_forked_child_makes_other_ids(fork: Callable[[], int]) -> None:
    new_id()
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        os.write(writing, b"".join(new_id().bytes for _ in range(100)))
        os._exit(0)
    mine = {new_id() for _ in range(100)}
    os.close(writing)
    theirs = os.read(reading, 1_600)
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0
    both = mine | {UUID(bytes=theirs[at : at + 16]) for at in range(0, 1_600, 16)}
    assert len({made.int & (1 << 62) - 1 for made in both}) == 200  # not by their ticks alone
