"""Who is let in, what he may do, and what never gets out."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

import dibs
from dibs.errors import ConfigurationError
from dibs.http import Identity, Role, Token, admin_app
from dibs.http.api import OPERATIONS, document
from dibs.http.security import COOKIE, HEADERS, LARGEST_BODY, Buckets
from dibs.http.tokens import SESSION, Tokens, chosen_token, new_token, read_tokens
from tests.web.filling import declare, filled
from tests.web.serving import BASE, OPERATOR, READER, TOKENS, bearer, client, site

LOCAL = "http://127.0.0.1:8642"
ID = "01a1e0c9-31af-7000-b294-68b9d216ca62"


@pytest.fixture
async def app() -> dibs.App:
    made = dibs.App("memory://")
    await filled(made, declare(made))
    return made


def local(
    app: dibs.App, base: str = LOCAL, client: tuple[str, int] = ("127.0.0.1", 5), **settings: Any
) -> httpx.AsyncClient:
    site = admin_app(app, local=True, rate=1e6, **settings)
    transport = httpx.ASGITransport(site, client=client)
    return httpx.AsyncClient(transport=transport, base_url=base)


def _path(path: str) -> str:
    return path.replace("{id}", ID).replace("{name}", "default")


# --- roles --------------------------------------------------------------------------------------------------------


async def everything(app: dibs.App) -> bytes:
    """All that a store holds but for the time, to be compared."""
    store = await app.store()
    kept = await store.kept(["audit", "batch", "ask", "schedule", "schedule paused"])
    page, counts, limits = await store.find(dibs.Filter(), limit=1_000), await store.counts(), await store.limits()
    return repr((page, counts, limits, kept.values)).encode()


async def test_a_reader_can_change_nothing_on_any_route(app: dibs.App) -> None:
    reader = client(site(app), READER)
    before = await everything(app)
    paths = document()["paths"]
    for path, methods in paths.items():
        for method in ("post", "put", "patch", "delete"):
            for body in (
                {},
                {"verb": "cancel", "everything": True, "task": "add", "concurrency": 0, "queue": "default"},
            ):
                answer = await reader.request(method.upper(), _path(path), json=body)
                assert answer.status_code == 403, (method, path)
                assert answer.json()["title"] == "Only operators may change something"
        if "get" in methods and path != "/api/events":
            assert (await reader.get(_path(path))).status_code in (200, 404)
    assert await everything(app) == before


async def test_no_get_changes_anything(app: dibs.App) -> None:
    operator = client(site(app))
    before = await everything(app)
    for each in OPERATIONS:
        if each.path != "/api/events":
            await operator.get(_path(each.path), params={"state": "failed", "force": "true"})
            await operator.get(_path(each.path))
    assert await everything(app) == before


async def test_every_operation_that_is_no_get_needs_an_operator_by_the_guard_itself(app: dibs.App) -> None:
    assert {each.method for each in OPERATIONS if not each.changes} == {"GET"}
    reader = client(site(app), READER)
    assert (await reader.post("/anything/at/all", json={})).status_code == 403


async def test_read_only_makes_readers_of_all(app: dibs.App) -> None:
    operator = client(site(app, read_only=True))
    assert (await operator.get("/api/me")).json() == {"name": "olga", "role": "reader"}
    assert (await operator.post("/api/queues/default/pause")).status_code == 403


# --- tokens -------------------------------------------------------------------------------------------------------


async def test_without_a_token_nothing_of_the_jobs_is_answered(app: dibs.App) -> None:
    for secret in (None, "wrong", "", "dibs_" + "x" * 2_000, "é\u0000"):
        stranger = client(site(app), None)
        headers = {} if secret is None else {b"Authorization": f"Bearer {secret}".encode()}
        for path in [*document()["paths"], "/api/openapi.json", "/api", "/api/nothing", "/metrics"]:
            answer = await stranger.get(_path(path), headers=headers)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert set(answer.json()) == {"type", "title", "status", "detail"}


async def test_pages_send_strangers_to_the_login_and_back(app: dibs.App) -> None:
    stranger = client(site(app), None)
    answer = await stranger.get("/jobs?state=failed")
    assert answer.status_code == 303 and answer.headers["location"] == "/login?next=/jobs%3Fstate%3Dfailed"


def test_tokens_are_kept_hashed_and_compared_as_a_whole() -> None:
    secret, token = new_token("ada", Role.OPERATOR)
    tokens = Tokens([token, *TOKENS])
    assert secret not in token.line() and len(secret) > 40
    assert tokens.check(secret) == Identity(name="ada", role=Role.OPERATOR)
    assert tokens.check(secret[:-1]) is None and tokens.check(f"{secret}x") is None and tokens.check("") is None


def test_a_password_is_hashed_slowly_with_salt() -> None:
    one, two = chosen_token("ada", Role.READER, "correct horse"), chosen_token("eve", Role.READER, "correct horse")
    assert one.hash != two.hash and one.hash.startswith("scrypt:")
    tokens = Tokens([one])
    assert tokens.check("correct horse") is None, "it is not among those that cannot be guessed"
    assert tokens.check_chosen("wrong horse") is None
    assert tokens.check_chosen("correct horse") == Identity(name="ada", role=Role.READER)
    assert tokens.check("correct horse") is not None, "the second time it is known"


@pytest.mark.parametrize(
    "line", ["ada operator hunter2", "ada boss sha256:" + "0" * 64, "ada operator", "a b c d", "<ada> reader sha256:00"]
)
def test_a_token_that_cannot_be_read_is_refused_without_repeating_its_secret(line: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Token.read(line)
    assert "hunter2" not in str(refused.value)


def test_tokens_come_from_a_file_that_only_its_owner_can_write(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who\n\n{TOKENS[0].line()}\n")
    file.chmod(0o600)
    assert read_tokens(str(file), TOKENS[1].line()) == [TOKENS[1], TOKENS[0]]
    file.chmod(0o622)
    with pytest.raises(ConfigurationError, match="can write"):
        read_tokens(str(file), None)
    with pytest.raises(ConfigurationError, match="cannot be read from"):
        read_tokens(str(tmp_path / "missing"), None)
    with pytest.raises(ConfigurationError, match="two tokens"):
        Tokens([TOKENS[0], TOKENS[0]])


async def test_guessing_a_password_is_slowed_down_but_not_those_who_have_a_token(app: dibs.App) -> None:
    guarded = site(app, tokens=[*TOKENS, chosen_token("eve", Role.READER, "12345678")])
    guesser = client(guarded, None)
    statuses = [(await guesser.get("/api/me", headers=bearer(f"guess {n}"))).status_code for n in range(11)]
    assert statuses == [401] * 10 + [429]
    assert (await guesser.get("/api/me", headers=bearer("12345678"))).status_code == 429, "not even if it is right"
    assert (await guesser.get("/api/me", headers=bearer(OPERATOR))).status_code == 200


def test_nobody_is_let_in_by_default(app: dibs.App) -> None:
    with pytest.raises(ConfigurationError, match="nobody would be let in"):
        admin_app(app)


async def test_the_host_application_can_say_who_is_asking(app: dibs.App) -> None:
    async def authorize(request: Request) -> Identity | None:
        return Identity(name="root", role=Role.OPERATOR) if request.headers.get("x-user") == "root" else None

    mounted = client(admin_app(app, authorize=authorize), None)
    assert (await mounted.get("/api/me")).status_code == 401
    assert (await mounted.get("/api/me", headers={"x-user": "root"})).json()["name"] == "root"
    assert (await mounted.get("/api/me", headers={"x-user": "root", **bearer(OPERATOR)})).json()["name"] == "root"
    evil = {"x-user": "root", "origin": "https://evil.example"}
    assert (await mounted.post("/api/queues/q/pause", headers=evil)).status_code == 403


# --- browsers -----------------------------------------------------------------------------------------------------


async def test_a_browser_logs_in_with_a_token_and_out_again(app: dibs.App) -> None:
    browser = client(site(app), None)
    form = {"token": OPERATOR, "next": "/api/me"}
    answer = await browser.post("/login", data=form, headers={"origin": BASE})
    assert answer.status_code == 303 and answer.headers["location"] == "/api/me"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and OPERATOR not in answer.headers["set-cookie"]
    assert (await browser.get("/api/me")).json()["name"] == "olga"
    same = {"origin": BASE, "sec-fetch-site": "same-origin"}
    assert (await browser.post("/api/queues/q/pause", headers=same)).status_code == 200
    out = await browser.post("/logout", headers=same)
    assert out.status_code == 303 and (await browser.get("/api/me")).status_code == 401


async def test_a_wrong_token_leads_back_to_the_login(app: dibs.App) -> None:
    answer = await client(site(app), None).post("/login", data={"token": "no"}, headers={"origin": BASE})
    assert answer.headers["location"] == "/login?wrong=1&next=/" and "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\r\nx"]
)
async def test_nobody_is_sent_to_another_site_after_the_login(app: dibs.App, target: str) -> None:
    form = {"token": OPERATOR, "next": target}
    answer = await client(site(app), None).post("/login", data=form, headers={"origin": BASE})
    assert answer.headers["location"] == "/"


async def test_a_session_cannot_be_made_up_or_used_too_long() -> None:
    tokens = Tokens(TOKENS)
    who = Identity(name="rita", role=Role.READER)
    session = tokens.session(who)
    assert tokens.resume(session) == who
    assert tokens.resume(session.replace("rita", "olga")) is None
    assert tokens.resume(session, now=time.time() + SESSION + 1) is None
    assert tokens.resume("") is None and tokens.resume("~~") is None and tokens.resume("rita~99999999999~é") is None
    assert Tokens(TOKENS).resume(session) is None, "another process has another secret"
    assert Tokens(TOKENS, "s").resume(Tokens(TOKENS, "s").session(who)) == who
    _, newer = new_token("rita", Role.READER)
    assert Tokens([newer], "s").resume(Tokens(TOKENS, "s").session(who)) is None, "its token was replaced"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:9999"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"cookie": "a=b"},
    ],
)
async def test_another_website_cannot_make_a_browser_change_something(app: dibs.App, headers: dict[str, str]) -> None:
    body = b'{"verb": "cancel", "everything": true}'
    sent = {"content-type": "application/json", **headers}
    answer = await local(app).post("/api/batches", content=body, headers=sent)
    assert answer.status_code == 403
    browser = client(site(app), None)
    browser.cookies.set(COOKIE, Tokens(TOKENS).session(Identity(name="olga", role=Role.OPERATOR)))
    assert (await browser.post("/api/batches", content=body, headers=sent)).status_code in (401, 403)


# --- from this machine --------------------------------------------------------------------------------------------


async def test_on_this_machine_everybody_is_an_operator(app: dibs.App) -> None:
    for base, address in ((LOCAL, "127.0.0.1"), ("http://localhost:1", "::1"), ("http://[::1]:1", "::1")):
        here = local(app, base, (address, 5))
        assert (await here.get("/api/me")).json() == {"name": "local", "role": "operator"}
        assert (await here.post("/api/queues/q/pause")).status_code == 200


@pytest.mark.parametrize(
    ("base", "address", "headers"),
    [
        ("http://evil.example", "127.0.0.1", {}),  # its name resolves to 127.0.0.1
        ("http://127.0.0.1.evil.example", "127.0.0.1", {}),
        (LOCAL, "10.0.0.7", {}),
        (LOCAL, "127.0.0.1", {"x-forwarded-for": "10.0.0.7"}),
        (LOCAL, "127.0.0.1", {"forwarded": "for=10.0.0.7"}),
    ],
)
async def test_without_tokens_nobody_else_is_let_in(
    app: dibs.App, base: str, address: str, headers: dict[str, str]
) -> None:
    answer = await local(app, base, (address, 5)).get("/api/jobs", headers=headers)
    assert answer.status_code == 403 and "jobs" not in answer.json()


# --- caps ---------------------------------------------------------------------------------------------------------


async def test_a_body_that_is_too_large_is_not_read(app: dibs.App) -> None:
    operator = client(site(app))
    huge = b'{"task": "add", "args": {"a": "' + b"x" * LARGEST_BODY + b'"}}'
    assert (await operator.post("/api/jobs", content=huge, headers=JSON)).status_code == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(LARGEST_BODY // 65_536 + 2):
            yield b"x" * 65_536

    assert (await operator.post("/api/jobs", content=pieces(), headers=JSON)).status_code == 413


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"task": "x", "args": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b'{"task": "x", "args": {"a": ' + b"9" * 5_000 + b"}}",
        b'{"task": "x", "args": {"a": NaN}}',
        b'{"task": "x", "args": {"a": "\\ud800"}}',
        b'{"task": "x\\u0000"}',
        b'{"task": "' + b"x" * 201 + b'"}',
        b"\xff\xfe{}",
        b"[]",
        b"",
        b"{",
        b'{"task": "x", "max_attempts": 1e400}',
        b'{"task": "x", "run_at": "1066-10-14T00:00:00Z"}',
        b'{"task": "x", "run_at": "2031-10-14T00:00:00"}',
    ],
)
async def test_a_body_that_no_store_takes_is_refused_and_nothing_stored(app: dibs.App, body: bytes) -> None:
    before = len((await (await app.store()).find(dibs.Filter(), limit=1_000)).jobs)
    answer = await client(site(app)).post("/api/jobs", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert len((await (await app.store()).find(dibs.Filter(), limit=1_000)).jobs) == before


async def test_what_is_not_json_is_refused(app: dibs.App) -> None:
    answer = await client(site(app)).post("/api/jobs", content=b"a=b", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=1.0", "limit=abc", "limit=", "limit=1&limit=2", "limit=%201", "limit=1_0",
        "after=x", "state=lost", "created_since=yesterday", "created_since=2020-01-01T00:00:00", "sate=failed",
        "text=" + "x" * 201, "queue=" + "x" * 201, "queue=%FF", "&".join(f"queue=q{n}" for n in range(201)),
    ],
)  # fmt: skip
async def test_a_query_that_does_not_fit_is_refused(app: dibs.App, query: str) -> None:
    answer = await client(site(app)).get(f"/api/jobs?{query}")
    assert answer.status_code == 400 and answer.json()["status"] == 400


async def test_spans_and_ticks_are_capped(app: dibs.App) -> None:
    operator = client(site(app))
    for path in ("/api/samples?hours=49", "/api/schedules?ticks=101", "/api/audit?limit=1001"):
        assert (await operator.get(path)).status_code == 400


async def test_whoever_asks_too_often_has_to_wait(app: dibs.App) -> None:
    eager = client(site(app, rate=5))
    answers = [await eager.get("/api/me") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429]
    assert int(answers[-1].headers["retry-after"]) >= 1


async def test_no_more_than_so_many_listen_at_once(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.http.service.news.LISTENERS", 0)
    answer = await client(site(app)).get("/api/events")
    assert answer.status_code == 429 and answer.json()["detail"].endswith("try again later")


def test_buckets_forget_those_they_have_not_seen_for_longest() -> None:
    buckets = Buckets(rate=1, burst=1, most=2)
    assert [buckets.wait(who) > 0 for who in ("a", "b", "a", "c", "a")] == [False, False, True, False, False]


async def test_every_answer_has_the_headers_that_keep_browsers_in_check(app: dibs.App) -> None:
    operator = client(site(app))
    for path in ("/api/me", "/api/nothing", "/nothing", "/login"):
        answer = await operator.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] == "no-store"
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and "http" not in policy
