"""`dibs migrate`: what it prints, and with which exit code it ends."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dibs.cli import cli
from tests.conftest import DatabaseFactory
from tests.unit.postgres import NEWEST, needs_postgres

SOURCES = str(Path(__file__).parents[2] / "src")
NOBODY = "postgresql://u:hunter2@127.0.0.1:1/shop"

Run = Callable[..., Result]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store without a schema, of each kind that has one."""
    if request.param == "sqlite":
        file = tmp_path / "store" / "jobs.db"
        file.parent.mkdir()
        file.touch()
        return f"sqlite:///{file}"
    database: DatabaseFactory = request.getfixturevalue("postgres_database")
    return database(NEWEST)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, empty: Path) -> Run:
    """`run("status", "--url", url)` is `dibs migrate status --url …`, in a folder where nothing is."""
    monkeypatch.chdir(empty)
    monkeypatch.delenv("DIBS_URL", raising=False)

    def invoke(*arguments: str, **environment: str) -> Result:
        return CliRunner().invoke(cli, ["migrate", *arguments], env=environment)

    return invoke


def test_status_up_and_status_again(url: str, run: Run) -> None:
    before = run("status", "--url", url)
    assert before.exit_code == 1
    assert before.output.startswith("version none of 1\npending: 0001")
    assert "(dibs migrate up)" in before.output
    applied = run("up", "--url", url)
    assert applied.exit_code == 0
    assert applied.output.startswith("applied 0001")
    after = run("status", "--url", url)
    assert (after.exit_code, after.output) == (0, "version 1 of 1\n")
    again = run("up", "--url", url)
    assert (again.exit_code, again.output) == (0, "nothing to apply: the schema is up to date\n")


def test_json_is_for_programs(url: str, run: Run) -> None:
    status = json.loads(run("status", "--url", url, "--json").output)
    assert (status["current"], status["latest"], len(status["pending"])) == (0, 1, 1)
    assert json.loads(run("up", "--url", url, "--json").output) == {"applied": status["pending"]}
    assert json.loads(run("up", "--url", url, "--json").output) == {"applied": []}
    assert json.loads(run("status", "--url", url, "--json").output) == {"current": 1, "latest": 1, "pending": []}


def test_dump_prints_the_schema_as_it_is(url: str, run: Run) -> None:
    run("up", "--url", url)
    dump = run("dump", "--url", url)
    assert dump.exit_code == 0
    assert ("table dibs.job\n" if "postgresql" in url else "CREATE TABLE dibs_jobs") in dump.output


def test_without_a_word_it_says_the_status_of_the_store_in_the_environment(url: str, run: Run, empty: Path) -> None:
    pending = run(DIBS_URL=url)
    assert (pending.exit_code, pending.output) == (1, run("status", "--url", url).output)
    run("up", DIBS_URL=url)
    current = run(DIBS_URL=url)
    assert (current.exit_code, current.output) == (0, "version 1 of 1\n")
    assert list(empty.iterdir()) == []


def test_looking_at_a_file_that_is_not_there_does_not_create_it(run: Run, empty: Path) -> None:
    for word in ("status", "dump"):
        missing = run(word)
        assert missing.exit_code == 78
        assert missing.stderr == "dibs: jobs.db does not exist: run dibs migrate up to create it\n"
        assert list(empty.iterdir()) == []


@pytest.mark.parametrize("word", ["up", "status", "dump"])
def test_what_cannot_be_done_has_its_code(run: Run, word: str) -> None:
    assert run(word, "--url", NOBODY).exit_code == 69
    assert run(word, "--url", "mysql://localhost/x").exit_code == 78


def test_a_store_without_a_schema_needs_no_migration(run: Run) -> None:
    url = "redis://localhost/0"
    assert run("up", "--url", url).stdout == "nothing to apply: the schema is up to date\n"
    assert run("status", "--url", url).stdout == "this store needs none\n"
    assert run("dump", "--url", url).exit_code == 78


@needs_postgres
def test_a_dump_without_a_schema_is_a_matter_of_configuration(run: Run, postgres_database: DatabaseFactory) -> None:
    done = run("dump", "--url", postgres_database(NEWEST))
    assert done.exit_code == 78
    assert "run dibs migrate up" in done.stderr


def _process(*arguments: str, url: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": SOURCES, "DIBS_URL": url}
    command = [sys.executable, "-c", "from dibs.cli import main; main()", "migrate", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_as_a_process_it_ends_with_the_codes_that_scripts_rely_on(url: str) -> None:
    assert _process("status", url=url)[0] == 1
    assert _process("up", url=url)[0] == 0
    assert _process("status", url=url) == (0, "version 1 of 1\n", "")


@pytest.mark.parametrize("word", ["up", "status", "dump"])
def test_as_a_process_it_fails_in_one_line_without_a_traceback_or_a_secret(word: str) -> None:
    code, out, error = _process(word, url=NOBODY)
    assert (code, out) == (69, "")
    assert error.startswith("dibs: PostgreSQL at 127.0.0.1:1/shop cannot be reached: ")
    assert error.count("\n") == 1
    assert "hunter2" not in error
