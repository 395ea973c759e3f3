"""Logging of a worker: short lines for people, one JSON object a line for programs; on standard error."""

import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dibs.attempt import running
from dibs.redaction import HIDDEN, Redaction

LEVELS = ("debug", "info", "warning", "error")
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET = ("password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "cookie", "dsn")
"""Whatever ``extra`` calls like that is not written."""
_TALKATIVE = ("asyncio", "httpx", "httpcore", "urllib3", "botocore", "uvicorn.access")
"""Loggers of libraries that tell of every call at level info."""
_ADDRESS = re.compile(r"(\w[\w+.-]*://[^\s:/@]*):[^\s@/]+@")
"""The password in a URL, wherever one got into a message or a traceback."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message; whose job it is about; and whatever ``extra`` says.

    What a handler logs, and what any library logs in it, has the job, task, queue, attempt and worker. Its arguments
    are never written.
    """

    worker: str | None = None
    """Whose log this is, for what is not about a job."""
    redaction = Redaction()
    """What is not written, whatever ``extra`` says: what the app marks, in whatever task it is marked."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _safe(record.getMessage()),
            **({} if self.worker is None else {"worker": self.worker}),
            **_job(),
            **_trace(),
        }
        hidden = self.redaction.names.union(*self.redaction.by_task.values())
        for name, value in vars(record).items():
            if name not in _PLAIN and name not in line:
                line[name] = _value(name, value, hidden)
        if record.exc_info:
            line["traceback"] = _safe(self.formatException(record.exc_info))
        return msgspec.json.encode(line, enc_hook=str).decode()


def _job() -> dict[str, Any]:
    """The attempt that this is logged in, if any."""
    attempt = running.get(None)
    if attempt is None:
        return {}
    return {
        "job": str(attempt.id),
        "task": attempt.task,
        "queue": attempt.queue,
        "attempt": attempt.attempt,
        "worker": attempt.worker,
    }


def _trace() -> dict[str, str]:
    """The span that this is logged in, where OpenTelemetry is in use."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}


def _value(name: str, value: Any, hidden: frozenset[str]) -> Any:
    if name.lower() in hidden or any(secret in name.lower() for secret in _SECRET):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(key): _value(str(key), each, hidden) for key, each in value.items()}
    return _safe(value) if isinstance(value, str) else value


def _safe(text: str) -> str:
    return _ADDRESS.sub(rf"\1:{HIDDEN}@", text) if "://" in text else text


class Lines(logging.Formatter):
    """A record for a person: time, level if it is not just information, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone()
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = f"{at:%H:%M:%S} {record.name}: {level}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def belongs_to(worker: str, redaction: Redaction) -> None:
    """Have each line of JSON name the worker, and nothing that its app marks as secret."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.worker, handler.formatter.redaction = worker, redaction


def configure(level: str, as_json: bool) -> None:
    """Send all logging to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What handlers say follows --log-level as what we say does; libraries say no more than usual.
    root.setLevel(max(logging.INFO, getattr(logging, level.upper())))
    logging.getLogger("dibs").setLevel(level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, getattr(logging, level.upper())))
