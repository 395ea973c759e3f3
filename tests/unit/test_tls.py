"""Servers behind TLS: whom a store trusts, and what it says of those that it does not trust."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dibs.errors import ConfigurationError
from dibs.job import NewJob
from dibs.outcome import Succeeded, Verdict
from dibs.store import Store
from dibs.stores import open_store
from dibs.stores.tls import untrusted
from tests.conftest import POSTGRES_LABELS, REDIS_LABELS, DatabaseFactory

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl found")

LEASE = timedelta(minutes=1)
PATIENCE = timedelta(seconds=10)


class Papers:
    """A certificate for `localhost`, its key, and the CA that signed it. Python 3.13 wants to see what a CA may do."""

    def __init__(self, folder: Path) -> None:
        self.ca, self._folder = folder / "ca.pem", folder
        may = "-addext keyUsage=critical,keyCertSign"
        self._openssl(f"req -x509 -nodes -newkey rsa:2048 -days 2 -subj /CN=ca {may} -keyout ca.key -out ca.pem")
        self._openssl("req -nodes -newkey rsa:2048 -subj /CN=server -keyout key.pem -out request.pem")
        (folder / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        signed = (
            "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem"
        )
        self._openssl(signed)

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self._folder / "cert.pem", self._folder / "key.pem")
        return made

    def _openssl(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=self._folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()


@asynccontextmanager
async def behind_tls(url: str, papers: Papers) -> AsyncIterator[str]:
    """The address of the same server with TLS in front, as `localhost:port`."""
    there, asks_first, calls = urlsplit(url), url.startswith("postgres"), set[asyncio.Task[None]]()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if asks_first:  # PostgreSQL: a request in the clear, and the answer that TLS may begin
                await reader.readexactly(8)
                writer.write(b"S")
                await writer.start_tls(papers.context())
            far_reader, far_writer = await asyncio.open_connection(there.hostname, there.port)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(forward(reader, writer))
        calls.add(task)
        task.add_done_callback(calls.discard)

    server = await asyncio.start_server(call, "127.0.0.1", 0, ssl=None if asks_first else papers.context())
    try:
        yield f"localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@pytest.fixture(params=REDIS_LABELS)
async def redis(request: pytest.FixtureRequest, redis_database: DatabaseFactory, papers: Papers) -> AsyncIterator[str]:
    url = redis_database(request.param)
    async with behind_tls(url, papers) as address:
        yield f"rediss://{address}{urlsplit(url).path}"


@pytest.fixture(params=POSTGRES_LABELS)
async def postgres(
    request: pytest.FixtureRequest, migrated_database: DatabaseFactory, papers: Papers
) -> AsyncIterator[str]:
    url = migrated_database(request.param)
    async with behind_tls(url, papers) as address:
        yield f"postgresql://postgres@{address}{urlsplit(url).path}"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def _does_its_work(url: str) -> None:
    """A job with a megabyte of arguments, from one handle to another that waits for it."""
    async with opened(url) as store, opened(url) as producer:
        await store.setup()
        await producer.setup()
        waiting = asyncio.ensure_future(store.wait(["default"], PATIENCE))
        text = "x" * 1_000_000
        await producer.enqueue([NewJob(task="t", args={"text": text})])
        assert await waiting == {"default"}
        [claim] = await store.claim("default", "w", 1, LEASE)
        assert claim.args == {"text": text}
        assert await store.settle([claim.settled(Succeeded())]) == [Verdict.ACCEPTED]


async def _refuses(url: str, message: str) -> None:
    async with opened(url) as store:
        with pytest.raises(ConfigurationError, match=message):
            await store.setup()


async def test_redis_is_trusted_if_ssl_cert_file_says_so(
    redis: str, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(papers.ca))
    await _does_its_work(redis)
    named = r"not good \(IP address mismatch.*\): write its name in the URL as it stands in the certificate$"
    await _refuses(redis.replace("localhost", "127.0.0.1"), named)


async def test_a_redis_that_nobody_vouches_for_is_refused(redis: str) -> None:
    advice = "name the file with the certificate of its CA in SSL_CERT_FILE$"
    await _refuses(redis, rf"^the certificate of the Redis server at localhost:\d+ is not good \(.*\): {advice}")


@pytest.mark.parametrize(
    ("code", "why", "advice"),
    [
        (10, "certificate has expired", "have a new one made"),
        (18, "self-signed certificate", "name the file with the certificate of its CA in HERE"),
        (62, "Hostname mismatch.", "write its name in the URL as it stands in the certificate"),
        (92, "CA cert does not include key usage extension", "have a new one made"),
    ],
)
def test_each_refusal_has_its_advice(code: int, why: str, advice: str) -> None:
    refusal = ssl.SSLCertVerificationError()
    refusal.verify_code, refusal.verify_message = code, why
    said = str(untrusted(refusal, "the server", "HERE"))
    assert said == f"the certificate of the server is not good ({why.rstrip('.')}): {advice}"


@pytest.mark.parametrize("mode", ["sslmode=require", "sslmode=verify-full&sslrootcert={ca}"])
async def test_postgres_does_its_work_behind_tls(postgres: str, papers: Papers, mode: str) -> None:
    await _does_its_work(f"{postgres}?{mode.format(ca=papers.ca)}")


async def test_a_postgres_that_is_not_who_it_says_is_refused(postgres: str, papers: Papers, tmp_path: Path) -> None:
    other = Papers(tmp_path).ca
    advice = "name the file with the certificate of its CA in sslrootcert= in the URL$"
    await _refuses(f"{postgres}?sslmode=verify-full&sslrootcert={other}", rf"is not good \(.*\): {advice}")
    elsewhere = postgres.replace("localhost", "127.0.0.1")
    named = r"not good \(IP address mismatch.*\): write its name in the URL as it stands in the certificate$"
    await _refuses(f"{elsewhere}?sslmode=verify-full&sslrootcert={papers.ca}", named)


async def test_a_certificate_that_is_not_there_is_a_mistake_in_the_url(postgres: str) -> None:
    url = f"{postgres}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem"
    await _refuses(url, "^there is no file '/nowhere/ca.pem': correct sslrootcert in the postgresql:// URL$")
