"""Problem documents (RFC 9457): what went wrong, for programs and for people."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


def schema(**more: Mapping[str, Any]) -> dict[str, Any]:
    """What such a document looks like, for OpenAPI; ``more`` are members that an API adds."""
    text, number = {"type": "string"}, {"type": "integer"}
    return {
        "type": "object",
        "title": "Problem",
        "description": "What went wrong (RFC 9457).",
        "required": ["type", "title", "status"],
        "properties": {"type": text, "title": text, "status": number, "detail": text, **more},
    }


class Problem(Exception):
    """A request that is answered with a problem document."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """``more`` are members of the document beside the usual ones."""
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def document(self) -> dict[str, Any]:
        """The body. The type is about:blank: the status code says what kind of problem it is."""
        told = {"type": "about:blank", "title": self.title, "status": self.status, **self.more}
        return {**told, "detail": self.detail} if self.detail else told

    def response(self) -> Response:
        return Response(msgspec.json.encode(self.document()), self.status, self.headers, MEDIA_TYPE)
