"""`dibs enqueue`, and how an app is found: what is stored, and what each mistake is answered with."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from dibs.cli.locate import load_app
from dibs.errors import ConfigurationError
from tests.unit.commands import Shell

APP = """
from datetime import date
import dibs

app = dibs.App("sqlite:///{folder}/jobs.db")

@app.task(queue="mail", max_attempts=3, key="mail-{{to}}")
async def send(to: str, day: date = date(2030, 1, 1), copies: int = 1) -> None: ...

@app.task
def report() -> None: ...

number = 7
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """In a folder with an app of its own, which other tests do not see."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIBS_URL", raising=False)
    Path("shop.py").write_text(APP.format(folder=tmp_path))
    return Shell(tmp_path)


# --- storing ------------------------------------------------------------------------------------------------


def test_enqueue_prints_the_id_and_nothing_else(shell: Shell) -> None:
    done = shell("enqueue", "send", "--args", '{"to": "ada", "n": 1}', "-a", "n=2", "-a", "to=grace")
    assert done.exit_code == 0
    job = shell.json("jobs", "show", UUID(done.stdout.strip()))["job"]
    assert (job["task"], job["queue"], job["args"]) == ("send", "default", {"to": "grace", "n": 2})


def test_every_option_reaches_the_job(shell: Shell) -> None:
    words = (
        "--queue",
        "mail",
        "--priority",
        "-5",
        "--key",
        "k",
        "--max-attempts",
        "2",
        "--run-at",
        "2040-01-01T00:00Z",
    )
    id_ = shell.json("enqueue", "send", *words)["id"]
    job = shell.json("jobs", "show", id_)["job"]
    assert [job[name] for name in ("queue", "priority", "key", "max_attempts")] == ["mail", -5, "k", 2]
    assert job["run_at"] == "2040-01-01T00:00:00Z"


def test_a_delay_is_counted_from_now(shell: Shell) -> None:
    id_ = shell.json("enqueue", "send", "--delay", "10m")["id"]
    due = datetime.fromisoformat(shell.json("jobs", "show", id_)["job"]["run_at"])
    assert timedelta(minutes=9) < due - datetime.now(UTC) <= timedelta(minutes=10)
    assert shell("enqueue", "send", "--delay", "1s", "--run-at", "now").exit_code == 2


def test_a_busy_key_answers_with_the_job_that_is_there(shell: Shell) -> None:
    first = shell.json("enqueue", "send", "--key", "k")
    again = shell("enqueue", "send", "--key", "k")
    assert again.exit_code == 0
    assert again.stdout.strip() == first["id"]
    assert "key k is busy" in again.stderr
    assert shell.json("enqueue", "send", "--key", "k")["created"] is False


def test_arguments_may_be_given_as_one_would_write_them_first(shell: Shell) -> None:
    for words in (["to=ada", "n=1"], ['{"to": "ada", "n": 1}'], ['{"to": "eve", "n": 1}', "to=eve", "-a", "to=ada"]):
        done = shell("enqueue", "send", *words)
        assert shell.json("jobs", "show", done.stdout.strip())["job"]["args"] == {"to": "ada", "n": 1}


def test_arguments_can_be_read_from_standard_input(shell: Shell) -> None:
    done = shell("enqueue", "send", "--args", "-", input='{"to": "ada"}')
    assert shell.json("jobs", "show", done.stdout.strip())["job"]["args"] == {"to": "ada"}


@pytest.mark.parametrize(
    "words",
    [
        ("--args", "{"),
        ("--args", "[1]"),
        ("-a", "x"),
        ("x",),
        ("{x}",),
        ("[1]",),
        ("--queue", " mail"),
        ("--delay", "soon"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_nothing_is_stored(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell("enqueue", "send", *words)
    assert done.exit_code == 2
    assert shell("queues").stdout in ("", "no queues yet: the first job of a queue makes it\n")


def test_with_an_app_arguments_are_checked_and_its_options_count(shell: Shell) -> None:
    id_ = shell.json("enqueue", "send", "--app", "shop:app", "-a", "to=ada", "-a", "day=2030-05-01")["id"]
    job = shell.json("jobs", "show", id_)["job"]
    assert job["args"]["day"] == "2030-05-01"
    assert (job["queue"], job["max_attempts"], job["key"]) == ("mail", 3, "mail-ada")
    for words, said in (
        (("-a", "day=2030-05-01"), "to"),
        (("-a", "to=ada", "-a", "copies=many"), "copies: expected int"),
        (("-a", "to=ada", "-a", "cc=bob"), "cc"),
    ):
        done = shell("enqueue", "send", "--app", "shop:app", *words)
        assert done.exit_code == 2
        assert said in done.stderr
        assert "stored arguments" not in done.stderr


def test_a_task_that_the_app_does_not_have_is_refused_with_the_nearest_name(shell: Shell) -> None:
    done = shell("enqueue", "sent", DIBS_APP="shop")
    assert (done.exit_code, done.stderr) == (2, "dibs: the app has no task 'sent': did you mean send?\n")


def test_the_url_comes_from_the_flag_then_the_app_then_the_environment(shell: Shell) -> None:
    shell("enqueue", "send", "--url", "sqlite:///flag.db", "--app", "shop", "-a", "to=ada")
    shell("enqueue", "send", "--app", "shop", "-a", "to=ada", DIBS_URL="sqlite:///environment.db")
    shell("enqueue", "send", DIBS_URL="sqlite:///environment.db")
    made = {file.name: shell.json("jobs", "list", "--url", f"sqlite:///{file}")["total"] for file in _stores(shell)}
    assert made == {"flag.db": 1, "jobs.db": 1, "environment.db": 1}


def test_without_any_url_it_is_the_file_that_an_app_uses_by_default(shell: Shell) -> None:
    done = shell("enqueue", "send", DIBS_URL="")
    assert done.exit_code == 0
    assert [file.name for file in _stores(shell)] == ["jobs.db"]


def _stores(shell: Shell) -> list[Path]:
    return sorted(shell.folder.glob("*.db"))


# --- finding an app -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["shop:app", "shop"])
def test_an_app_is_found_in_the_present_folder(shell: Shell, path: str) -> None:
    assert set(load_app(path).tasks.by_name) == {"send", "report"}


def test_the_only_app_of_a_module_is_found_whatever_its_name(shell: Shell) -> None:
    Path("other.py").write_text("import dibs\nqueue = dibs.App('memory://')\n")
    assert load_app("other").url == "memory://"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("shop.py", "'shop.py' is a file: name the module, as in shop:app"),
        ("./shop.py:app", "as in shop:app"),
        ("shop/tasks.py", "as in shop.tasks:app"),
        ("", "names no module: write module:app"),
        ("sh op", "names no module"),
        ("nothing:app", "there is no module 'nothing' (tried nothing in "),
        ("shop.tasks:app", "there is no module 'shop.tasks'"),
        ("shop:ap", "shop has no 'ap': say shop:app"),
        ("shop:number", "shop:number is a int, no dibs.App: say shop:app"),
        ("bare", "module bare has no dibs.App: make one there"),
        ("bare:app", "bare has no 'app': make one there"),
        ("two", "module two has several apps: say two:one or two:other"),
        ("broken", "module broken cannot be imported, ZeroDivisionError at "),
        ("wrong", "SyntaxError at "),
        ("quits", "SystemExit at "),
        ("needs", "module needs imports 'not_there_at_all', which is not there: install not_there_at_all"),
    ],
)
def test_each_mistake_has_its_answer(shell: Shell, path: str, said: str) -> None:
    Path("bare.py").write_text("x = 1\n")
    Path("two.py").write_text("import dibs\none, other = dibs.App('memory://'), dibs.App('memory://')\n")
    Path("broken.py").write_text("x = 1\ny = x / 0\n")
    Path("wrong.py").write_text("def\n")
    Path("quits.py").write_text("raise SystemExit('bye')\n")
    Path("needs.py").write_text("import not_there_at_all.deeply\n")
    with pytest.raises(ConfigurationError) as caught:
        load_app(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_line_that_broke_an_import_is_named(shell: Shell) -> None:
    Path("broken.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(ConfigurationError, match=r"broken\.py:2: division by zero"):
        load_app("broken")


def test_a_wrong_app_ends_with_78(shell: Shell) -> None:
    for words in (("work", "nothing:app"), ("jobs", "list", "--app", "nothing"), ("enqueue", "x", "--app", "nothing")):
        done = shell(*words)
        assert done.exit_code == 78
        assert done.stderr.count("\n") == 1
    told = json.loads(shell("work", "nothing:app", "--json").stderr)
    assert (told["error"]["kind"], told["error"]["exit_code"]) == ("ConfigurationError", 78)
