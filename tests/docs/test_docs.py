"""The documentation is true: its code runs, its links lead somewhere, its generated pages are current."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from docs.build import ROOT, broken_links, outdated
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PostgresAddress

_BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Several files of one project each: tests of their own put them together, tests/contract/test_guide.py and
# tests/unit/test_testing_guide.py.
_PROJECTS = ("docs/guides/writing-a-store.md", "docs/guides/testing.md")


def _blocks(language: str) -> Iterator[object]:
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        name = str(page.relative_to(ROOT))
        if name in _PROJECTS:
            continue
        for number, found in enumerate(_BLOCK.finditer(page.read_text()), 1):
            if found[1] == language:
                yield pytest.param(found[2], id=f"{name}-{number}")


@pytest.mark.parametrize("code", list(_blocks("python")))
def test_the_python_in_the_documentation_runs(code: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_sql_in_the_documentation_runs(
    postgres_servers: Mapping[str, PostgresAddress], postgres_database: DatabaseFactory
) -> None:
    """In the order of the page, on one database; `…` stands for the job that was claimed first."""
    page = (ROOT / "docs/guides/sql.md").read_text()
    code = "\n".join(found[2] for found in _BLOCK.finditer(page) if found[1] == "sql")
    url = postgres_database(POSTGRES_LABELS[-1])
    subprocess.run([sys.executable, "-m", "dibs", "migrate", "up", "--url", url], check=True, capture_output=True)
    server, database = postgres_servers[POSTGRES_LABELS[-1]], url.rpartition("/")[2]
    try:
        answer = server.execute(code.replace("'…'", "(select id from dibs.job limit 1)"), database=database)
    finally:
        server.execute("drop owned by shop, mailer, oncall; drop role shop, mailer, oncall", database=database)
    assert "held" in answer
    assert "accepted" in answer


def test_every_link_leads_somewhere() -> None:
    assert broken_links() == []


def test_the_generated_pages_are_current() -> None:
    assert outdated() == []


def test_the_readme_opens_with_what_dibs_is_and_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text()[:900]
    assert "durable job queue" in opening
    assert opening.index("make demo") < opening.index("make test")
