"""Templates, filled. Everything that is put into one is escaped, and nothing in one may be missing."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from dibs.http.dashboard import words

PAGES = (
    ("", "Overview"),
    ("jobs", "Jobs"),
    ("failures", "Failures"),
    ("flows", "Flows"),
    ("queues", "Queues"),
    ("workers", "Workers"),
    ("schedules", "Schedules"),
    ("audit", "Audit"),
)

_environment = Environment(
    loader=PackageLoader("dibs.http.dashboard"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
for _name in ("clock", "span", "number", "short", "line", "pretty", "share"):
    _environment.filters[_name] = getattr(words, _name)


def prepare() -> None:
    """Read every template now, so that nobody's first page has to wait for it."""
    for name in _environment.list_templates(extensions=["html"]):
        _environment.get_template(name)


def render(
    request: Request, template: str, here: str, now: datetime, filled: Mapping[str, Any], *, status: int = 200
) -> HTMLResponse:
    """One page. ``here`` is the entry of the menu that it belongs to."""
    base = request.scope.get("root_path", "")
    text = _environment.get_template(f"{template}.html").render(
        {
            "url": partial(_url, base),
            "pages": PAGES,
            "here": here,
            "now": now,
            "ago": partial(words.ago, now=now),
            **filled,
        }
    )
    return HTMLResponse(text, status)


def _url(base: str, path: str) -> str:
    return f"{base}/{path}"
