"""What never gets out: marked arguments, passwords of URLs. And hostile names, which get out as they are."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.http import admin_app
from dibs.http.api import document
from tests.web.filling import declare, filled
from tests.web.serving import TOKENS, client, site


@pytest.fixture
async def app() -> dibs.App:
    made = dibs.App("memory://")
    await filled(made, declare(made))
    return made


async def test_no_secret_of_a_url_is_shown_anywhere(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db?migrate=auto"
    app = dibs.App(url)
    password, dsn = "pA55w0rd", "postgresql://shop:pA55w0rd@db.example/shop?sslpassword=pA55w0rd"

    @app.task(max_attempts=1)
    async def connect(dsn: str, options: dict[str, Any]) -> None:
        dibs.current().log(f"connecting to {dsn}")
        raise OSError(f"cannot connect to {dsn}")

    async with app:
        await connect.options(meta={"dsn": dsn}).enqueue(dsn, {"PassWord": password, "list": [{"token": password}]})
        await app.drain()
        await app.schedules.add("s", connect.job(dsn, {"secret": password}), every=60)
        made = admin_app(app, url=url, tokens=TOKENS, rate=1e6)
        operator = client(made)
        [job] = (await operator.get("/api/jobs")).json()["jobs"]
        answers = [await operator.get(f"/api/jobs/{job['id']}{path}") for path in ("", "/why")]
        answers += [
            await operator.get(path.replace("{name}", "default"))
            for path in document()["paths"]
            if path != "/api/events" and "{id}" not in path
        ]
        assert all(answer.status_code in (200, 404, 405) for answer in answers)
        text = " ".join(answer.text for answer in answers)
        assert password not in text and base64.b64encode(password.encode()).decode() not in text
        assert "postgresql://shop:•••@db.example" in text, "the rest of it can be read"
        await made.close()


async def test_the_password_of_the_stores_own_url_is_not_shown(app: dibs.App) -> None:
    app._url = "postgresql://shop:pA55w0rd@db.example/shop?password=pA55w0rd"
    store = await app.store()
    made = admin_app(store=store, url=app.url, tokens=TOKENS)
    answer = await client(made).get("/api/overview")
    assert answer.json()["store"] == "postgresql://shop@db.example/shop" and "pA55w0rd" not in answer.text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE jobs; --",
    "${7*7}{{7*7}}",
    "../../etc/passwd",
    "%2e%2e%2f%00",
    "\u202egnp.exe",
    "a" * 200,
    "💥 \U0010ffff",
    "event: counts\ndata: {}".replace("\n", " "),
]


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_and_arguments_come_back_as_they_are_and_as_json(app: dibs.App, name: str) -> None:
    operator = client(site(app))
    body = {"task": name, "queue": name, "key": name, "args": {name: name, "n": {name: [name]}}}
    sent = await operator.post("/api/jobs", json=body)
    assert sent.status_code == 201
    shown = await operator.get(f"/api/jobs/{sent.json()['id']}")
    assert shown.headers["content-type"] == "application/json" and shown.headers["x-content-type-options"] == "nosniff"
    assert shown.json()["arguments"] == body["args"] and shown.json()["task"] == name
    found = await operator.get("/api/jobs", params={"queue": name, "task": name, "key": name, "text": name[:150]})
    assert [job["id"] for job in found.json()["jobs"]] == [sent.json()["id"]]
    assert json.loads((await operator.get("/api/queues")).text)
