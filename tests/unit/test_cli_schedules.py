"""`dibs schedules`: what it prints for people and for programs, and what it refuses."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dibs.job import NewJob
from dibs.schedule import Schedule, check, job_for
from dibs.timetable import STORED, tell
from tests.unit.commands import Shell

SHOP = """
from dibs import App

app = App("sqlite:///jobs.db")


@app.task(queue="slow")
async def report(kind: str, pages: int = 1) -> None: ...
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def add(shell: Shell, name: str = "nightly", *more: str) -> None:
    rhythm = () if "--every" in more else ("--cron", "0 3 * * *", "--zone", "Europe/Berlin")
    done = shell("schedules", "add", name, "report", *rhythm, *more)
    assert done.exit_code == 0, done.output


def declared(shell: Shell, name: str = "in code") -> None:
    made = check(Schedule(name=name, task="report", every=timedelta(minutes=1)))
    shell.ask(lambda store: tell(store, [made]))


def test_without_schedules_the_list_says_how_to_get_one(shell: Shell) -> None:
    shell.enqueue(1)
    assert "@app.schedule" in shell("schedules").stdout


def test_the_list_shows_rhythm_next_and_last_tick_pause_and_origin(shell: Shell) -> None:
    add(shell)
    add(shell, "poll", "--every", "90s", "--paused")
    declared(shell)
    lines = shell("schedules").stdout.splitlines()
    assert lines[0].split() == ["SCHEDULE", "RHYTHM", "TASK", "NEXT", "UTC", "LAST", "FROM"]
    assert lines[1].startswith("in code   every 1m")
    assert lines[1].rstrip().endswith("code")
    assert "0 3 * * * Europe/Berlin" in lines[2] and lines[2].rstrip().endswith("stored")
    assert "every 1m 30s" in lines[3] or "every 90s" in lines[3]
    assert lines[3].split()[-2:] == ["stored", "paused"]
    found = {one["name"]: one for one in shell.json("schedules")}
    assert found["poll"]["schedule"]["every"] == 90
    assert (found["poll"]["paused"], found["poll"]["next"]) == (True, [])
    assert len(found["nightly"]["next"]) == 1
    assert (found["in code"]["origin"], found["in code"]["live"]) == ("code", True)


def test_show_gives_the_next_ten_ticks_in_the_zone_and_in_utc(shell: Shell) -> None:
    add(shell, "nightly", "-a", "kind=sales", "--jitter", "10m", "--overlap", "skip")
    text = shell("schedules", "show", "nightly").stdout
    assert "NEXT, Europe/Berlin" in text
    assert text.count(" 03:00:00 +0") == 10
    assert '{"kind":"sales"}' in text and "up to 10 min" in text
    found = shell.json("schedules", "show", "nightly", "-n", "3")
    assert len(found["next"]) == 3
    assert (found["schedule"]["args"], found["schedule"]["jitter"]) == ({"kind": "sales"}, 600)
    assert found["last_job"] is None


def test_an_unknown_schedule_is_exit_code_1_and_a_near_name_is_offered(shell: Shell) -> None:
    add(shell)
    for command in ("show", "pause", "resume", "remove", "run", "change"):
        done = shell("schedules", command, "nightli")
        assert done.exit_code == 1, command
        assert "did you mean nightly?" in done.stderr


def test_a_wrong_rhythm_is_refused_and_nothing_is_stored(shell: Shell) -> None:
    shell.enqueue(1)
    for words in (
        (),
        ("--cron", "0 25 * * *"),
        ("--cron", "@daily", "--every", "5m"),
        ("--cron", "@daily", "--zone", "X"),
    ):
        done = shell("schedules", "add", "x", "report", *words)
        assert done.exit_code == 2, words
    assert shell("schedules", "add", "x", "report", "--every", "soon").exit_code == 2
    assert shell.json("schedules") == []


def test_a_taken_name_is_refused_unless_it_is_to_be_replaced(shell: Shell) -> None:
    add(shell)
    assert shell("schedules", "add", "nightly", "report", "--every", "5m").exit_code == 2
    assert shell("schedules", "add", "nightly", "report", "--every", "5m", "--replace").exit_code == 0
    declared(shell)
    done = shell("schedules", "add", "in code", "report", "--every", "5m", "--replace")
    assert done.exit_code == 2 and "declared in code" in done.stderr


def test_with_an_app_the_arguments_are_checked_and_the_tasks_options_count(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "shop_of_schedules.py").write_text(SHOP)
    monkeypatch.chdir(shell.folder)
    monkeypatch.syspath_prepend(str(shell.folder))
    app = ("--app", "shop_of_schedules:app")
    wrong = shell("schedules", "add", "x", "report", "-a", "kind=1", "--cron", "@daily", *app)
    assert (wrong.exit_code, "kind" in wrong.stderr) == (2, True)
    assert shell("schedules", "add", "x", "reprot", "--cron", "@daily", *app).exit_code == 2
    assert shell("schedules", "add", "x", "report", "-a", "kind=sales", "--cron", "@daily", *app).exit_code == 0
    assert shell.json("schedules", "show", "x")["schedule"]["queue"] == "slow"
    assert shell("schedules", "change", "x", "-a", "pages=many", *app).exit_code == 2
    assert shell("schedules", "change", "x", "-a", "pages=2", *app).exit_code == 0
    assert shell.json("schedules", "show", "x")["schedule"]["args"] == {"kind": "sales", "pages": 2}


def test_a_change_leaves_the_rest(shell: Shell) -> None:
    add(shell, "nightly", "-a", "kind=sales", "--priority", "-2", "--ends-at", "+10d")
    assert "next tick" in shell("schedules", "change", "nightly", "--cron", "30 4 * * *", "--queue", "slow").stdout
    made = shell.json("schedules", "change", "nightly", "--forever")["schedule"]
    assert (made["cron"], made["zone"], made["queue"], made["priority"], made["args"], made["ends_at"]) == (
        "30 4 * * *",
        "Europe/Berlin",
        "slow",
        -2,
        {"kind": "sales"},
        None,
    )
    assert shell.json("schedules", "change", "nightly", "--every", "5m")["schedule"]["cron"] is None


def test_schedules_are_paused_resumed_and_removed(shell: Shell) -> None:
    add(shell)
    declared(shell)
    assert shell("schedules", "pause", "nightly", "in code").exit_code == 0
    assert [one["paused"] for one in shell.json("schedules")] == [True, True]
    assert "yes since" in shell("schedules", "show", "in code").stdout
    assert shell.json("schedules", "resume", "in code") == {"schedules": ["in code"], "action": "resumed"}
    assert shell("schedules", "remove", "nightly").exit_code == 0
    done = shell("schedules", "remove", "in code")
    assert (done.exit_code, "declared in code" in done.stderr) == (2, True)
    assert [(one["name"], one["paused"]) for one in shell.json("schedules")] == [("in code", False)]


def test_run_enqueues_a_job_that_names_its_schedule(shell: Shell) -> None:
    add(shell, "nightly", "-a", "kind=sales", "--overlap", "skip", "--queue", "mail")
    job = shell("schedules", "run", "nightly").stdout.strip()
    assert "nightly, run by hand" in shell("jobs", "show", job).stdout
    again = shell("schedules", "run", "nightly")
    assert (again.stdout.strip(), "must not overlap" in again.stderr) == (job, True)
    assert shell.json("schedules", "run", "nightly")["created"] is False


def test_why_says_that_jitter_holds_a_job_back(shell: Shell) -> None:
    tick = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    made = check(Schedule(name="nightly", task="t", cron="@daily", jitter=timedelta(hours=1)))
    job = job_for(made, tick)
    shell.ask(lambda store: store.enqueue([job]))
    assert f"schedule nightly made it for its tick {tick:%Y-%m-%dT%H:%M:%SZ}" in shell("why", job.id).stdout
    assert f"nightly, tick {tick:%Y-%m-%dT%H:%M:%SZ}" in shell("jobs", "show", job.id).stdout


def test_a_job_whose_meta_only_looks_like_a_schedules_is_shown_like_any_other(shell: Shell) -> None:
    jobs = [NewJob(task="t", meta={"schedule": about}) for about in ("x", {}, {"name": 1, "tick": 2}, None)]
    shell.ask(lambda store: store.enqueue(jobs))
    for job in jobs:
        assert shell("jobs", "show", job.id).exit_code == 0


def test_what_this_version_cannot_read_is_listed_with_the_reason(shell: Shell) -> None:
    shell.ask(lambda store: store.keep(STORED, {"odd": {"task": "t", "cron": "@daily", "moon": "full"}}))
    assert "another version of dibs, with moon" in shell("schedules").stdout
    assert "another version of dibs" in shell("schedules", "show", "odd").stdout
    assert shell("schedules", "run", "odd").exit_code == 2
    assert shell("schedules", "remove", "odd").exit_code == 0


def test_what_no_worker_has_in_its_code_any_more_is_shown_as_gone(shell: Shell) -> None:
    long_ago = {"seen_at": "2026-01-01T00:00:00Z", "schedule": {"task": "t", "cron": "@daily"}}
    shell.ask(lambda store: store.keep("schedule in code", {"old": long_ago}))
    assert "not seen for" in shell("schedules").stdout
    assert "no worker has any more" in shell("schedules", "show", "old").stdout
    assert shell("schedules", "remove", "old").exit_code == 0
    assert shell.json("schedules") == []
