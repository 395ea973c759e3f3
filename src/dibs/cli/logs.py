"""Logging of a worker: short lines for people, one JSON object a line for programs; on standard error."""

import logging
import sys
from datetime import UTC, datetime

import msgspec

LEVELS = ("debug", "info", "warning", "error")
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON, with whatever ``extra`` it was given."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class Lines(logging.Formatter):
    """A record for a person: time, level if it is not just information, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone()
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = f"{at:%H:%M:%S} {record.name}: {level}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure(level: str, as_json: bool) -> None:
    """Send all logging to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # The application's own loggers say what they are told to; ours follow --log-level.
    logging.getLogger("dibs").setLevel(level.upper())
