"""What every test can ask for, and the closing list of what could not run here.

The servers are those of `tests.servers`, started when a test first needs one.
"""

import asyncio
import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from dibs.stores.schema import open_schema
from tests.scratch import use_memory
from tests.servers import (
    Fleet,
    FleetClient,
    FleetService,
    PostgresAddress,
    RedisAddress,
    RedisServer,
    choose,
    find_pgbouncer,
    find_postgres,
    find_redis,
)
from tests.servers.fleet import Address, Addresses
from tests.servers.redis import DATABASES

EVERYTHING = os.environ.get("DIBS_SERVERS") == "all"
POSTGRES_LABELS = tuple(one.label for one in choose(find_postgres()))
REDIS_LABELS = tuple(one.label for one in choose(find_redis()))

# Each xdist worker has its own range of Redis database numbers, so that none flushes another's.
DATABASES_PER_WORKER = 16

DatabaseFactory = Callable[[str], str]  # from a server's label to the URL of a database
A = TypeVar("A", bound=Address)

_service = pytest.StashKey[FleetService]()
_addresses = pytest.StashKey[Addresses]()


# --- one fleet for the run --------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs us in the background has SIGINT ignored, and every process that a test starts would do so, too.
    signal.signal(signal.SIGINT, _interrupt)
    ticket = getattr(config, "workerinput", {}).get("fleet")
    if ticket is not None:
        config.stash[_addresses] = FleetClient(tuple(ticket))
        return
    use_memory()
    fleet = Fleet()
    config.stash[_addresses] = fleet
    config.add_cleanup(fleet.stop)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Python does by itself. Only its own handler would asyncio replace for each call of each test, which costs."""
    signal.default_int_handler(number, frame)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist calls it in the controller, for each worker
def pytest_configure_node(node: Any) -> None:
    stash = node.config.stash
    if _service not in stash:
        stash[_service] = FleetService(stash[_addresses])
        node.config.add_cleanup(stash[_service].close)
    node.workerinput["fleet"] = list(stash[_service].ticket)


# --- one collection for each test process -----------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Thirteen thousand tests are half a million objects: the collector need not go through them again and again."""
    gc.disable()
    _import_in_turns(session.config)
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


def _import_in_turns(config: pytest.Config) -> None:
    """Import all files of tests, each process from another one on: what one has compiled the others read."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or not hasattr(config, "workerinput"):
        return
    files = sorted(file for path in config.args for file in config.rootpath.joinpath(path).rglob("test_*.py"))
    number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
    first = len(files) * number // count
    for file in files[first:] + files[:first]:
        with suppress(Exception):  # it happens again when pytest imports the file, and is told then
            import_module(_module_name(file, config.rootpath))


def _module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "src" else parts)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests mostly wait, for processes and servers, evenly among those that compute."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [file for file in files if _mostly_waits(file)]
    computing = [file for file in files if not _mostly_waits(file)]
    ends = accumulate(len(files[file]) for file in computing)
    apart = sum(len(files[file]) for file in computing) / (len(waiting) + 1)
    places = dict(zip(computing, ends, strict=True))
    places |= {file: round((number + 1) * apart) for number, file in enumerate(waiting)}
    items[:] = [item for file in sorted(files, key=places.__getitem__) for item in files[file]]


def _mostly_waits(file: Path) -> bool:
    return file.parent.name in ("process", "faults", "bench", "web") or file.stem in ("test_model", "test_races")


def addresses(config: pytest.Config) -> Addresses:
    """Where the servers of this run are; asking for one starts it."""
    return config.stash[_addresses]


class Running(Mapping[str, A]):
    """Servers by label. Looking one up starts it, if no test did before."""

    def __init__(self, addresses: Addresses, labels: tuple[str, ...], kind: type[A]) -> None:
        self._addresses, self._labels, self._kind = addresses, labels, kind

    def __getitem__(self, label: str) -> A:
        if label not in self._labels:
            raise KeyError(label)
        address = self._addresses.address(label)
        assert isinstance(address, self._kind)
        return address

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


@pytest.fixture(params=REDIS_LABELS)
def redis_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of the test's own, of each kind: what it counts and how much memory it has are the test's."""
    [found] = [one for one in find_redis() if one.label == request.param]
    with RedisServer(found) as running:
        yield running


@pytest.fixture(scope="session")
def postgres_servers(pytestconfig: pytest.Config) -> Mapping[str, PostgresAddress]:
    """The shared PostgreSQL servers by label. To stop or crash one, start your own."""
    return Running(pytestconfig.stash[_addresses], POSTGRES_LABELS, PostgresAddress)


@pytest.fixture(scope="session")
def redis_servers(pytestconfig: pytest.Config) -> Mapping[str, RedisAddress]:
    """The shared Redis and Valkey servers by label. To stop or crash one, start your own."""
    return Running(pytestconfig.stash[_addresses], REDIS_LABELS, RedisAddress)


# --- a database of its own for each test ------------------------------------------------------


class Databases:
    """Databases of PostgreSQL that one test has made, to be dropped after it."""

    def __init__(self, servers: Mapping[str, PostgresAddress]) -> None:
        self._servers = servers
        self._made: list[tuple[PostgresAddress, str]] = []

    def create(self, label: str, template: str = "template0") -> str:
        server, name = self._servers[label], f"test_{uuid4().hex}"
        self._made.append((server, name))
        return server.create_database(name, template)

    def drop(self) -> None:
        for server, name in self._made:
            server.drop_database(name)


@pytest.fixture
def databases(postgres_servers: Mapping[str, PostgresAddress]) -> Iterator[Databases]:
    made = Databases(postgres_servers)
    yield made
    made.drop()


@pytest.fixture
def postgres_database(databases: Databases) -> DatabaseFactory:
    """`postgres_database("postgres-18")` gives the URL of a new, empty database."""
    return databases.create


@pytest.fixture
def migrated_database(databases: Databases, template: Callable[[str], str]) -> DatabaseFactory:
    """The same with the schema in it: a copy, which costs a quarter of making the schema."""
    return lambda label: databases.create(label, template(label))


@pytest.fixture(scope="session")
def template(postgres_servers: Mapping[str, PostgresAddress]) -> Callable[[str], str]:
    """`template("postgres-18")` gives the name of a database with the schema, one for each test process."""

    @cache
    def create(label: str) -> str:
        server, name = postgres_servers[label], f"template_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
        schema = open_schema(server.create_database(name))
        with ThreadPoolExecutor(1) as thread:  # the test that asks may have a loop that runs in this one
            thread.submit(asyncio.run, schema.up()).result()
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')  # none is in the way of a copy
        return name

    return create


@pytest.fixture
def redis_database(redis_servers: Mapping[str, RedisAddress]) -> Iterator[DatabaseFactory]:
    """`redis_database("redis-6.2")` gives the URL of an empty database that nobody else uses.

    Channels, scripts and configuration belong to the whole server: a test that changes those for
    everybody starts a server of its own.
    """
    numbers = iter(redis_numbers())
    made: list[tuple[RedisAddress, int]] = []

    def create(label: str) -> str:
        server, number = redis_servers[label], next(numbers)
        server.flush(number)
        made.append((server, number))
        return server.url(number)

    yield create
    for server, number in made:
        server.flush(number)


def redis_numbers() -> range:
    """The Redis databases of this test process; `redis_database` takes them from the front."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    first = int(worker.removeprefix("gw")) * DATABASES_PER_WORKER
    assert first < DATABASES, f"{worker}: no Redis database numbers left for this many workers"
    return range(first, first + DATABASES_PER_WORKER)


# --- what could not run -----------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = list(_not_run_here())
    if lines:
        terminalreporter.section("Not run here")
        for line in lines:
            terminalreporter.line(line)


def _not_run_here() -> Iterator[str]:
    for one in (*find_postgres(), *find_redis()):
        if one.label not in (*POSTGRES_LABELS, *REDIS_LABELS):
            yield f"{one.label}: between the oldest and the newest; DIBS_SERVERS=all runs it"
    if not EVERYTHING:
        for older, way in ((POSTGRES_LABELS[:-1], "two-phase"), (REDIS_LABELS[:-1], "watch")):
            if older:
                yield f"claims by {way} on {_names(older)}: DIBS_SERVERS=all runs the contract on them, too"
    if shutil.which("openssl") is None:
        yield "servers behind TLS: no openssl found"
    if find_pgbouncer() is None:
        yield "a pooler in front of PostgreSQL: no pgbouncer found"
    elif not EVERYTHING:
        yield "the contract through pgbouncer: DIBS_SERVERS=all runs it"
    if not EVERYTHING and REDIS_LABELS[:-1]:
        yield f"a cluster of {_names(REDIS_LABELS[:-1])}: DIBS_SERVERS=all runs it"
    if len(POSTGRES_LABELS) < 2:
        yield f"a second PostgreSQL version: only {_names(POSTGRES_LABELS)} found"
    if not any(label.startswith("redis-") for label in REDIS_LABELS):
        yield "Redis: no redis-server found"
    elif all(label == "redis-6.2" for label in REDIS_LABELS):
        yield f"Redis 7 or newer, and Valkey: only {_names(REDIS_LABELS)} found"
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        yield "a browser: no chromium found"
    if shutil.which("openssl") is None:
        yield "TLS: no openssl found to make certificates with"
    if os.environ.get("DIBS_FAULTS") != "full":
        yield "crash and race tests at full size: make faults"


def _names(labels: tuple[str, ...]) -> str:
    return ", ".join(labels) or "none"
