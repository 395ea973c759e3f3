"""A URL chooses the store; one that cannot be meant is refused in one line that says what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

from dibs.errors import ConfigurationError
from dibs.stores import DEFAULT_URL, open_store
from dibs.stores.memory import MemoryStore
from dibs.stores.postgres import PostgresStore
from dibs.stores.redis import RedisStore
from dibs.stores.schema import open_schema
from dibs.stores.sqlite import SQLiteStore

SOURCES = str(Path(__file__).parents[2] / "src")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        (DEFAULT_URL, SQLiteStore),
        ("sqlite:////tmp/jobs.db", SQLiteStore),
        ("postgresql://localhost/shop", PostgresStore),
        ("postgres://localhost/shop", PostgresStore),
        ("POSTGRESQL://localhost/shop", PostgresStore),
        ("redis://localhost/0", RedisStore),
        ("rediss://localhost/0", RedisStore),
        ("unix:///run/redis.sock", RedisStore),
    ],
)
async def test_the_scheme_of_a_url_chooses_the_store(url: str, kind: type) -> None:
    assert type(open_store(url)) is kind


@pytest.mark.parametrize("url", ["mysql://localhost/shop", "postgresql+asyncpg://h/shop", "jobs.db", "", "//host/shop"])
def test_any_other_url_is_refused_with_those_there_are(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"memory://, sqlite://, postgresql://, .*redis://") as caught:
        open_store(url)
    assert "\n" not in str(caught.value)


def test_a_url_without_a_scheme_shows_no_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store("user:hunter2@host/shop")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["memory://?pool=3", "memory://jobs", "memory:"])
def test_a_memory_store_takes_no_options_and_has_no_name(url: str) -> None:
    with pytest.raises(ConfigurationError, match="use memory://"):
        open_store(url)


@pytest.mark.parametrize("url", ["memory://", "redis://localhost/0"])
async def test_a_store_without_a_schema_is_always_up_to_date(url: str) -> None:
    schema = open_schema(url)
    assert await schema.up() == ()
    assert (await schema.status()).pending == ()
    with pytest.raises(ConfigurationError, match="only postgresql:// and sqlite:// have"):
        await schema.dump()


@pytest.mark.parametrize("url", ["mysql://h/x", "jobs.db"])
def test_what_is_no_store_has_no_schema(url: str) -> None:
    with pytest.raises(ConfigurationError, match="a store's URL starts with one of"):
        open_schema(url)


MISSING = """
import asyncio, sys
sys.modules[sys.argv[1]] = None
from dibs.errors import ConfigurationError
from dibs.stores import open_store
from dibs.stores.schema import open_schema
asyncio.run(open_store("memory://").setup())
for way in (open_store, open_schema):
    try:
        way(sys.argv[2])
    except ConfigurationError as problem:
        print(problem)
"""


@pytest.mark.parametrize(
    ("driver", "url", "said"),
    [
        ("asyncpg", "postgresql://h/x", ["pip install 'dibs[postgres]'", "pip install 'dibs[postgres]'"]),
        ("redis", "redis://h/0", ["pip install 'dibs[redis]'"]),
    ],
)
def test_without_its_driver_a_store_says_what_to_install(driver: str, url: str, said: list[str]) -> None:
    command = [sys.executable, "-c", MISSING, driver, url]
    done = subprocess.run(command, env={"PYTHONPATH": SOURCES}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(words in line for words, line in zip(said, lines, strict=True))


def test_opening_one_store_imports_no_driver_of_another() -> None:
    program = "import sys; from dibs.stores import open_store; open_store('memory://'); print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={"PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True)
    assert {"asyncpg", "redis", "apsw"}.isdisjoint(done.stdout.split())
