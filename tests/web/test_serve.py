"""``dibs serve`` and ``dibs token``, as somebody types them."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dibs.http import Role, Token
from tests.unit.commands import Shell
from tests.web.serving import bearer

PATIENCE = 60


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.enqueue(2)
    return made


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where it serves."""
    command = [sys.executable, "-m", "dibs", "serve", "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"on (http://\S+)", line)
        assert found, line + process.stderr.read()
        yield process, found[1]
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stderr.close()


def test_it_serves_on_this_machine_and_ends_with_sigterm_though_somebody_listens(shell: Shell) -> None:
    with serving("--url", shell.url) as (process, url), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        assert client.get("/api/me").json() == {"name": "local", "role": "operator"}
        assert client.get("/api/overview").json()["states"]["queued"] == 2
        assert client.post("/api/queues/mail/pause").json() == {"done": True}
        assert client.get("/api/me", headers={"host": "evil.example"}).status_code == 403
        with client.stream("GET", "/api/events") as events:
            lines = events.iter_lines()
            assert next(line for line in lines if line.startswith("event")) == "event: counts"
            process.send_signal(signal.SIGTERM)
            list(lines)  # the stream ends
        assert process.wait(PATIENCE) == 0
    assert shell.json("queues", "list")[0]["paused"] is True


def test_with_tokens_only_who_has_one_is_let_in(shell: Shell, tmp_path: Path) -> None:
    made = shell.json("token", "ada", "--role", "operator")
    file = tmp_path / "tokens"
    file.write_text(made["line"] + "\n")
    file.chmod(0o600)
    with serving("--url", shell.url, "--host", "0.0.0.0", "--token-file", str(file), "--read-only") as (_, url):
        local = url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{local}/api/me").status_code == 401
        seen = httpx.get(f"{local}/api/me", headers=bearer(made["token"]))
        assert seen.json() == {"name": "ada", "role": "reader"}, "it is read-only"


def test_another_address_without_tokens_is_refused_at_start(shell: Shell) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        said = shell("serve", "--host", host)
        assert said.exit_code == 78 and "there are no tokens" in said.output
    secret = shell("serve", DIBS_TOKENS="ada operator hunter2")
    assert secret.exit_code == 78 and "hunter2" not in secret.output


def test_a_store_that_cannot_be_is_said_at_start(shell: Shell, tmp_path: Path) -> None:
    assert "mount dibs.http.admin_app" in shell("serve", "--url", "memory://").output
    missing = shell("serve", "--url", f"sqlite:///{tmp_path}/none.db")
    assert missing.exit_code == 78 and "does not exist" in missing.output
    away = shell("serve", "--url", "redis://u:hunter2@127.0.0.1:1/0")
    assert away.exit_code == 69 and "hunter2" not in away.output


def test_a_token_is_shown_once_and_its_line_holds_no_secret(shell: Shell) -> None:
    said = shell("token", "ada")
    token = Token.read(said.stdout)
    assert token.role is Role.READER and re.fullmatch(r"token  dibs_\S{40,}  \(shown once\)\n", said.stderr)
    chosen = shell("token", "eve", "--password", input="correct horse\ncorrect horse\n")
    assert Token.read(chosen.stdout).hash.startswith("scrypt:") and "correct" not in chosen.output
    assert shell("token", "<eve>").exit_code == 78
