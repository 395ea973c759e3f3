"""The verbs as SQL: from psql or any driver, and fenced as from Python."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from dibs.ids import new_id
from dibs.job import Filter, NewJob, State
from dibs.outcome import Succeeded, Verdict
from tests.conftest import POSTGRES_LABELS, DatabaseFactory
from tests.servers import PostgresAddress
from tests.unit.postgres import LEASE, NEWEST, connected, migrated, needs_postgres, opened

pytestmark = needs_postgres

Psql = Callable[[str], list[str]]

EVERY = '{"everything": true}'


RUNNING_OUT = "update dibs.job set locked_until = clock_timestamp()"


@pytest.fixture
def url(migrated_database: DatabaseFactory) -> str:
    return migrated_database(NEWEST)


@pytest.fixture(scope="module")
def untouched(postgres_servers: Mapping[str, PostgresAddress]) -> Iterator[str]:
    """One database for all tests that store nothing."""
    server, name = postgres_servers[NEWEST], f"test_{uuid4().hex}"
    url = server.create_database(name)
    asyncio.run(migrated(url))
    yield url
    server.drop_database(name)


@pytest.fixture(params=POSTGRES_LABELS)
def psql(
    request: pytest.FixtureRequest,
    postgres_servers: Mapping[str, PostgresAddress],
    migrated_database: DatabaseFactory,
) -> Psql:
    """Sends a text through the server's own psql, on each version, and gives the lines that it prints."""
    url = migrated_database(request.param)
    program = postgres_servers[request.param].psql

    def send(sql: str) -> list[str]:
        command = [program, "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return send


def _json(lines: list[str]) -> list[Any]:
    return [json.loads(line) for line in lines]


# --- text only ------------------------------------------------------------------------------------


def test_psql_can_take_a_job_through_its_whole_life(psql: Psql) -> None:
    [added] = psql(
        "select * from dibs.enqueue('mail', args => '{\"to\": 1}', queue => 'post', priority => -5, "
        "max_attempts => 2, key => 'k', meta => '{\"by\": \"psql\"}')"
    )
    id_, created, changed = added.split("|")
    assert (created, changed) == ("t", "f")
    claim = "select id, epoch, attempt, args from dibs.claim(queue => 'post', worker => 'p', lease => '1 minute')"
    assert psql(claim) == [f'{id_}|1|1|{{"to": 1}}']
    assert psql(claim) == []
    assert psql(f"select dibs.heartbeat('p', array['{id_}'::uuid], array[1], info => '{{}}')") == ["{held}"]
    retry = f"select dibs.settle_one('{id_}', epoch => 1, worker => 'p', outcome => 'retry', error => 'busy')"
    assert psql(retry) == ["accepted"]
    assert psql(claim) == [f'{id_}|2|2|{{"to": 1}}']
    assert psql(f"select dibs.settle_one('{id_}', 2, 'p', result => '[1, 2]')") == ["accepted"]
    [job] = _json(psql(f"select row_to_json(x) from dibs.get('{id_}') x"))
    assert (job["state"], job["result"], job["meta"]) == ("succeeded", [1, 2], {"by": "psql"})
    assert [error["error"] for error in job["errors"]] == ["busy"]


def test_psql_can_say_how_far_a_job_is(psql: Psql) -> None:
    psql("select * from dibs.enqueue('a')")
    [id_] = psql("select id from dibs.claim('default', 'p')")
    beat = f"select dibs.heartbeat('p', array['{id_}'::uuid], array[1], reports => array['{{said}}'::jsonb])"
    shown = f"select report from dibs.get('{id_}')"
    assert psql(shown) == [""]
    lines = '[{"text": "x"}, {"at": "2026-01-02 03:04Z"}]'
    assert psql(beat.format(said=f'{{"progress": 0.5, "log": {lines}}}')) == ["{held}"]
    [report] = _json(psql(shown))
    assert (report["progress"], report.keys()) == (0.5, {"progress", "log"})
    assert [(line["attempt"], line["text"]) for line in report["log"]] == [(1, "x"), (1, "")]
    psql(beat.format(said='{"progress": 7, "note": 5, "log": [1, {"at": "infinity"}], "more": 1}'))
    [report] = _json(psql(shown))
    assert (report["progress"], report["note"], len(report["log"])) == (1, "5", 2)
    for odd in ("5", "null", '"half"', "[]", '{"progress": "half", "log": {}}'):
        assert psql(beat.format(said=odd)) == ["{held}"]
        assert psql(shown) == ["{}"]


async def test_what_another_language_reported_can_be_read(url: str) -> None:
    lines = [{"text": "t" * 2_000}] * 200 + [{"at": "-infinity"}, {"at": "infinity"}, "x"]
    said = json.dumps({"progress": 10**400, "note": "n" * 300, "log": lines})
    async with connected(url) as sql, opened(url) as store:
        job = NewJob(task="t")
        await store.enqueue([job])
        [claim] = await store.claim("default", "w", 1, LEASE)
        beat = "select dibs.heartbeat('w', array[$1::uuid], array[1], reports => array[$2::jsonb])"
        assert await sql.fetchval(beat, job.id, said) == ["held"]
        assert await store.settle([claim.settled(Succeeded())]) == [Verdict.ACCEPTED]
        found = await store.get(job.id)
    assert found is not None
    assert (found.report.progress, found.report.note, len(found.report.log)) == (1, "n" * 200, 100)
    assert {len(line.text) for line in found.report.log} == {1_000, 0}
    assert [line.at.year for line in found.report.log[-3:-1]] == [1970, 9998]


async def test_the_short_way_stores_plain_jobs_and_leaves_all_others_alone(url: str) -> None:
    plain = "select dibs.enqueue_plain($1, $2, $3, '{\"n\": 1}', 3::smallint, $4)"
    async with connected(url) as sql, opened(url) as store:
        id_ = new_id()
        assert await sql.fetchval(plain, id_, "q", "t", 7)
        found = await store.get(id_)
        assert found is not None
        assert (found.state, found.queue, found.task, found.args) == (State.QUEUED, "q", "t", {"n": 1})
        assert (found.priority, found.max_attempts, found.meta, found.run_at) == (3, 7, {}, found.created_at)

        assert not await sql.fetchval(plain, id_, "q", "t", 7), "it is there"
        [claim] = await store.claim("q", "w", 1, LEASE)
        await store.settle([claim.settled(Succeeded())])
        assert not await sql.fetchval(plain, id_, "q", "t", 7), "it was there"
        for queue, task, attempts in (("a b", "t", 5), ("q", "", 5), (None, "t", 5), ("q", "t\n", 5), ("q", "t", 0)):
            assert not await sql.fetchval(plain, new_id(), queue, task, attempts)
        [counted] = await store.counts()
        assert (counted.queue, sum(counted.states.values()), counted.states[State.SUCCEEDED]) == ("q", 1, 1)
        [again] = await store.enqueue([NewJob(id=id_, task="t", queue="q")])
        assert (again.id, again.created) == (id_, False)
        [spaced] = await store.enqueue([NewJob(task="t", queue="a b")])
        assert spaced.created


async def test_the_short_way_for_many_stores_those_that_are_alike_and_leaves_all_others_alone(url: str) -> None:
    alike = "select dibs.enqueue_alike($1, $2, $3, $4, 3::smallint, $5)"
    async with connected(url) as sql, opened(url) as store:
        ids = [new_id() for _ in range(3)]
        args = [f'{{"n": {n}}}' for n in range(3)]
        between = new_id()
        assert await sql.fetchval(alike, [ids[2], ids[0], ids[1]], "q", "t", args, 7)
        found = [await store.get(id_) for id_ in ids]
        assert [job and job.args for job in found] == [{"n": 1}, {"n": 2}, {"n": 0}]
        assert {job and (job.state, job.queue, job.task, job.priority, job.max_attempts) for job in found} == {
            (State.QUEUED, "q", "t", 3, 7)
        }

        for known in ([ids[1], new_id()], [new_id(), between, between]):
            assert not await sql.fetchval(alike, known, "q", "t", args[: len(known)], 7), "one is there"
        for claim in await store.claim("q", "w", 3, LEASE):
            await store.settle([claim.settled(Succeeded())])
        assert not await sql.fetchval(alike, [new_id(), ids[1]], "q", "t", args[:2], 7), "one was there"
        for queue, task, attempts in (("a b", "t", 5), ("q", "", 5), (None, "t", 5), ("q", "t\n", 5), ("q", "t", 0)):
            assert not await sql.fetchval(alike, [new_id()], queue, task, args[:1], attempts)
        [counted] = await store.counts()
        assert (sum(counted.states.values()), counted.states[State.SUCCEEDED]) == (3, 3), "nothing is half-stored"
        around = [UUID(int=ids[0].int - 1), UUID(int=ids[2].int + 1)]
        assert await sql.fetchval(alike, around, "q", "t", args[:2], 7), "finished ones lie between them"


async def test_many_that_are_not_alike_or_partly_known_are_stored_all_the_same(url: str) -> None:
    async with opened(url) as store:
        first = [NewJob(task="t", args={"n": n}) for n in range(4)]
        assert [sent.created for sent in await store.enqueue(first[:2])] == [True, True]
        assert [sent.created for sent in await store.enqueue(first)] == [False, False, True, True]
        mixed = [NewJob(task="t"), NewJob(task="u"), NewJob(task="t", priority=1), NewJob(task="t", meta={"a": 1})]
        assert all(sent.created for sent in await store.enqueue(mixed))
        jobs = (await store.find(Filter(), limit=20)).jobs
        assert {job.id: (job.task, job.priority, job.meta, job.args) for job in jobs} == {
            new.id: (new.task, new.priority, new.meta, new.args) for new in first + mixed
        }


def test_psql_can_enqueue_many_at_once_in_the_order_given(psql: Psql) -> None:
    many = '[{"task": "b", "priority": 1}, {"task": "a"}, {"task": "c", "key": "k"}, {"task": "d", "key": "k"}]'
    answers = [line.split("|") for line in psql(f"select * from dibs.enqueue_many('{many}')")]
    assert [answer[1:] for answer in answers] == [["t", "f"]] * 3 + [["f", "f"]]
    assert answers[2][0] == answers[3][0]
    assert psql("select task from dibs.claim('default', 'w', max_jobs => 9)") == ["a", "c", "b"]
    assert psql("select * from dibs.enqueue_many('[]')") == []


def test_what_psql_looks_at_comes_as_json_rows(psql: Psql) -> None:
    psql("select dibs.enqueue('a'), dibs.enqueue('b', queue => 'other')")
    psql("select dibs.settle_one(id, epoch, 'w', 'failed', error => 'no') from dibs.claim('default', 'w')")
    psql("select dibs.claim('other', 'v')")
    [failed] = _json(psql("""select row_to_json(x) from dibs.find('{"states":["failed"]}') x"""))
    assert (failed["task"], failed["errors"][0]["error"]) == ("a", "no")
    counts = {row["queue"]: row for row in _json(psql("select row_to_json(x) from dibs.counts() x"))}
    assert (counts["default"]["failed"], counts["other"]["running"]) == (1, 1)
    [worker] = _json(psql("select row_to_json(x) from dibs.workers() x"))
    assert (worker["name"], worker["running"]) == ("v", 1)


def test_psql_has_every_verb_of_an_operator(psql: Psql) -> None:
    def count(call: str) -> str:
        return psql(f"select count from dibs.{call}")[0]

    psql('select dibs.enqueue_many(\'[{"task": "a"}, {"task": "b"}, {"task": "c"}]\')')
    psql("select dibs.pause('default')")
    assert psql("select dibs.claim('default', 'w')") == []
    psql("select dibs.resume('default'); select dibs.configure('default', lifo => true)")
    assert count("""reprioritise('{"tasks": ["a"]}', 9)""") == "1"
    assert psql("select task, priority from dibs.find()") == ["c|0", "b|0", "a|9"]
    assert psql("select task from dibs.claim('default', 'w')") == ["c"]
    assert count("""reschedule('{"tasks": ["b"]}', '2100-01-01')""") == "1"
    assert psql("""select dibs.count_matching('{}', array['queued', 'running'])""") == ["3"]
    assert psql("""select dibs.count_matching('{}', most => 2)""") == ["2"]
    assert count(f"cancel('{EVERY}')") == "3"  # the running one is asked
    assert psql("select task, state from dibs.find()") == ["c|running", "b|cancelled", "a|cancelled"]
    assert count("""requeue('{"tasks": ["b"]}')""") == "1"
    assert count(f"cancel('{EVERY}', force => true)") == "2"
    assert psql(f"select count, next_after is null from dibs.delete('{EVERY}', max_jobs => 2)") == ["2|f"]
    assert psql("select dibs.prune('0', '0', '0')") == ["1"]
    assert psql("select dibs.sweep()") == ["0"]


# --- the same fences ------------------------------------------------------------------------------


async def test_a_late_settle_in_sql_is_lost_and_changes_nothing(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await sql.execute("select dibs.enqueue('t')")
        [(id_, epoch)] = await sql.fetch("select id, epoch from dibs.claim('default', 'w')")
        await sql.execute(RUNNING_OUT)
        before = await store.get(id_)
        for outcome in ("succeeded", "failed", "retry", "released"):
            late = await sql.fetchval("select dibs.settle_one($1, $2, 'w', $3, error => 'late')", id_, epoch, outcome)
            assert late == "lost"
        beat = "select dibs.heartbeat('w', array[$1::uuid], array[$2::int], reports => array['{}'::jsonb])"
        assert await sql.fetchval(beat, id_, epoch) == ["lost"]
        assert await store.get(id_) == before


@pytest.mark.parametrize(
    "succeed",
    [
        "select dibs.succeed_one($1, $2, $3, $4)",
        "select (dibs.succeed(array[$1]::uuid[], array[$2]::integer[], $3, array[$4]::json[]))[1]",
        "select coalesce((dibs.succeed_alike(array[$1]::uuid[], $2, $3, $4))[1], 'accepted')",
    ],
)
async def test_a_success_alone_has_the_fences_of_many(url: str, succeed: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        await sql.execute("select dibs.enqueue(t) from unnest(array['a', 'b']) t")
        [ours, late] = [row[0] for row in await sql.fetch("select id from dibs.claim('default', 'w', 2)")]
        await sql.execute(f"{RUNNING_OUT} where id = $1", late)
        before = [await store.get(ours), await store.get(late)]
        for job, epoch, worker in ((ours, 2, "w"), (ours, 1, "v"), (late, 1, "w"), (uuid4(), 1, "w"), (None, 1, "w")):
            assert await sql.fetchval(succeed, job, epoch, worker, "7") == "lost"
        assert [await store.get(ours), await store.get(late)] == before
        for _ in range(2):  # sent again: accepted again, counted once
            assert await sql.fetchval(succeed, ours, 1, "w", None) == "accepted"
        assert await sql.fetchval("select result::text from dibs.get($1)", ours) == "null"
        assert await sql.fetchval("select count(*) from dibs.finished") == 1


async def test_each_of_many_settles_answers_for_itself_in_order(url: str) -> None:
    async with connected(url) as sql:
        await sql.execute("select dibs.enqueue(t) from unnest(array['a', 'b', 'c', 'd']) t")
        ids = [row[0] for row in await sql.fetch("select id from dibs.claim('default', 'w', 4)")]
        await sql.execute(f"{RUNNING_OUT} where id = $1", ids[2])
        settle = (
            "select dibs.settle($1, epochs => $2, workers => $3, outcomes => $4, results => $5, errors => $6, "
            "delays => $7)"
        )
        given = (
            [ids[3], ids[0], ids[2], uuid4(), ids[1]],
            [1, 1, 1, 1, 2],
            ["w"] * 5,
            ["retry", "succeeded", "succeeded", "succeeded", "succeeded"],
            [None, "7", None, None, None],
            ["no", None, None, None, None],
            [timedelta(hours=1), None, None, None, None],
        )
        verdicts = ["accepted", "accepted", "lost", "lost", "lost"]
        assert await sql.fetchval(settle, *given) == verdicts
        assert await sql.fetchval(settle, *given) == verdicts  # sent again: accepted again, counted once
        states = await sql.fetch("select state, attempts from dibs.find() order by task")
    assert [tuple(row) for row in states] == [("succeeded", 1), ("running", 1), ("running", 1), ("queued", 1)]


async def test_python_works_off_what_sql_enqueued_and_the_other_way_round(url: str) -> None:
    async with connected(url) as sql, opened(url) as store:
        id_: UUID = await sql.fetchval("select id from dibs.enqueue('t', args => '{\"n\":  1.50}')")
        [claim] = await store.claim("default", "python", 1, LEASE)
        assert (claim.id, claim.args, claim.max_attempts) == (id_, {"n": 1.5}, 5)
        assert await sql.fetchval("select dibs.settle_one($1, 1, 'sql')", id_) == "lost"
        assert await store.settle([claim.settled(Succeeded("py"))]) == [Verdict.ACCEPTED]
        assert await sql.fetchval("select result::text from dibs.get($1)", id_) == '"py"'

        job = NewJob(task="t", args=["é", None], key="k")
        await store.enqueue([job])
        assert tuple(await sql.fetchrow("select * from dibs.enqueue('t', key => 'k')")) == (job.id, False, False)
        row = await sql.fetchrow("select id, epoch, args from dibs.claim('default', 'sql')")
        assert tuple(row) == (job.id, 1, '["é",null]')
        assert await store.claim("default", "python", 1, LEASE) == []
        assert await sql.fetchval("select dibs.settle_one($1, 1, 'sql', 'failed', error => 'x')", job.id) == "accepted"
        found = await store.get(job.id)
        assert found is not None and found.state is State.FAILED and found.errors[0].worker == "sql"


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("enqueue('t', queue => '')", "queue must have 1 to 200 printable characters.*not ''"),
        ("enqueue('t', queue => ' q')", "queue must have .* no space at either end, not ' q'"),
        ("enqueue('t', queue => E'a\\nb')", "queue must have"),
        ("enqueue('t', queue => U&'a\\2028')", "queue must have"),
        ("enqueue(repeat('x', 201))", "task must have"),
        ("enqueue(E'\\x7f')", "task must have"),
        ("enqueue(null)", "task must have .*not NULL"),
        ("enqueue('t', key => '')", "key must have"),
        ("enqueue('t', args => null)", '"args".*not-null'),
        ("enqueue('t', args => 'no json')", "invalid input syntax for type json"),
        ("enqueue('t', priority => 32768)", "smallint out of range"),
        ("enqueue('t', run_at => 'infinity')", "run_at must lie between"),
        ("enqueue('t', run_at => '0044-03-15 BC')", "run_at must lie between"),
        (f"reschedule('{EVERY}', '-infinity')", "run_at must lie between"),
        ("cancel('{}')", "would match every job"),
        ("requeue('{}')", "would match every job"),
        ("delete('{}', force => true)", "would match every job"),
        ("claim('q', 'w', lease => null)", "needs a worker and a lease"),
        ("claim('q', 'w', lease => '-1 second')", "needs a worker and a lease"),
        ("claim('q', null)", "needs a worker and a lease"),
        ("claim('q', '')", "needs a worker and a lease"),
        ("claim_take('{}', '')", "needs a worker and a lease"),
        ("heartbeat('')", "needs a worker and a lease"),
        ("heartbeat('w', reports => array['{}'::jsonb])", "a report or null for each id"),
        ("settle(array[dibs.new_id()], array[1], array['w'], array['done'])", "an outcome is one of"),
        ("settle(array[dibs.new_id()], array[1], array['w'], array['failed', 'failed'])", "arrays of one length"),
        ("settle_one(dibs.new_id(), 1, 'w', null)", "outcome must be succeeded"),
        ("enqueue('t', max_attempts => 0)", "max_attempts must be from 1 to 1000"),
        ("enqueue('t', max_attempts => 1001)", "max_attempts must be from 1 to 1000"),
        ('enqueue_many(\'[{"task": "fine"}, {"task": ""}]\')', "task must have"),
        ('enqueue_many(\'[{"task": "fine"}, {"args": {}}]\')', "task must have .*not NULL"),
        ('enqueue_many(\'{"task": "no list"}\')', "cannot call json_array_elements on a non-array"),
        ("settle_one(dibs.new_id(), 1, 'w', 'done')", "outcome must be succeeded, .*not done"),
        ("settle_one(dibs.new_id(), 1, 'w', 'failed')", "needs an error"),
        ('cancel(\'{"queue": ["post"]}\')', "a filter is an object with any of ids, queues, .*not"),
        ("delete(null)", "a filter is an object"),
        ("delete('[]')", "a filter is an object"),
        ('delete(\'{"states": "failed"}\')', "cannot extract elements from a scalar"),
        ("requeue('{\"queues\": null}')", "cannot extract elements from a scalar"),
        ("pause('')", "queue must have"),
        ("configure(E'\\t', true)", "queue must have"),
    ],
)
async def test_bad_input_is_refused_in_words_and_nothing_is_stored(untouched: str, call: str, words: str) -> None:
    async with connected(untouched) as sql:
        with pytest.raises(asyncpg.PostgresError, match=words):
            await sql.execute(f"select dibs.{call}")
        stored = "select (select count(*) from dibs.job) + (select count(*) from dibs.queue)"
        assert await sql.fetchval(stored) == 0
