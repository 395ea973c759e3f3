"""What is never shown: marked arguments wherever they stand, and the passwords of URLs."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import dibs
from dibs.admin import as_shown
from dibs.cli.show import safe_url
from dibs.errors import ConfigurationError, Refused
from dibs.http import admin_app
from dibs.job import NewJob, Report
from dibs.outcome import Failed
from dibs.redaction import ALWAYS, HIDDEN, Redaction, text_without_secrets
from tests.unit.commands import LEASE, Shell


def test_marked_names_are_hidden_at_any_depth_in_any_case() -> None:
    hide = Redaction.of(["IBAN"], {"pay": ["card"]})
    given = {"card": "4111", "Iban": "DE1", "list": [{"iban": 1, "n": 2}], "password": {"a": ["b"]}, "n": None}
    assert hide.value(given, "pay") == {
        "card": HIDDEN, "Iban": HIDDEN, "list": [{"iban": HIDDEN, "n": 2}], "password": HIDDEN, "n": None
    }  # fmt: skip
    assert hide.value(given, "other")["card"] == "4111", "that is of one task only"


@pytest.mark.parametrize("name", sorted(ALWAYS))
def test_some_names_are_hidden_without_anybody_saying_so(name: str) -> None:
    assert Redaction().value({name.upper(): "x", "ok": [{name: "y"}]}) == {name.upper(): HIDDEN, "ok": [{name: HIDDEN}]}
    assert Redaction().value({name: None}) == {name: None}, "that there is none is no secret"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see postgresql://shop:hunter2@db/x now", "see postgresql://shop:•••@db/x now"),
        ("redis://:hunter2@h:6379/0", "redis://:•••@h:6379/0"),
        ("amqp://u:p@ss:w@h/v", "amqp://u:•••@h/v"),
        ("https://h/x?a=1&api_key=abc&b=2", "https://h/x?a=1&api_key=•••&b=2"),
        ("https://h/x?access_token=abc", "https://h/x?access_token=•••"),
        ("https://h:80/x?y=ada@example.com", "https://h:80/x?y=ada@example.com"),
        ("a = b, c://d", "a = b, c://d"),
    ],
)
def test_passwords_of_urls_are_hidden_in_texts(text: str, shown: str) -> None:
    assert text_without_secrets(text) == shown
    assert Redaction().value({"x": [text]}) == {"x": [shown]}


def test_hiding_takes_no_time_to_speak_of_on_hostile_texts() -> None:
    for piece in ("a://", "://:", "a:@", "?token", "a.b+c-d://"):
        text_without_secrets(piece * (200_000 // len(piece)))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop:p@ss@db.example/shop?password=x&sslmode=require", "postgresql://shop@db.example/shop?sslmode=require"),
        ("redis://:secret@h/0", "redis://h/0"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("nonsense", "(unreadable)"),
    ],
)  # fmt: skip
def test_a_stores_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_what_workers_tell_can_be_anything() -> None:
    told = Redaction.of(["iban"], {"pay": ["card"]}).told()
    assert told == {"*": ["iban"], "pay": ["card"]}
    assert Redaction.heard(told) == Redaction.of(["iban"], {"pay": ["card"]})
    nonsense: tuple[Any, ...] = (None, 7, [], {"a": 1}, {"a": [1, {}]}, {"*": "iban"})
    for said in nonsense:
        assert Redaction.heard(said).names == ALWAYS
    assert Redaction().told() == {}


def test_what_is_hidden_is_said_when_it_is_declared() -> None:
    app = dibs.App("memory://", redact=["iban"])

    @app.task(redact=["card"])
    async def pay(card: str) -> None: ...

    assert app.redaction == Redaction.of(["iban"], {"pay": ["card"]})
    assert app.worker().info()["redact"] == {"*": ["iban"], "pay": ["card"]}
    mistakes: tuple[Any, ...] = ("card", [1], 7)
    for wrong in mistakes:
        with pytest.raises(Refused):
            dibs.App("memory://", redact=wrong)
        with pytest.raises(ConfigurationError):
            app.task(name="x", redact=wrong)(_nothing)


async def test_a_result_does_not_tell_what_the_arguments_hide() -> None:
    app = dibs.App("memory://")

    @app.task(redact=["card"])
    async def pay(card: str, cents: int) -> Any:
        return {"said": f"charged {card}", "all": [card, cents], "number": 4999888877}

    handle = await pay.enqueue("4999888877", 12)
    await app.drain()
    job = await handle.job()
    assert job is not None
    shown = app.redaction.job(job)
    assert shown.result == {"said": "charged •••", "all": ["•••", 12], "number": "•••"}
    assert shown.args == {"card": "•••", "cents": 12}


async def test_a_step_does_not_tell_what_another_one_hides() -> None:
    app = dibs.App("memory://")

    @app.task(redact=["card"])
    async def pay(card: str) -> Any:
        return {"by": card}

    @app.task
    async def receipt() -> Any:
        return f"paid with {dibs.current().inputs['pay']['by']}"

    @app.task
    async def archive() -> None: ...

    plan = app.flow("order")
    plan.sequential(pay.job("4999-8888"), receipt.job(), archive.job())
    flow = await plan.start()
    await app.drain()
    steps = await flow.steps()
    store = await app.store()
    paid, told, kept = await as_shown(store, list(steps.values()), app.redaction)
    assert paid.result == {"by": HIDDEN}
    assert (told.inputs, told.result) == ({"pay": {"by": HIDDEN}}, f"paid with {HIDDEN}")
    assert kept.inputs == {"receipt": f"paid with {HIDDEN}"}, "handed on twice"
    [alone] = await as_shown(store, [steps["archive"]], app.redaction)
    assert alone == kept
    client = httpx.AsyncClient(transport=httpx.ASGITransport(admin_app(app, local=True)), base_url="http://localhost")
    async with client:
        for step in steps.values():
            for path in (f"/api/jobs/{step.id}", f"/jobs/{step.id}"):
                answer = await client.get(path)
                assert answer.status_code == 200
                assert "4999-8888" not in answer.text


async def _nothing() -> None: ...


def test_the_command_line_hides_it_too(tmp_path: Path) -> None:
    shell = Shell(tmp_path)

    async def happen(store: Any) -> Any:
        job = NewJob(
            task="pay", queue="mail", args={"card": "4111-1111", "password": "hunter2", "n": 1}, key="k-4111-1111"
        )
        await store.enqueue([job])
        await store.heartbeat("w1", [], LEASE, {"redact": {"pay": ["card"]}})
        [claim] = await store.claim("mail", "w1", 1, timedelta(minutes=1))
        said = Report(0.5, "with 4111-1111")
        await store.heartbeat("w1", [claim], LEASE, reports={job.id: said})
        await store.settle([claim.settled(Failed("card 4111-1111, password hunter2, redis://:hunter2@h"))])
        return job.id

    id = shell.ask(happen)
    for words in (["jobs", "show", id], ["jobs", "list"], ["why", id], ["top", "--once"], ["flows", "list"]):
        for more in ([], ["--json"]):
            said = shell(*words, *more)
            assert "4111" not in said.output and "hunter2" not in said.output, words
    assert shell.json("jobs", "show", id)["job"]["args"] == {"card": HIDDEN, "password": HIDDEN, "n": 1}
    assert f"card {HIDDEN}" in shell.json("why", id)["sentence"]
