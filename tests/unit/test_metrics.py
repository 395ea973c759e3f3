"""Metrics and health of a worker: what a scraper and a probe are told."""

import asyncio
import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY, Counter
from prometheus_client.parser import text_string_to_metric_families

from dibs.errors import ConfigurationError
from dibs.telemetry.health import LATE, Vitals
from dibs.telemetry.metrics import WORKER_METRICS, Family, pack, together, unpack
from dibs.telemetry.serving import AT_ONCE, MetricsServer
from tests.unit.working import Shop, until


@contextmanager
def served(worker: Any) -> Iterator[MetricsServer]:
    server = MetricsServer(worker, port=0)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ask(server: MetricsServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


async def asked(server: MetricsServer, path: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(ask, server, path)


def values(page: str) -> dict[tuple[str, ...], float]:
    """Every sample of a page, by name and labels, in the order of their names."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_a_scrape_says_what_the_worker_did() -> None:
    shop = Shop()

    async def send(number: int) -> None:
        if number == 3:
            raise ValueError("no")

    task = shop.task(send, max_attempts=1)
    await shop.store.enqueue([task.job(number) for number in range(10)])
    worker = shop.worker(concurrency=7)
    with served(worker) as server:
        going = asyncio.create_task(worker.run())
        await until(lambda: worker.stats.succeeded + worker.stats.failed == 10)
        status, content_type, page = await asked(server, "/metrics")
        worker.stop()
        await going
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    found, place = values(page), ("queue=default", "task=send")
    assert found["dibs_jobs_started_total", *place] == 10
    assert found["dibs_jobs_ended_total", "outcome=succeeded", *place] == 9
    assert found["dibs_jobs_ended_total", "outcome=failed", *place] == 1
    assert found["dibs_job_duration_seconds_count", *place] == 10
    assert found["dibs_job_duration_seconds_bucket", "le=+Inf", *place] == 10
    assert found["dibs_job_wait_seconds_count", *place] == 10
    assert found["dibs_jobs_running", *place] == 0
    assert found[("dibs_worker_slots",)] == 7
    assert found[("dibs_worker_store_up",)] == 1
    assert found[("dibs_settle_batch_size_sum",)] == 10


async def test_no_label_names_a_job_a_key_or_a_worker() -> None:
    shop = Shop()

    async def send(word: str) -> None: ...

    job = await shop.enqueue(shop.task(send), "hush", key="for-anna")
    worker = shop.worker(name="number-one", until_empty=True)
    with served(worker) as server:
        await asyncio.wait_for(worker.run(), 20)
        _, _, page = await asked(server, "/metrics")
    assert "dibs_jobs_started_total" in page
    for never in (str(job), job.hex, "hush", "for-anna", "number-one"):
        assert never not in page


async def test_every_metric_of_the_list_is_served_and_no_other() -> None:
    shop = Shop()

    async def send() -> None: ...

    await shop.enqueue(shop.task(send))
    worker = shop.worker(until_empty=True)
    with served(worker) as server:
        await asyncio.wait_for(worker.run(), 20)
        _, _, page = await asked(server, "/metrics")
    families = {each.name: each.type for each in text_string_to_metric_families(page) if each.name.startswith("dibs_")}
    assert families == {name: kind for name, (kind, _) in WORKER_METRICS.items()}


async def test_metrics_of_the_program_itself_are_served_beside_ours() -> None:
    sold = Counter("shop_sold", "Things that were sold.")
    sold.inc(3)
    try:
        with served(Shop().worker()) as server:
            _, _, page = await asked(server, "/metrics")
        assert values(page)[("shop_sold_total",)] == 3
        assert "python_info" in page
    finally:
        REGISTRY.unregister(sold)


def test_a_scraper_that_wants_openmetrics_gets_it() -> None:
    with served(Shop().worker()) as server:
        status, content_type, page = ask(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, content_type.split(";")[0]) == (200, "application/openmetrics-text")
    assert page.endswith("# EOF\n")


def test_other_pages_and_verbs_are_refused_and_a_head_has_no_body() -> None:
    with served(Shop().worker()) as server:
        assert ask(server, "/")[0] == 404
        assert ask(server, "/metrics/../secret")[0] == 404
        assert ask(server, "/metrics", "POST")[0] == 501
        assert ask(server, "/healthz", "HEAD") == (200, "text/plain; charset=utf-8", "")


def test_clients_that_say_nothing_do_not_keep_others_out() -> None:
    with served(Shop().worker()) as server:
        silent = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(AT_ONCE - 1)]
        for each in silent:
            each.connect()
        assert ask(server, "/healthz")[0] == 200
        for each in silent:
            each.close()


def test_a_port_that_is_taken_is_said_at_once() -> None:
    with served(Shop().worker()) as server, pytest.raises(ConfigurationError, match=f"127.0.0.1:{server.port}"):
        MetricsServer(Shop().worker(), port=server.port)


@pytest.mark.parametrize("module", ["prometheus_client", "opentelemetry", "starlette", "http.server"])
def test_who_wants_no_telemetry_does_not_import_it(module: str) -> None:
    code = f"import sys, dibs, dibs.telemetry, dibs.worker, dibs.cli.work; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("missing", "code", "words"),
    [
        ("prometheus_client", "from dibs.telemetry.exposition import require; require()", "dibs[metrics]"),
        ("opentelemetry", "import dibs; dibs.App().use(dibs.telemetry.OpenTelemetry())", "dibs[otel]"),
    ],
)
def test_what_is_not_installed_is_named(missing: str, code: str, words: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ConfigurationError: {'metrics' if 'metrics' in words else 'traces'} need" in done.stderr
    assert words in done.stderr


# --- several processes --------------------------------------------------------------------------------------


def test_series_of_several_processes_are_told_apart_and_survive_the_journey() -> None:
    one, two = Family("sold", "counter", "Sold."), Family("sold", "counter", "Sold.")
    one.add(1, "_total", task="a")
    two.add(float("inf"), "_total", task="a")
    [family] = together({"1": unpack(pack([one])), "2": unpack(pack([two]))})
    assert family.samples == [
        ("sold_total", {"task": "a", "process": "1"}, 1.0),
        ("sold_total", {"task": "a", "process": "2"}, float("inf")),
    ]


# --- health -------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_worker_is_ready_while_it_works_and_alive_until_it_ends() -> None:
    shop, gate = Shop(), asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    await shop.enqueue(shop.task(hold))
    worker = shop.worker()
    with served(worker) as server:
        assert await asked(server, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
        assert (await asked(server, "/readyz"))[::2] == (503, "the worker is starting\n")
        going = asyncio.create_task(worker.run())
        await until(lambda: worker.stats.started == 1)
        assert (await asked(server, "/readyz"))[0] == 200
        worker.stop()
        await until(lambda: worker.vitals.phase == "stopping")
        assert (await asked(server, "/readyz"))[::2] == (503, "the worker is stopping\n")
        assert (await asked(server, "/healthz"))[0] == 200
        gate.set()
        await asyncio.wait_for(going, 20)
        assert (await asked(server, "/healthz"))[0] == 503


async def test_a_blocked_loop_shows_while_it_is_blocked() -> None:
    """The probe is answered by another thread; how long is too long is said by a clock of our own."""
    shop, clock, blocked, release = Shop(), Clock(), threading.Event(), threading.Event()

    async def block() -> None:
        blocked.set()
        release.wait(20)  # holds up the loop, as it must not

    await shop.enqueue(shop.task(block))
    worker = shop.worker()
    worker.vitals.clock = clock
    said: list[tuple[int, str, str]] = []

    def probe() -> None:
        try:
            blocked.wait(20)
            worker.vitals.heartbeat_at = clock
            clock.now += LATE - 1
            said.append(ask(server, "/healthz"))
            clock.now += 2
            said.append(ask(server, "/healthz"))
            said.append(ask(server, "/metrics"))
        finally:
            release.set()

    with served(worker) as server:
        prober = threading.Thread(target=probe)
        prober.start()
        going = asyncio.create_task(worker.run())
        await until(lambda: worker.stats.succeeded == 1)
        prober.join()
        worker.stop()
        await going
    assert said[0][0] == 200
    assert said[1][::2] == (503, "the loop has not turned for 31 s: a handler blocks it\n")
    assert values(said[2][2])[("dibs_worker_loop_lag_seconds",)] == 30


def test_a_heartbeat_that_does_not_turn_shows() -> None:
    clock = Clock()
    vitals = Vitals(clock)
    vitals.phase = "working"
    vitals.heartbeat_at = lambda: clock.now - 3
    assert vitals.health().ready
    vitals.heartbeat_at = lambda: clock.now - LATE - 1
    assert not vitals.health().alive
    assert vitals.health().problems == ("the heartbeat has not turned for 31 s",)


def test_a_store_that_is_away_is_no_reason_to_restart_a_worker() -> None:
    vitals = Vitals()
    vitals.phase, vitals.store_away = "working", lambda: True
    health = vitals.health()
    assert (health.alive, health.ready, health.problems) == (True, False, ("the store is away",))


async def test_a_worker_that_nobody_watches_says_nothing_of_its_loop() -> None:
    shop = Shop()
    async with shop.working() as worker:
        await until(lambda: worker.vitals.phase == "working")
        assert worker.vitals._next is None
