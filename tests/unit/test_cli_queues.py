"""`dibs queues`, `workers`, `why` and `top`: what they print for people and for programs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from dibs.admin import Queue, Snapshot, Worker
from dibs.cli.top_screen import Rates, per_second, picture, rates
from dibs.ids import new_id
from dibs.job import Order, State
from dibs.outcome import Failed, Succeeded
from tests.unit.commands import Shell

AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_queues_lists_every_queue_with_its_counts(shell: Shell) -> None:
    shell.enqueue(3)
    shell.finish(Failed("no"))
    shell.enqueue(1, queue="later", run_at=datetime.now(UTC) + timedelta(days=1))
    shell.worker()
    found = {queue["name"]: queue for queue in shell.json("queues", "list")}
    assert (found["mail"]["due"], found["mail"]["states"]["failed"], found["mail"]["workers"]) == (2, 1, ["w1"])
    assert (found["later"]["due"], found["later"]["scheduled"]) == (0, 1)
    lines = shell("queues").stdout.splitlines()
    assert lines[0].split() == ["QUEUE", "DUE", "SCHED", "RUN", "DONE", "FAIL", "WORKERS", "OLDEST"]
    assert lines[2].split()[:7] == ["mail", "2", "0", "0", "0", "1", "1"]


def test_a_queue_is_paused_resumed_and_turned_around(shell: Shell) -> None:
    shell.enqueue(1)
    assert shell("queues", "pause", "mail").stdout == "mail: paused, running jobs go on, nothing new starts\n"
    assert shell("queues", "order", "mail", "lifo").exit_code == 0
    assert "paused lifo" in shell("queues").stdout
    assert shell.json("queues", "resume", "mail") == {"queues": ["mail"], "action": "resumed"}
    [queue] = shell.json("queues", "list")
    assert (queue["paused"], queue["order"]) == (False, "lifo")
    assert shell("queues", "order", "mail", "sideways").exit_code == 2
    assert shell("queues", "pause", " mail").exit_code == 2


def test_a_queue_without_jobs_is_paused_and_may_be_mistyped(shell: Shell) -> None:
    shell.enqueue(1)
    said = shell("queues", "pause", "mail", "mial")
    assert said.exit_code == 0
    assert said.stderr == "note: there is no job in mial yet: see 'dibs queues' for the names of all\n"
    assert [queue["paused"] for queue in shell.json("queues", "list")] == [True, True]


def test_workers_shows_who_is_alive(shell: Shell) -> None:
    shell.enqueue(1)
    assert shell("workers").stdout == "no workers: start one with dibs work APP\n"
    assert shell("workers", "--live").exit_code == 1
    shell.worker("w1")
    text = shell("workers").stdout
    assert text.splitlines()[1].split()[:2] == ["w1", "live"]
    assert text.splitlines()[0].split()[3:5] == ["HOLDS", "SLOTS"]
    assert "box:7" in text
    [worker] = shell.json("workers", "--live")
    assert worker["tasks"] == ["send"]


def test_why_answers_in_a_sentence_or_with_a_code(shell: Shell) -> None:
    [id_] = shell.enqueue(1)
    assert shell("why", id_).stdout == "No live worker serves queue mail.\n"
    assert shell.json("why", id_)["reason"] == "no_worker"
    assert shell.json("why", new_id(), code=1)["reason"] == "unknown"


def test_top_once_prints_what_a_script_wants(shell: Shell) -> None:
    shell.enqueue(3)
    shell.finish(Succeeded())
    shell.worker()
    seen = shell.json("top", "--once", "--interval", "200ms")
    [queue] = seen["snapshot"]["queues"]
    assert (queue["due"], seen["rates"]["mail"]) == (2, {"enqueued": 0.0, "finished": 0.0})
    text = shell("top", "--once", "--interval", "200ms").stdout
    assert text.startswith(f"dibs top  {shell.url}")
    assert "2 due" in text


# --- what top draws -----------------------------------------------------------------------------------------


def queue(name: str, **states: int) -> Queue:
    counted = {state: states.get(state, 0) for state in State}
    return Queue(
        name=name,
        paused=False,
        order=Order.FIFO,
        states=counted,
        due=counted[State.QUEUED],
        scheduled=0,
        oldest_due=None,
        workers=(),
    )


def snapshot(seconds: float, *queues: Queue, workers: int = 0) -> Snapshot:
    people = tuple(
        Worker(
            name=f"a-worker-with-a-long-name-{n}",
            live=True,
            seen_at=AT,
            running=n,
            queues=("mail",),
            tasks=None,
            concurrency=None,
            info={},
        )
        for n in range(workers)
    )
    return Snapshot(at=AT + timedelta(seconds=seconds), queues=queues, workers=people, running=(), failures=())


def test_rates_are_the_difference_of_two_looks() -> None:
    before = snapshot(0, queue("mail", queued=10, succeeded=5))
    after = snapshot(2, queue("mail", queued=12, succeeded=25), queue("new", queued=4))
    assert rates(before, after) == {"mail": Rates(11, 10), "new": Rates(2, 0)}
    assert rates(after, after) == {}


def test_pruning_is_no_negative_rate() -> None:
    before, after = snapshot(0, queue("mail", succeeded=100)), snapshot(1, queue("mail", succeeded=40))
    assert rates(before, after) == {"mail": Rates(0, 0)}


def test_a_rate_is_short() -> None:
    assert [per_second(rate) for rate in (0, 0.25, 9.9, 12345.6)] == ["0/s", "0.2/s", "9.9/s", "12,346/s"]


@pytest.mark.parametrize(("width", "height"), [(120, 50), (80, 24), (50, 20), (30, 16)])
def test_top_fits_the_window(width: int, height: int) -> None:
    names = [f"queue-{n}-with-a-rather-long-name-that-goes-on" for n in range(40)]
    seen = snapshot(1, *(queue(name, queued=1_000_000, running=3) for name in names), workers=40)
    screen = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    screen.print(picture(seen, {name: Rates(1, 12_345) for name in names}, "sqlite:///jobs.db", width, height=height))
    lines = screen.export_text().rstrip("\n").splitlines()
    screen.file.close()
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width


def test_every_command_has_examples_in_its_help(shell: Shell) -> None:
    groups: dict[tuple[str, ...], int] = {}

    def visit(path: tuple[str, ...]) -> None:
        text = shell(*path, "--help").stdout
        groups[path] = text.replace("Usage: dibs", "").count(f"dibs {' '.join(path)}".strip())
        if "Commands:" in text:
            for line in text.partition("Commands:")[2].splitlines():
                if line.strip():
                    visit((*path, line.split()[0]))

    visit(())
    groups.pop(())
    # The steps of migrate have theirs one level up.
    lacking = [path for path, count in groups.items() if not count and path[0] != "migrate"]
    assert lacking == []
    assert len(groups) > 20


def test_errors_are_one_line_without_secrets(shell: Shell) -> None:
    done = shell("queues", DIBS_URL="postgresql://u:hunter2@127.0.0.1:1/shop")
    assert done.exit_code == 69
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.output
    assert shell("queues", DIBS_URL="mysql://u:hunter2@host/shop").exit_code == 78
    told = json.loads(shell("queues", "list", "--json", DIBS_URL="memory://").stderr)
    assert told["error"]["kind"] == "ConfigurationError"
