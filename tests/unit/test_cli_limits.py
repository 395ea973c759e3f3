"""`dibs limits`, the ageing of queues, and what the command line says of keys, windows and expiry."""

from datetime import timedelta
from pathlib import Path

import pytest

from dibs.clock import system_clock
from dibs.job import NewJob
from dibs.limiting import tell
from dibs.outcome import Succeeded
from dibs.scope import Limit, Rate, Scope
from tests.unit.commands import Shell

MAIL = Scope(queue="mail")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_limit_is_set_listed_and_reset(shell: Shell) -> None:
    done = shell("limits", "set", "--queue", "mail", "--concurrency", 10, "--rate", "100/min")
    assert (done.exit_code, done.stdout) == (0, "queue mail: set, 10 at once, 100/min, from the next claim on\n")
    shell("limits", "set", "--queue", "mail", "--each-key", "--concurrency", 1)
    shell("limits", "set", "--task", "charge", "--rate", "5/s")
    shell.enqueue(3)
    shell.claim(2)
    lines = [" ".join(line.split()) for line in shell("limits").stdout.splitlines()]
    assert lines == [
        "SCOPE LIMIT IN USE NEXT START SET BY IN CODE",
        "queue mail 10 at once, 100/min 2 of 10 now operator",
        "each key of queue mail 1 at once by key by key operator",
        "task charge 5/s 0 now operator",
    ]
    shell("limits", "set", "--queue", "mail", "--concurrency", 2)
    assert "2 of 2 when one ends" in " ".join(shell("limits").stdout.split())
    done = shell("limits", "reset", "--queue", "mail")
    assert (done.exit_code, done.stdout) == (0, "queue mail: reset, no limit\n")
    done = shell("limits", "reset", "--queue", "mail")
    assert (done.exit_code, done.stderr) == (
        1,
        "dibs: queue mail has no limit: dibs limits shows those that there are\n",
    )


def test_a_reset_returns_to_what_workers_declare(shell: Shell) -> None:
    shell.ask(lambda store: tell(store, {MAIL: Limit(concurrency=4)}))
    shell("limits", "set", "--queue", "mail", "--concurrency", 0)
    assert "0 at once" in shell("limits").stdout
    assert "4 at once" in shell("limits").stdout
    done = shell("limits", "reset", "--queue", "mail")
    assert done.stdout == "queue mail: reset, 4 at once, as the code says\n"
    assert shell.json("limits")[0]["set_by"] == "code"


def test_programs_get_numbers(shell: Shell) -> None:
    assert shell.json("limits", "set", "--queue", "mail", "--rate", "10/30s") == {
        "queue": "mail",
        "task": None,
        "each_key": False,
        "action": "set",
        "limit": {"concurrency": None, "rate": {"count": 10, "per": 30.0}},
    }
    [one] = shell.json("limits")
    assert one == {
        "queue": "mail",
        "task": None,
        "each_key": False,
        "limit": {"concurrency": None, "rate": {"count": 10, "per": 30.0}},
        "set_by": "operator",
        "running": 0,
        "next_start": None,
        "in_code": None,
    }
    assert shell.json("limits", "reset", "--queue", "mail")["limit"] is None
    assert "no limits" in shell("limits").stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "say what to limit: --queue QUEUE or --task TASK"),
        (["--queue", "q", "--task", "t", "--concurrency", "1"], "one of them"),
        (["--queue", "q"], "say how many: --concurrency N, --rate 100/min"),
        (["--queue", "q", "--rate", "fast"], "is no rate: write 100/min"),
        (["--task", "t", "--each-key", "--concurrency", "1"], "each_key belongs to a queue"),
        (["--queue", "q", "--concurrency", "-1"], "not in the range"),
    ],
)
def test_a_limit_that_makes_no_sense_ends_with_2(shell: Shell, words: list[str], says: str) -> None:
    done = shell("limits", "set", *words)
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_held_back_job_says_so(shell: Shell) -> None:
    shell.worker()
    shell("limits", "set", "--queue", "mail", "--concurrency", 0)
    [job] = shell.enqueue()
    assert shell.json("why", job)["reason"] == "held_back"
    assert "queue mail may run none" in shell("jobs", "show", job).stdout


def test_a_queue_ages_and_shows_it(shell: Shell) -> None:
    shell.enqueue()
    done = shell("queues", "order", "mail", "fifo", "--ageing", "10s")
    assert (done.exit_code, done.stdout) == (
        0,
        "mail: fifo, one priority more for every 10 s of waiting, from the next claim on\n",
    )
    assert "ages 10 s" in shell("queues").stdout
    assert shell("queues", "order", "mail", "lifo", "--ageing", "10s").exit_code == 2
    shell("queues", "order", "mail", "lifo")
    assert "ages" not in shell("queues").stdout


def test_a_request_with_a_busy_key_says_what_became_of_it(shell: Shell) -> None:
    words = ("enqueue", "tidy", "--key", "k", "--queue", "mail")
    first = shell.json(*words, "--unique-for", "1h", "--limit-key", "acme", "--expires-in", "2h")
    assert (first["created"], first["changed"]) == (True, False)
    page = shell("jobs", "show", first["id"]).stdout
    assert all(word in page for word in ("limit key", "acme", "expires", "key busy until"))
    again = shell(*words)
    assert again.stdout.strip() == first["id"]
    assert "was not replaced" in again.stderr
    again = shell(*words, "-a", "n=2", "--on-conflict", "replace")
    assert "is now this one" in again.stderr
    done = shell("enqueue", "tidy", "--on-conflict", "replace")
    assert done.exit_code == 2
    assert "give a key, too" in done.stderr


def test_a_requeue_warns_of_jobs_that_would_end_again(shell: Shell) -> None:
    job = NewJob(task="send", queue="mail", expires_at=system_clock() + timedelta(milliseconds=50))
    shell.ask(lambda store: store.enqueue([job]))
    shell.enqueue()
    while shell.ask(lambda store: store.sweep()) == 0:
        pass
    shell.finish(Succeeded())
    done = shell("jobs", "requeue", "--all", "--state", "cancelled", "--state", "succeeded", "--yes")
    assert "1 job of them expired, and will end again: enqueue them anew" in done.stderr


def test_a_schedule_has_a_limit_key_and_an_expiry(shell: Shell) -> None:
    words = ("--limit-key", "acme", "--expires-in", "5m", "--key", "k", "--unique-for", "1h")
    made = shell.json("schedules", "add", "s", "send", "--every", "1h", *words)
    schedule = made["schedule"]
    assert (schedule["limit_key"], schedule["expires_in"], schedule["unique_for"]) == ("acme", 300, 3600)
    shell("schedules", "change", "s", "--priority", 5)
    page = shell("schedules", "show", "s").stdout
    assert all(word in page for word in ("limit key", "acme", "expires in", "5m", "unique for", "1h"))


def test_rates_are_kept_exactly(shell: Shell) -> None:
    shell("limits", "set", "--task", "t", "--rate", "7/333ms", "--concurrency", 3)
    [use] = shell.ask(lambda store: store.limits())
    assert use.limit == Limit(concurrency=3, rate=Rate(7, timedelta(milliseconds=333)))
