"""The command line as a program: exit codes, signals, completion, and what goes where."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

APP = """
import asyncio, os, pathlib
import dibs

app = dibs.App()

@app.task(queue="mail")
async def send(to: str) -> str:
    return f"sent to {to}"

@app.task(queue="slow")
async def slow() -> None:
    pathlib.Path("started").touch()
    while not pathlib.Path("go on").exists():
        await asyncio.sleep(0.01)

@app.task(queue="stuck")
async def stuck() -> None:
    pathlib.Path("started").touch()
    await asyncio.sleep(600)
"""


class Program:
    """`program("jobs", "list")` is `python -m dibs jobs list` in a folder with an app."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []
        (folder / "shop.py").write_text(APP)

    def _how(self, environment: dict[str, str]) -> dict[str, Any]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS")}
        return {"cwd": self.folder, "env": {**kept, "PYTHONUNBUFFERED": "1", **environment}, "text": True}

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dibs", *words]
        return subprocess.run(command, capture_output=True, timeout=60, check=False, **self._how(environment))

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "dibs", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started = subprocess.Popen(command, **pipes, **self._how(environment))
        self.running.append(started)
        return started

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").stdout)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_enqueue_work_and_show_is_the_first_five_minutes(program: Program) -> None:
    id_ = program("enqueue", "send", "-a", "to=ada", "--app", "shop").stdout.strip()
    worked = program("work", "--drain", "--json", DIBS_APP="shop:app")
    assert worked.returncode == 0, worked.stderr
    assert json.loads(worked.stdout)["succeeded"] == 1
    assert all(json.loads(line)["logger"].startswith("dibs") for line in worked.stderr.splitlines())
    shown = program.json("jobs", "show", id_)
    assert (shown["job"]["state"], shown["job"]["result"]) == ("succeeded", "sent to ada")


def test_every_ending_has_its_code(program: Program) -> None:
    program("enqueue", "send")
    for code, words in (
        (0, ["queues"]),
        (0, ["--version"]),
        (1, ["workers", "--live"]),
        (1, ["why", "01a1e00b-8ca5-7004-ba3f-f20f6b2b3c76"]),
        (2, ["jobs", "list", "--state", "lost"]),
        (2, ["nonsense"]),
        (2, ["jobs", "delete", "--all", "--queue", "mail", "--queue", "default"]),
        (69, ["queues", "--url", "redis://127.0.0.1:1/0"]),
        (78, ["queues", "--url", "mysql://localhost/shop"]),
        (69, ["work", "shop:app", "--drain", "--url", "redis://127.0.0.1:1/0"]),
        (78, ["work", "nothing:app"]),
        (78, ["work", "shop:app", "--url", "sqlite:////no/such/folder/jobs.db"]),
    ):
        if code == 2 and "delete" in words:
            program("enqueue", "send")
        done = program(*words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout or done.stderr


def test_an_error_is_one_json_document_on_standard_error(program: Program) -> None:
    for words in (["queues", "list", "--url", "redis://127.0.0.1:1/0"], ["jobs", "list", "--state", "lost"]):
        done = program(*words, "--json")
        assert done.stdout == ""
        error = json.loads(done.stderr)["error"]
        assert error["exit_code"] == done.returncode


def test_a_reader_that_has_seen_enough_gets_no_traceback(program: Program) -> None:
    program("enqueue", "send")
    shown = program.start("jobs", "show", program.json("jobs", "list")["jobs"][0]["id"])
    assert shown.stdout is not None
    shown.stdout.close()
    assert shown.stderr is not None
    assert shown.stderr.read() == ""
    assert shown.wait(30) == 1


def test_there_are_no_colours_outside_of_a_terminal(program: Program) -> None:
    program("enqueue", "send")
    for words in (["queues"], ["jobs", "list"], ["doctor"], ["top", "--once", "--interval", "200ms"]):
        assert "\x1b" not in program(*words).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(program: Program, shell: str) -> None:
    done = program("completion", shell)
    assert done.returncode == 0
    assert "_DIBS_COMPLETE" in done.stdout


def test_completion_knows_commands_options_and_names(program: Program) -> None:
    program("enqueue", "send_mail", "--queue", "letters")
    for words, wanted in (
        ("dibs jo", "jobs"),
        ("dibs queues pau", "pause"),
        ("dibs jobs list --queue let", "letters"),
        ("dibs enqueue sen", "send_mail"),
        ("dibs flows ret", "retry"),
    ):
        count = len(words.split()) - 1
        done = program(_DIBS_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(count))
        assert wanted in done.stdout.replace(",", "\n").split(), done.stdout + done.stderr


def test_a_completion_that_cannot_ask_the_store_is_silent(program: Program) -> None:
    program("enqueue", "send_mail", "--queue", "letters", "--url", "sqlite:///other.db")
    asked = {"_DIBS_COMPLETE": "bash_complete", "COMP_WORDS": "dibs jobs list --queue let", "COMP_CWORD": "4"}
    assert "letters" in program(**asked, DIBS_URL="sqlite:///other.db").stdout
    done = program(**asked, DIBS_URL="redis://127.0.0.1:1/0")
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_sigterm_lets_a_worker_finish_and_ends_with_0(program: Program) -> None:
    program("enqueue", "slow", "--app", "shop")
    worker = program.start("work", "shop", "--name", "w1")
    until((program.folder / "started").exists)
    worker.send_signal(signal.SIGTERM)
    (program.folder / "go on").touch()
    _, said = worker.communicate(timeout=30)
    assert worker.returncode == 0, said
    [job] = program.json("jobs", "list")["jobs"]
    assert (job["state"], job["worker"]) == ("succeeded", "w1")
    assert program("workers", "--live").returncode == 1, "it has said goodbye"


def test_a_second_signal_ends_it_now_and_gives_the_job_back(program: Program) -> None:
    program("enqueue", "stuck", "--app", "shop")
    worker = program.start("work", "shop")
    until((program.folder / "started").exists)
    worker.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)
    assert worker.returncode > 128, "the second signal, whichever came second"
    [job] = program.json("jobs", "list")["jobs"]
    assert (job["state"], job["attempts"]) == ("queued", 0)


def test_several_processes_drain_a_queue_and_end(program: Program) -> None:
    for _ in range(3):
        program("enqueue", "send", "-a", "to=ada", "--app", "shop")
    done = program("work", "shop", "--processes", "2", "--drain", "--name", "team")
    assert done.returncode == 0, done.stderr
    jobs = program.json("jobs", "list")["jobs"]
    assert {job["state"] for job in jobs} == {"succeeded"}
    assert {job["worker"] for job in jobs} <= {"team-1", "team-2"}


def test_several_processes_with_a_wrong_app_end_with_78(program: Program) -> None:
    done = program("work", "nothing:app", "--processes", "2")
    assert done.returncode == 78
    assert "there is no module 'nothing'" in done.stderr


def test_the_password_of_a_url_is_not_on_a_command_line_that_others_can_see(program: Program) -> None:
    url = f"sqlite:///{program.folder}/other.db?busy_timeout=7"
    program("enqueue", "stuck", "--app", "shop", "--url", url)
    parent = program.start("work", "shop", "--processes", "2", "--url", url)
    until((program.folder / "started").exists)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    assert children
    assert not any(b"busy_timeout" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
    parent.send_signal(signal.SIGINT)
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=30)


def test_another_store_reaches_the_handlers_that_run_in_processes(program: Program) -> None:
    (program.folder / "twice.py").write_text(
        """
import dibs

app = dibs.App("sqlite:///of-the-app.db")

@app.task
async def second() -> None: ...

@app.task(executor="process")
async def first() -> None:
    await second.enqueue()
"""
    )
    url = "sqlite:///other.db"
    program("enqueue", "first", "--app", "twice", "--url", url)
    done = program("work", "twice", "--drain", "--url", url)
    assert done.returncode == 0, done.stderr
    jobs = program.json("jobs", "list", "--url", url)["jobs"]
    assert {(job["task"], job["state"]) for job in jobs} == {("first", "succeeded"), ("second", "succeeded")}
    assert not (program.folder / "of-the-app.db").exists()


def test_reload_starts_again_when_a_file_changes(program: Program) -> None:
    source = program.folder / "shop.py"
    worker = program.start("work", "shop", "--reload", "--name", "dev")
    until(lambda: program.json("workers", "--live") if (program.folder / "jobs.db").exists() else None)
    source.write_text(APP.replace('f"sent to {to}"', '"changed"'))
    program("enqueue", "send", "-a", "to=ada")
    # One of the two may take the job; one that is enqueued after the change was noticed is the new one's.
    assert worker.stderr is not None
    until(lambda: "shop.py changed" in (worker.stderr.readline() if worker.stderr else ""))

    def ran_changed() -> bool:
        program("enqueue", "send", "-a", "to=grace", "--queue", "mail")
        return any(job["result"] == "changed" for job in program.json("jobs", "list")["jobs"])

    until(ran_changed)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)
    assert worker.returncode == 0


def test_bench_measures_checks_and_cleans_up(program: Program) -> None:
    done = program("bench", "--jobs", "500", "--singles", "10", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["ran_once"] is True
    assert min(figures["enqueue"], figures["work"], figures["latency_p50"]) > 0
    assert program.json("jobs", "list")["total"] == 0
    assert program.json("queues", "list") == []
