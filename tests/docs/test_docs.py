"""The documentation is true: its code runs, its links lead somewhere, its generated pages are current."""

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import click
import pytest
import yaml

from dibs.cli import cli
from dibs.cli.kinds import read_span
from docs.build import ROOT, broken_links, outdated
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.docs.pages import Block, commands, is_session, pages, run_session
from tests.servers import PostgresAddress

PAGES = pages()
DEPLOYING = "docs/guides/deploying.md"
TO_END = timedelta(seconds=10)
"""What a worker needs at most, after its grace time, to interrupt handlers and to send the last outcomes."""

# Several files of one project each: tests of their own put them together, tests/contract/test_guide.py and
# tests/unit/test_testing_guide.py.
PROJECTS = ("docs/guides/writing-a-store.md", "docs/guides/testing.md")


def _blocks(*languages: str) -> Iterator[Block]:
    for name, blocks in PAGES.items():
        if name not in PROJECTS:
            yield from (block for block in blocks if block.language in languages)


def _alone() -> Iterator[object]:
    for block in _blocks("python", "py"):
        if block.file is None or not is_session(PAGES[block.page]):
            yield pytest.param(block.text, id=f"{block.page}-{block.number}")


def _sessions() -> Iterator[object]:
    for name, blocks in PAGES.items():
        if is_session(blocks) and name not in PROJECTS:
            yield pytest.param(blocks, id=name)


# --- what runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(_alone()))
def test_the_python_in_the_documentation_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("blocks", list(_sessions()))
def test_the_sessions_in_the_documentation_go_as_they_say(blocks: list[Block], tmp_path: Path) -> None:
    wrong = run_session(blocks, tmp_path, {})
    assert not wrong, "\n\n".join(wrong)


def test_the_sql_in_the_documentation_runs(
    postgres_servers: Mapping[str, PostgresAddress], postgres_database: DatabaseFactory
) -> None:
    """In the order of the page, on one database; `…` stands for the job that was claimed first."""
    code = "\n".join(block.text for block in PAGES["docs/guides/sql.md"] if block.language == "sql")
    url = postgres_database(POSTGRES_LABELS[-1])
    subprocess.run([sys.executable, "-m", "dibs", "migrate", "up", "--url", url], check=True, capture_output=True)
    server, database = postgres_servers[POSTGRES_LABELS[-1]], url.rpartition("/")[2]
    try:
        answer = server.execute(code.replace("'…'", "(select id from dibs.job limit 1)"), database=database)
    finally:
        server.execute("drop owned by shop, mailer, oncall; drop role shop, mailer, oncall", database=database)
    assert "held" in answer
    assert "accepted" in answer


def test_the_fence_in_the_documentation_holds_on_postgresql(
    postgres_servers: Mapping[str, PostgresAddress], postgres_database: DatabaseFactory
) -> None:
    [block] = [block for block in PAGES["docs/guides/idempotent-handlers.md"] if block.language == "sql"]
    database = postgres_database(POSTGRES_LABELS[-1]).rpartition("/")[2]
    answer = postgres_servers[POSTGRES_LABELS[-1]].execute(
        f"{block.text}; select 'it was ' || text from report", database=database
    )
    assert "it was written by the second" in answer


# --- what is only shown -------------------------------------------------------------------------------------


def _dibs_commands() -> Iterator[object]:
    """Every command line of dibs in a block that is no program; also one that is written as a list."""
    names = "|".join(cli.list_commands(click.Context(cli)))
    for block in _blocks("", "sh", "console", "ini", "dockerfile", "yaml"):
        text = re.sub(r'["\[\],]', " ", block.text.replace("\\\n", " "))
        for found in re.finditer(rf"\bdibs +(?:{names})\b[^#\n]*", text):
            words = found[0].split()
            yield pytest.param(words, id=f"{block.page}-{block.number}-{' '.join(words[:4])}")


@pytest.mark.parametrize("words", list(_dibs_commands()))
def test_the_commands_in_the_documentation_exist(words: list[str]) -> None:
    command: click.Command = cli
    for word in words[1:]:
        below = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        command = below or command
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}
    used = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert used <= known, f"{command.name} has no {', '.join(sorted(used - known))}"


def test_the_units_stop_workers_with_time_to_spare() -> None:
    units = [block for block in PAGES[DEPLOYING] if block.language == "ini"]
    assert units
    for block in units:
        unit = configparser.RawConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(block.text)
        service = unit["Service"]
        assert service["KillMode"] == "mixed"
        assert int(service["TimeoutStopSec"]) >= (_grace(service["ExecStart"]) + TO_END).total_seconds()


def test_the_manifests_stop_workers_with_time_to_spare() -> None:
    documents = [each for block in _blocks("yaml") for each in yaml.safe_load_all(block.text)]
    pods = [each["spec"]["template"]["spec"] for each in documents if each.get("kind") in ("Deployment", "Job")]
    workers = [pod for pod in pods if "work" in pod["containers"][0]["command"]]
    assert workers
    for pod in workers:
        command = " ".join(pod["containers"][0]["command"])
        assert pod["terminationGracePeriodSeconds"] >= (_grace(command) + TO_END).total_seconds()


def _grace(command: str) -> timedelta:
    found = re.search(r"--grace[ =](\S+)", command)
    assert found, command
    span = read_span(found[1])
    assert span is not None
    return span


def test_the_dockerfiles_start_dibs_without_a_shell() -> None:
    """A shell as process 1 would keep SIGTERM to itself."""
    files = list(_blocks("dockerfile"))
    assert files
    for block in files:
        lines = block.text.replace("\\\n", " ").splitlines()
        words = [line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#")]
        instructions = {
            "FROM",
            "WORKDIR",
            "COPY",
            "RUN",
            "ENV",
            "USER",
            "CMD",
            "ENTRYPOINT",
            "HEALTHCHECK",
            "STOPSIGNAL",
        }
        assert {word for word, _ in words} <= instructions
        [start] = [rest for word, rest in words if word == "CMD"]
        assert start.startswith('["dibs", "work"')


def test_a_session_that_prints_something_else_is_noticed(tmp_path: Path) -> None:
    text = "$ echo one\none\n$ echo two\nthree\n$ false\n"
    assert [command.line for command in commands(text)] == ["echo one", "echo two", "false"]
    wrong = run_session([Block("page", 1, "console", text)], tmp_path, {})
    assert len(wrong) == 2
    assert "should print 'three'" in wrong[0]
    assert "ended with 1" in wrong[1]


# --- the whole ----------------------------------------------------------------------------------------------


def test_every_link_leads_somewhere() -> None:
    assert broken_links() == []


def test_the_generated_pages_are_current() -> None:
    assert outdated() == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    missing = [
        name
        for name in PAGES
        if name.startswith("docs/") and name != "docs/README.md" and "/decisions/0" not in name
        if name.removeprefix("docs/") not in index
    ]
    assert not missing


def test_the_readme_opens_with_what_dibs_is_and_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text()[:900]
    assert "durable job queue" in opening
    assert opening.index("make demo") < opening.index("make test")
