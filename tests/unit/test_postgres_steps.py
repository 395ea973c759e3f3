"""Steps from any language: one at a time, by functions that anybody can call; and whole workers in two languages."""

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PostgresAddress
from tests.unit.postgres import NEWEST, as_role, connected, needs_postgres

pytestmark = needs_postgres

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sql.md"
CHAIN = json.dumps(
    [
        {"name": "fetch", "task": "double", "args": {"n": 1}},
        {"name": "pack", "task": "double", "args": {"n": 2}, "needs": ["fetch"]},
        {"name": "send", "task": "double", "args": {"n": 3}, "needs": ["fetch", "pack"]},
    ]
)
EXPIRE = "update dibs.job set locked_until = clock_timestamp()"


@pytest.fixture(params=POSTGRES_LABELS)
def url(request: pytest.FixtureRequest, migrated_database: DatabaseFactory) -> str:
    return migrated_database(request.param)


async def start(sql: Any, steps: str = CHAIN, **options: str) -> Any:
    more = "".join(f", {name} => '{value}'" for name, value in options.items())
    return await sql.fetchval(f"select id from dibs.start_flow('f', $1{more})", steps)


async def claim(sql: Any, worker: str = "w", more: str = "") -> Any:
    return await sql.fetchrow(f"select * from dibs.claim_next_step('{worker}'{more})")


async def test_a_flow_is_worked_off_step_by_step(url: str) -> None:
    async with connected(url) as sql:
        flow = await start(sql)
        for name, inputs in (("fetch", None), ("pack", {"fetch": 1}), ("send", {"fetch": 1, "pack": 2})):
            step = await claim(sql)
            assert (step["step"], step["flow"], step["epoch"]) == (name, flow, 1)
            assert (None if step["inputs"] is None else json.loads(step["inputs"])) == inputs
            assert await claim(sql) is None
            result = str(json.loads(step["args"])["n"])
            done = await sql.fetchrow("select * from dibs.complete_step($1, 'w', $2)", step["id"], result)
            assert tuple(done)[:3] == (step["id"], "succeeded", flow)
        assert done["flow_state"] == "succeeded"
        assert await sql.fetchval("select state from dibs.get_flow($1)", flow) == "succeeded"


async def test_the_step_that_is_due_the_longest_comes_first_whatever_its_queue(url: str) -> None:
    async with connected(url) as sql:
        one = '[{"name": "a", "task": "t", "queue": "%s", "run_at": "%s"}]'
        for queue, run_at in (("x", "2020-01-02"), ("y", "2020-01-01"), ("z", "9000-01-01"), ("p", "2019-01-01")):
            await start(sql, one % (queue, run_at))
        await sql.execute("select dibs.enqueue('t', run_at => '2018-01-01'), dibs.pause('p')")
        assert (await claim(sql, more=", queues => array['x', 'z']"))["run_at"].day == 2
        assert await claim(sql, more=", tasks => array['u']") is None
        assert (await claim(sql))["run_at"].year == 2020
        assert await claim(sql) is None


@pytest.mark.parametrize("verb", ["complete_step({}, {}", "fail_step({}, {}, 'e'", "extend_step({}, {}"])
async def test_only_the_holder_of_a_valid_lease_gets_an_answer(url: str, verb: str) -> None:
    async with connected(url) as sql:
        await start(sql)
        plain = await sql.fetchval("select id from dibs.enqueue('t')")
        step = await claim(sql)
        await sql.execute("select dibs.claim('default', 'w')")
        before = await sql.fetch("select * from dibs.job order by id")
        for id_, worker, epoch in (
            (step["id"], "other", "null"),
            (step["id"], "other", "1"),
            (step["id"], "w", "2"),
            (plain, "w", "null"),
            (plain, "w", "1"),
            ("01900000-0000-7000-8000-000000000000", "w", "null"),
        ):
            call = verb.format(f"'{id_}'", f"'{worker}'")
            assert await sql.fetch(f"select * from dibs.{call}, epoch => {epoch})") == []
        assert await sql.fetch("select * from dibs.job order by id") == before
        await sql.execute(EXPIRE)
        mine = verb.format(f"'{step['id']}'", "'w'")
        assert await sql.fetch(f"select * from dibs.{mine})") == []
        assert await sql.fetch(f"select * from dibs.{mine}, epoch => 1)") == []


async def test_an_epoch_tells_two_claims_of_one_worker_apart(url: str) -> None:
    async with connected(url) as sql:
        await start(sql)
        first = await claim(sql)
        await sql.execute(EXPIRE)
        second = await claim(sql)
        assert (second["id"], second["epoch"], second["attempt"]) == (first["id"], 2, 2)
        complete = "select * from dibs.complete_step($1, 'w', '1', epoch => $2)"
        assert await sql.fetch(complete, first["id"], first["epoch"]) == []
        answer = await sql.fetch(complete, first["id"], second["epoch"])
        assert len(answer) == 1
        assert await sql.fetch(complete, first["id"], second["epoch"]) == answer  # sent again: the same answer
        assert await sql.fetch("select * from dibs.complete_step($1, 'w', '1')", first["id"]) == []


async def test_a_lease_is_extended_and_says_when_to_stop(url: str) -> None:
    async with connected(url) as sql:
        flow = await start(sql)
        step = await claim(sql, more=", lease => '5 s'")
        extend = "select * from dibs.extend_step($1, 'w', '1 hour')"
        longer = await sql.fetchrow(extend, step["id"])
        assert (longer["locked_until"] - step["locked_until"]).total_seconds() > 3000
        assert not longer["cancel_asked"]
        await sql.execute("select dibs.cancel(jsonb_build_object('flows', array[$1::uuid]))", flow)
        assert (await sql.fetchrow(extend, step["id"]))["cancel_asked"]


async def test_a_step_that_fails_runs_again_while_attempts_are_left_and_then_fails_its_flow(url: str) -> None:
    async with connected(url) as sql:
        await start(sql, '[{"name": "a", "task": "t", "max_attempts": 2}, {"name": "b", "task": "t", "needs": ["a"]}]')
        states = []
        for _ in range(2):
            step = await claim(sql)
            states.append(tuple(await sql.fetchrow("select * from dibs.fail_step($1, 'w', 'no')", step["id"]))[1::2])
        assert states == [("queued", "running"), ("failed", "failed")]
        assert await claim(sql) is None
        assert await sql.fetch("select step, state from dibs.jobs order by step") == [
            ("a", "failed"),
            ("b", "cancelled"),
        ]


async def test_a_final_failure_does_not_run_again(url: str) -> None:
    async with connected(url) as sql:
        await start(sql)
        step = await claim(sql)
        failed = await sql.fetchrow("select * from dibs.fail_step($1, 'w', 'no', final => true)", step["id"])
        assert (failed["state"], failed["flow_state"]) == ("failed", "failed")


async def test_an_expired_step_is_claimed_again_and_with_no_attempts_left_fails_its_flow(url: str) -> None:
    async with connected(url) as sql:
        flow = await start(sql, '[{"name": "a", "task": "t", "max_attempts": 2}]')
        for attempt in (1, 2):
            assert (await claim(sql))["attempt"] == attempt
            await sql.execute(EXPIRE)
        assert await claim(sql) is None
        ended = await sql.fetchrow("select * from dibs.get_flow($1)", flow)
        assert ended["state"] == "failed" and ended["finished_at"] is not None


async def test_a_step_may_add_steps_when_it_completes(url: str) -> None:
    async with connected(url) as sql:
        await start(sql, '[{"name": "a", "task": "t"}]')
        step = await claim(sql)
        more = '[{"name": "b", "task": "t", "needs": ["a"]}]'
        done = await sql.fetchrow("select * from dibs.complete_step($1, 'w', '7', steps => $2)", step["id"], more)
        assert done["flow_state"] == "running"
        assert json.loads((await claim(sql))["inputs"]) == {"a": 7}


async def test_many_who_claim_at_once_get_each_step_once(url: str) -> None:
    async with connected(url) as sql:
        await start(sql, json.dumps([{"name": f"s{n}", "task": "t"} for n in range(60)]))

    async def work(worker: str) -> list[Any]:
        mine = []
        async with connected(url) as own:
            while (step := await claim(own, worker)) is not None:
                mine.append(step["id"])
        return mine

    got = await asyncio.gather(*(work(f"w{n}") for n in range(8)))
    every = [id_ for mine in got for id_ in mine]
    assert len(every) == len(set(every)) == 60


async def test_a_worker_role_may_work_on_steps_and_a_producer_may_start_flows(
    postgres_servers: Mapping[str, PostgresAddress], migrated_database: DatabaseFactory
) -> None:
    url = migrated_database(NEWEST)
    name = url.rpartition("/")[2]
    producer, worker = f"p_{name}", f"w_{name}"
    async with connected(url) as owner:
        await owner.execute(f"create role {producer} login; create role {worker} login")
        try:
            await owner.execute(f"select dibs.allow('{producer}', 'producer'), dibs.allow('{worker}', 'worker')")
            async with connected(as_role(url, producer)) as one, connected(as_role(url, worker)) as other:
                flow = await start(one)
                assert await one.fetchval("select state from dibs.get_flow($1)", flow) == "running"
                with pytest.raises(Exception, match="permission denied"):
                    await claim(one)
                step = await claim(other)
                assert len(await other.fetch("select * from dibs.extend_step($1, 'w')", step["id"])) == 1
                assert len(await other.fetch("select * from dibs.fail_step($1, 'w', 'e')", step["id"])) == 1
                assert (
                    len(await other.fetch("select * from dibs.complete_step($1, 'w')", (await claim(other))["id"])) == 1
                )
                for inner in ("settle_held_step($1, 'w', 1, 'failed')", "finish(array[$1::uuid], now())"):
                    with pytest.raises(Exception, match="permission denied"):
                        await other.fetch(f"select dibs.{inner}", step["id"])
        finally:
            await owner.execute(f"drop owned by {producer}, {worker}; drop role {producer}; drop role {worker}")


# --- whole workers ----------------------------------------------------------------------------------------------


def block(language: str) -> str:
    """The worker in this language that the guide shows."""
    found = re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return str(next(text for text in found if "claim_next_step" in text))


async def flows_are_done(url: str, flow: Any) -> None:
    async with connected(url) as sql:
        steps = await sql.fetch("select step, state, result::text from dibs.find() order by id")
        assert steps == [(name, "succeeded", result) for name, result in (("fetch", "2"), ("pack", "4"), ("send", "6"))]
        assert await sql.fetchval("select state from dibs.get_flow($1)", flow) == "succeeded"


async def test_the_worker_in_psql_that_the_guide_shows_works_a_flow_off(
    url: str, postgres_servers: Mapping[str, PostgresAddress], tmp_path: Path
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    async with connected(url) as sql:
        flow = await start(sql)
    script = tmp_path / "worker.sh"
    script.write_text(block("bash"))
    program = Path(postgres_servers[NEWEST].psql).parent
    environment = {"PATH": f"{program}:/usr/local/bin:/usr/bin:/bin", "DATABASE_URL": url}
    done = await asyncio.to_thread(
        subprocess.run, ["bash", str(script)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    await flows_are_done(url, flow)


async def test_the_worker_in_javascript_that_the_guide_shows_works_a_flow_off(url: str, tmp_path: Path) -> None:
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node")
    async with connected(url) as sql:
        flow = await start(sql)
    script = tmp_path / "worker.mjs"
    script.write_text(block("javascript"))
    with rpc_server(url) as api:
        done = await asyncio.to_thread(
            subprocess.run,
            [program, str(script)],
            env={"API_URL": api, "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    await flows_are_done(url, flow)


async def test_a_worker_that_knows_function_names_and_json_only_works_a_flow_off(url: str) -> None:
    async with connected(url) as sql:
        flow = await start(sql)

    def work() -> None:
        while found := rpc(url, "claim_next_step", {"worker": "rpc", "lease": "30 s"}):
            mine = {"step": found[0]["id"], "worker": "rpc", "epoch": found[0]["epoch"]}
            assert rpc(url, "extend_step", mine)
            assert rpc(url, "complete_step", {**mine, "result": found[0]["args"]["n"] * 2})

    await asyncio.to_thread(work)
    await flows_are_done(url, flow)


def rpc(url: str, function: str, given: dict[str, Any]) -> Any:
    """What PostgREST does: a name, an object of named arguments, and an array of rows back, all of it JSON."""
    named = ", ".join(f"{name} => %({name})s" for name in given)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    statement = f"select coalesce(json_agg(row), '[]')::text from dibs.{function}({named}) as row"
    with psycopg.connect(url) as connection:
        [text] = connection.execute(statement, texts).fetchone() or ("[]",)
    return json.loads(text)


@contextmanager
def rpc_server(url: str) -> Iterator[str]:
    """Serves POST /rpc/name."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(rpc(url, self.path.removeprefix("/rpc/"), given)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Nothing to say."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
