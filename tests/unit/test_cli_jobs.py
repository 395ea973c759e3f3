"""`dibs jobs`: finding, showing and changing jobs, one or many."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dibs.ids import new_id
from dibs.job import Filter, LogLine, Report, State
from dibs.outcome import Failed, Retry, Succeeded
from tests.unit.commands import LEASE, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def states(shell: Shell) -> list[str]:
    return [job["state"] for job in shell.json("jobs", "list")["jobs"]]


# --- looking ------------------------------------------------------------------------------------------------


def test_list_shows_the_newest_first_and_says_how_many_more_there_are(shell: Shell) -> None:
    ids = shell.enqueue(5)
    done = shell("jobs", "list", "-n", "2")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["JOB", str(ids[4]), str(ids[3])]
    assert f"2 of 5; the rest: --after {ids[3]}" in done.stderr
    rest = shell.json("jobs", "list", "--after", ids[3])
    assert [job["id"] for job in rest["jobs"]] == [str(id_) for id_ in reversed(ids[:3])]
    assert (rest["total"], rest["after"]) == (5, None)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--queue", "mail"), 4),
        (("--queue", "mail", "--queue", "other"), 5),
        (("--task", "send"), 4),
        (("--state", "failed"), 1),
        (("--state", "failed", "--state", "running"), 2),
        (("--key", "k"), 1),
        (("--worker", "w1"), 2),
        (("--since", "1h"), 5),
        (("--before", "1h"), 0),
        (("--before", "1h ago"), 0),
        (("--finished-since", "2020-01-01"), 1),
        (("--finished-before", "2020-01-01T12:00Z"), 0),
    ],
    ids=str,
)
def test_every_filter_narrows_the_list(shell: Shell, words: tuple[str, ...], found: int) -> None:
    shell.enqueue(4)
    shell.enqueue(1, task="report", queue="other", key="k")
    shell.finish(Failed("no"))
    shell.claim()
    assert shell.json("jobs", "list", *words)["total"] == found


def test_ids_alone_are_for_xargs(shell: Shell) -> None:
    ids = shell.enqueue(2)
    assert shell("jobs", "list", "--ids").stdout.split() == [str(ids[1]), str(ids[0])]


def test_a_list_without_a_match_is_no_error(shell: Shell) -> None:
    shell.enqueue(1)
    done = shell("jobs", "list", "--state", "failed")
    assert (done.exit_code, done.output) == (0, "no job matches\n")


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_list_fits_the_window_and_never_cuts_an_id(shell: Shell, columns: int) -> None:
    [id_] = shell.enqueue(1, task="a_task_with_a_name_that_is_longer_than_most_windows_are_wide_" * 3)
    lines = shell("jobs", "list", COLUMNS=str(columns)).stdout.splitlines()
    assert max(len(line) for line in lines) <= columns
    assert any(str(id_) in line for line in lines)


def test_looking_does_not_create_a_store(shell: Shell) -> None:
    for words in (("jobs", "list"), ("queues",), ("workers",), ("why", new_id()), ("top", "--once"), ("doctor",)):
        assert shell(*words).exit_code != 0
    assert list(shell.folder.iterdir()) == []


def test_show_tells_everything_about_a_job(shell: Shell) -> None:
    [id_] = shell.enqueue(1, key="order-7", meta={"by": "test"}, max_attempts=3)
    shell.finish(Retry("TimeoutError: no answer", timedelta(0), "Traceback: line 1"))
    [claim] = shell.claim()
    at = datetime(2030, 1, 1, tzinfo=UTC)
    said = {id_: Report(0.5, "half", (LogLine(at, 2, "sent to ada"),))}
    shell.ask(lambda store: store.heartbeat("w1", [claim], LEASE, reports=said))
    shell.ask(lambda store: store.settle([claim.settled(Succeeded({"sent": True}))]))
    text = shell("jobs", "show", id_).stdout
    for part in (
        str(id_),
        "succeeded",
        "order-7",
        "2 of 3 (epoch 2)",
        '{"n":0}',
        '{"by":"test"}',
        '{"sent":true}',
        "50%  half",
        "#2  sent to ada",
        "TimeoutError: no answer",
        "Traceback: line 1",
        "UTC  (",
        "It succeeded",
    ):
        assert part in text
    shown = shell.json("jobs", "show", id_)
    assert shown["job"]["report"]["progress"] == 0.5
    assert shown["job"]["created_at"].endswith("Z"), "programs get exact times in UTC"
    assert shown["why"]["reason"] == "succeeded"


def test_what_a_job_holds_cannot_repaint_the_terminal(shell: Shell) -> None:
    [id_] = shell.enqueue(1, args={"x": "\x9b31m"})
    shell.finish(Failed("\x1b[2Jgone\x07", "\x1b]0;title\x07"))
    for words in (("jobs", "show", id_), ("why", id_), ("top", "--once", "--interval", "200ms")):
        text = shell(*words).output
        assert not {"\x1b", "\x07", "\x9b"} & set(text)
    assert "\\x1b[2Jgone" in shell("jobs", "show", id_).stdout


def test_show_of_a_job_that_is_not_there_ends_with_1(shell: Shell) -> None:
    shell.enqueue(1)
    done = shell("jobs", "show", new_id())
    assert done.exit_code == 1
    assert done.stderr.startswith("dibs: There is no job")
    assert shell("jobs", "show", "abc").exit_code == 2


# --- changing -----------------------------------------------------------------------------------------------


def test_jobs_named_by_id_are_changed_without_a_question(shell: Shell) -> None:
    ids = shell.enqueue(3)
    done = shell("jobs", "cancel", ids[0], ids[1])
    assert (done.exit_code, done.stdout) == (0, "cancelled 2 jobs\n")
    assert states(shell) == ["queued", "cancelled", "cancelled"]


def test_many_jobs_by_filter_are_not_changed_when_nobody_can_be_asked(shell: Shell) -> None:
    shell.enqueue(3)
    done = shell("jobs", "cancel", "--queue", "mail")
    assert done.exit_code == 2
    assert "would cancel 3 jobs and there is nobody to ask: say --yes" in done.stderr
    assert states(shell) == ["queued"] * 3
    assert shell("jobs", "cancel", "--queue", "mail", "--yes").stdout == "cancelled 3 jobs\n"


def test_one_job_by_filter_needs_no_question(shell: Shell) -> None:
    shell.enqueue(1, key="k")
    assert shell("jobs", "cancel", "--key", "k").stdout == "cancelled 1 job\n"


def test_a_dry_run_counts_and_changes_nothing(shell: Shell) -> None:
    shell.enqueue(3)
    done = shell("jobs", "delete", "--all", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, "would delete 3 jobs (dry run: nothing was changed)\n")
    assert shell.json("jobs", "delete", "--all", "--dry-run") == {
        "action": "delete",
        "dry_run": True,
        "count": 3,
        "asked": 0,
        "expired": 0,
        "unchanged": {},
    }
    assert len(states(shell)) == 3


@pytest.mark.parametrize("verb", ["cancel", "requeue", "delete"])
def test_a_verb_without_any_choice_is_refused(shell: Shell, verb: str) -> None:
    shell.enqueue(1)
    done = shell("jobs", verb, "--yes")
    assert done.exit_code == 2
    assert "--all" in done.stderr


def test_requeue_of_everything_has_to_say_which_states(shell: Shell) -> None:
    shell.enqueue(2)
    shell.finish(Failed("no"))
    shell.finish(Succeeded())
    assert shell("jobs", "requeue", "--all", "--yes").exit_code == 2
    assert shell("jobs", "requeue", "--all", "--state", "failed", "--yes").stdout == "requeued 1 job\n"
    assert sorted(states(shell)) == ["queued", "succeeded"]


def test_a_running_job_is_asked_or_forced_to_stop(shell: Shell) -> None:
    [id_] = shell.enqueue(1)
    shell.claim()
    assert shell("jobs", "cancel", id_).stdout == "cancelled 1 job, 1 of them run and were asked to stop\n"
    assert states(shell) == ["running"]
    assert shell("jobs", "cancel", id_, "--force").stdout == "cancelled 1 job\n"
    assert states(shell) == ["cancelled"]


def test_named_jobs_that_were_not_changed_are_named_with_the_reason_and_end_with_1(shell: Shell) -> None:
    [queued, done_before] = shell.enqueue(2)
    shell.ask(lambda store: store.cancel(Filter(ids=(done_before,))))
    unknown = new_id()
    done = shell("jobs", "cancel", queued, done_before, unknown)
    assert done.exit_code == 1
    assert done.stdout == "cancelled 1 job\n"
    assert f"{done_before}: it is cancelled, cancel applies to waiting, queued, running" in done.stderr
    assert f"{unknown}: there is no such job" in done.stderr


def test_a_filter_without_a_match_is_no_error(shell: Shell) -> None:
    shell.enqueue(1)
    done = shell("jobs", "requeue", "--state", "failed")
    assert (done.exit_code, done.stdout) == (0, "no job to requeue matches\n")


def test_reschedule_takes_a_moment_or_a_delay(shell: Shell) -> None:
    [id_] = shell.enqueue(1)
    assert shell("jobs", "reschedule", id_, "--run-at", "2040-01-31T14:30+01:00").exit_code == 0
    assert shell.json("jobs", "show", id_)["job"]["run_at"] == "2040-01-31T13:30:00Z"
    assert shell("jobs", "reschedule", id_, "--delay", "1h30m").exit_code == 0
    due = datetime.fromisoformat(shell.json("jobs", "show", id_)["job"]["run_at"])
    assert timedelta(minutes=89) < due - datetime.now(UTC) <= timedelta(minutes=90)
    assert shell("jobs", "reschedule", id_).exit_code == 2
    assert shell("jobs", "reschedule", id_, "--run-at", "now", "--delay", "1s").exit_code == 2
    assert shell("jobs", "reschedule", id_, "--run-at", "soon").exit_code == 2


def test_reprioritise_sets_the_priority(shell: Shell) -> None:
    [id_] = shell.enqueue(1)
    assert shell("jobs", "reprioritise", id_, "--priority", "-100").exit_code == 0
    assert shell.json("jobs", "show", id_)["job"]["priority"] == -100
    assert shell("jobs", "reprioritise", id_, "--priority", "99999").exit_code == 2


def test_delete_leaves_running_jobs_unless_forced(shell: Shell) -> None:
    shell.enqueue(2)
    shell.claim()
    assert shell("jobs", "delete", "--all", "--yes").stdout == "deleted 1 job\n"
    assert states(shell) == [State.RUNNING]
    assert shell("jobs", "delete", "--all", "--yes", "--force").stdout == "deleted 1 job\n"


def test_more_jobs_than_a_chunk_are_all_changed(shell: Shell) -> None:
    shell.enqueue(2_500)
    assert shell.json("jobs", "cancel", "--all", "--yes")["count"] == 2_500


def test_a_refusal_is_json_too_when_json_was_asked_for(shell: Shell) -> None:
    shell.enqueue(2)
    done = shell("jobs", "cancel", "--all", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert (error["kind"], error["exit_code"]) == ("Usage", 2)
    assert "--yes" in error["message"]
