"""A job's life on a time line: waiting, each attempt, the pauses between them."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from markupsafe import Markup

from dibs.http.dashboard.charts import seconds
from dibs.http.dashboard.svg import picture, tag, title
from dibs.http.dashboard.words import clock
from dibs.http.service.data import JobDetail
from dibs.job import FINISHED, State

WIDTH, HEIGHT = 720.0, 40.0
MIDDLE = HEIGHT / 2
LEAST = 3.0
"""The narrowest piece that can still be seen and pointed at."""


class Piece(msgspec.Struct, frozen=True):
    """One span of a job's life."""

    kind: str
    """waiting, or how the attempt ended: a state, or "retried", or "expired"."""
    begins: datetime
    ends: datetime
    words: str


def pieces(job: JobDetail, now: datetime) -> list[Piece]:
    """What a job has done until now, as far as it is kept: the attempts that went wrong, and the last one."""
    found = list(_pieces(job, now))
    return [piece for piece in found if piece.ends >= piece.begins]


def _pieces(job: JobDetail, now: datetime) -> Iterator[Piece]:
    at = job.created_at
    for error in job.errors:
        yield Piece("waiting", at, error.started_at, "waiting")
        kind = "expired" if error.error == "lease expired" else "failed"
        words = f"attempt {error.attempt} on {error.worker}: {error.error.partition(chr(10))[0][:120]}"
        yield Piece(kind, error.started_at, error.ended_at, words)
        at = error.ended_at
    last = job.started_at
    if last is not None and last >= at and (job.state is State.RUNNING or job.state in FINISHED):
        yield Piece("waiting", at, last, "waiting")
        yield Piece(
            job.state.value, last, job.finished_at or now, f"attempt {job.attempts} on {job.worker}: {job.state}"
        )
    elif job.state in (State.QUEUED, State.WAITING):
        yield Piece("waiting", at, now, "waiting")
        if job.run_at > now:
            yield Piece("scheduled", now, job.run_at, f"due in {seconds((job.run_at - now).total_seconds())}")
    elif job.finished_at is not None and job.finished_at > at:
        yield Piece("waiting", at, job.finished_at, f"{job.state} without another attempt")


def draw(job: JobDetail, now: datetime) -> Markup:
    """The time line."""
    found = pieces(job, now)
    if not found:
        return Markup("")
    begin, end = found[0].begins, max(piece.ends for piece in found)
    span = max((end - begin).total_seconds(), 1e-6)
    drawn = [tag("line", x1=0.0, x2=WIDTH, y1=MIDDLE, y2=MIDDLE, class_="grid")]
    for piece in found:
        x = WIDTH * (piece.begins - begin).total_seconds() / span
        width = max(LEAST, WIDTH * (piece.ends - piece.begins).total_seconds() / span)
        took = seconds((piece.ends - piece.begins).total_seconds())
        height = 6.0 if piece.kind in ("waiting", "scheduled") else 20.0
        place = {"x": min(x, WIDTH - width), "y": MIDDLE - height / 2, "width": width, "height": height, "rx": 3.0}
        drawn.append(tag("rect", [title(f"{piece.words} ({took})")], **place, class_=f"piece {piece.kind}"))
    ends = [tag("span", clock(begin)), tag("span", f"{clock(end)}, {seconds(span)} in all")]
    label = "; ".join(f"{piece.words} for {seconds((piece.ends - piece.begins).total_seconds())}" for piece in found)
    line = picture((WIDTH, HEIGHT), drawn, label, "timeline", preserveAspectRatio="none")
    return tag("div", [line, tag("div", ends, class_="ends")])
