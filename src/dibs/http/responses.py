"""What clients are answered. Subclass ``Responses`` and give it to ``Endpoints`` to answer otherwise."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dibs.errors import Refused
from dibs.http.problems import MEDIA_TYPE, Problem
from dibs.job import FINISHED, Job, State

JSON = "application/json"
LONGEST_PAUSE = 30
"""Seconds after which a client is asked to look again, at most."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a handler answers when it chooses more than the body: ``return Answer(report, status=201)``."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = {}
    media_type: str = JSON

    def response(self) -> Response:
        body = b"" if self.status in (204, 304) else msgspec.json.encode(self.body)
        return Response(body, self.status, self.headers, self.media_type)


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as clients see it. No arguments, no errors, no names of machines."""

    id: UUID
    state: State
    progress: float | None
    """From 0 to 1; null if the handler does not say."""
    note: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    location: str
    """Where to look how it is."""
    result_location: str
    """Where its result is, once it has ended."""
    result: Answer | None = None
    """What the handler answered, once it has."""

    @classmethod
    def of(cls, job: Job, location: str) -> "JobView":
        return cls(
            id=job.id,
            state=job.state,
            progress=1.0 if job.state is State.SUCCEEDED and job.report.progress is not None else job.report.progress,
            note=job.report.note,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            attempts=job.attempts,
            location=location,
            result_location=f"{location}/result",
            result=stored_answer(job) if job.state is State.SUCCEEDED else None,
        )


def answer_of(result: Any) -> Answer:
    """What a handler returned, as an answer."""
    if isinstance(result, Answer):
        return result
    if not isinstance(result, Response):
        return Answer(result)
    try:
        body = msgspec.json.decode(result.body) if result.body else None
    except msgspec.DecodeError:
        raise Refused(f"the handler answered {result.media_type}: an endpoint that is a job answers JSON") from None
    kept = {name: value for name, value in result.headers.items() if name not in ("content-length", "content-type")}
    return Answer(body, result.status_code, kept, result.media_type or JSON)


def answer_of_error(error: HTTPException) -> Answer:
    """What a handler raised to choose a status code, as an answer."""
    problem = Problem(error.status_code, "The request was refused", str(error.detail))
    return Answer(problem.document(), error.status_code, dict(error.headers or {}), MEDIA_TYPE)


def stored_answer(job: Job) -> Answer:
    return msgspec.convert(job.result, Answer)


class Responses:
    """Each answer, to be replaced one by one in a subclass. ``job`` is the whole job: show what clients may see."""

    def accepted(self, request: Request, job: Job, location: str) -> Response:
        """202: the request has become a job, or stands for one that was there."""
        return _json(202, JobView.of(job, location), {"Location": location, "Retry-After": pause(job)})

    def status(self, request: Request, job: Job, location: str) -> Response:
        """200: how the job is. With its result, once it has one."""
        later = {} if job.state in FINISHED else {"Retry-After": pause(job)}
        return _json(200, JobView.of(job, location), later)

    def result(self, request: Request, job: Job) -> Response:
        """What the handler answered, with the status code that it chose."""
        return stored_answer(job).response()

    def unfinished(self, request: Request, job: Job) -> Response:
        """409: it has no result yet."""
        detail = f"the job is {job.state}: look again later"
        return Problem(409, "The job has not ended", detail, {"Retry-After": pause(job)}).response()

    def failed(self, request: Request, job: Job) -> Response:
        """500: every attempt failed. The error itself is for those who run the service."""
        tries = f"{job.attempts} attempt{'' if job.attempts == 1 else 's'}"
        return Problem(500, "The job failed", f"it was given up after {tries}").response()

    def cancelled(self, request: Request, job: Job) -> Response:
        """409: somebody cancelled it, so there will be no result."""
        return Problem(409, "The job was cancelled", "it will have no result").response()

    def unknown(self, request: Request, id: str) -> Response:
        """404: there is no such job, or not for this client."""
        return Problem(404, "There is no such job", "it never was, or it was deleted").response()

    def gone(self, request: Request, id: str) -> Response:
        """410: it is so old that finished jobs of its time are not kept any more."""
        return Problem(410, "The job is gone", "it ended long ago and is not kept any more").response()

    def refused(self, request: Request, problem: Problem) -> Response:
        """4xx and 503: the request cannot become a job."""
        return problem.response()


def pause(job: Job) -> str:
    """How many seconds to wait before looking again: short for a young job, longer for one that takes its time."""
    since = (job.started_at or job.created_at).timestamp()
    now = datetime.now(tz=job.created_at.tzinfo).timestamp()
    return str(min(LONGEST_PAUSE, max(1, int((now - since) / 4))))


def _json(status: int, value: Any, headers: Mapping[str, str]) -> Response:
    return Response(msgspec.json.encode(value), status, dict(headers), JSON)
