"""Jobs, flows and schedules as they are shown. Pure: each function makes a value of ``data`` of one of the store."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dibs.flow import needed
from dibs.http.service.data import (
    ErrorShown,
    FlowDetail,
    FlowRow,
    JobDetail,
    JobRow,
    LimitShown,
    LineShown,
    RateShown,
    RunningJob,
    ScheduleShown,
    StepShown,
    TimelineEntry,
    WorkerShown,
)
from dibs.job import FINISHED, Flow, Job, State
from dibs.limiting import SetLimit
from dibs.overview import Worker
from dibs.redaction import Redaction
from dibs.schedule import Schedule, rhythm
from dibs.schedules import Listed

ARGUMENTS = 200
"""So many characters of a job's arguments are shown in a list."""
ERROR = 300
STEPS = 1_000
SHOWN_JOBS = 50
"""How many jobs of each worker are shown."""


def label(job: Job, now: datetime) -> str:
    """The state in the word that people use."""
    match job.state:
        case State.QUEUED if job.run_at > now and not job.attempts:
            return "scheduled"
        case State.QUEUED if job.attempts:
            return "retrying"
        case State.RUNNING if job.locked_until is not None and job.locked_until <= now:
            return "expired"
        case State.RUNNING if job.cancel_asked:
            return "cancelling"
    return str(job.state)


def last_error(job: Job) -> str | None:
    """The first line of the last error."""
    return cut(job.errors[-1].error.partition("\n")[0], ERROR) if job.errors else None


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def row(job: Job, now: datetime) -> JobRow:
    """A job that was redacted before."""
    return JobRow(**_row(job, now))


def _row(job: Job, now: datetime) -> dict[str, Any]:
    return {
        "id": job.id,
        "queue": job.queue,
        "task": job.task,
        "state": job.state,
        "label": label(job, now),
        "priority": job.priority,
        "run_at": job.run_at,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "worker": job.worker,
        "key": job.key,
        "flow": job.flow,
        "step": job.step,
        "progress": job.report.progress,
        "args": cut(msgspec.json.encode(job.args).decode(), ARGUMENTS),
        "error": last_error(job),
    }


def detail(job: Job, now: datetime) -> JobDetail:
    """A job that was redacted before."""
    return JobDetail(
        **_row(job, now),
        epoch=job.epoch,
        locked_until=job.locked_until,
        cancel_asked=job.cancel_asked,
        expires_at=job.expires_at,
        unique_until=job.unique_until,
        limit_key=job.limit_key,
        note=job.report.note,
        arguments=job.args,
        result=job.result,
        meta=job.meta,
        needs=job.needs,
        inputs=job.inputs,
        errors=tuple(
            ErrorShown(**{field: getattr(each, field) for field in ErrorShown.__struct_fields__}) for each in job.errors
        ),
        log=tuple(LineShown(at=line.at, attempt=line.attempt, text=line.text) for line in job.report.log),
        timeline=tuple(sorted(_timeline(job, now), key=lambda entry: entry.at)),
    )


def _timeline(job: Job, now: datetime) -> Iterator[TimelineEntry]:
    yield TimelineEntry(at=job.created_at, what="created")
    if job.run_at != job.created_at:
        yield TimelineEntry(at=job.run_at, what="due")
    for each in job.errors:
        yield TimelineEntry(
            at=each.started_at,
            until=each.ended_at,
            what="attempt failed",
            attempt=each.attempt,
            worker=each.worker,
            text=cut(each.error.partition("\n")[0], ERROR),
        )
    failed_at = {each.started_at for each in job.errors}
    if job.started_at is not None and job.started_at not in failed_at:
        yield TimelineEntry(
            at=job.started_at,
            until=job.finished_at if job.state in FINISHED else None,
            what="started",
            attempt=job.attempts,
            worker=job.worker,
        )
    for line in job.report.log:
        yield TimelineEntry(at=line.at, what="log", attempt=line.attempt, text=line.text)
    if job.state is State.RUNNING and job.locked_until is not None:
        yield TimelineEntry(at=job.locked_until, what="lease ends", worker=job.worker)
    if job.expires_at is not None and job.state not in FINISHED:
        yield TimelineEntry(at=job.expires_at, what="expires")
    if job.finished_at is not None:
        ended: Any = str(job.state)
        yield TimelineEntry(at=job.finished_at, what=ended, worker=job.worker)


def running(job: Job, now: datetime) -> RunningJob:
    return RunningJob(
        id=job.id,
        task=job.task,
        queue=job.queue,
        attempt=job.attempts,
        started_at=job.started_at,
        locked_until=job.locked_until,
        expired=job.locked_until is not None and job.locked_until <= now,
        progress=job.report.progress,
        note=job.report.note,
        cancel_asked=job.cancel_asked,
    )


def limit(use: SetLimit) -> LimitShown:
    rate = use.limit.rate
    return LimitShown(
        queue=use.scope.queue,
        task=use.scope.task,
        each_key=use.scope.each_key,
        concurrency=use.limit.concurrency,
        rate=None if rate is None else RateShown(count=rate.count, per=rate.per.total_seconds()),
        running=use.running,
        next_start=use.next_start,
        by=use.by,
    )


# --- workers ---------------------------------------------------------------------------------------------------


def worker(
    one: Worker, held: list[Job], asked: dict[str, Any] | None, redaction: Redaction, now: datetime
) -> WorkerShown:
    held.sort(key=lambda job: job.started_at or job.created_at)
    jobs = tuple(running(redaction.job(job), now) for job in held[:SHOWN_JOBS])
    return WorkerShown(
        name=one.name,
        live=one.live,
        seen_at=one.seen_at,
        running=one.running,
        concurrency=one.concurrency,
        queues=one.queues,
        tasks=one.tasks,
        stop_asked=_moment(asked),
        info=redaction.value({name: each for name, each in one.info.items() if name != "redact"}),
        jobs=jobs,
    )


def _moment(asked: dict[str, Any] | None) -> datetime | None:
    stop = None if asked is None else asked.get("stop")
    try:
        return datetime.fromisoformat(stop).astimezone(UTC) if isinstance(stop, str) else None
    except ValueError:
        return None


# --- flows ----------------------------------------------------------------------------------------------------


def flow_row(flow: Flow) -> FlowRow:
    return FlowRow(**_flow(flow))


def _flow(flow: Flow) -> dict[str, Any]:
    whole = sum(flow.steps.values())
    ended = sum(flow.steps.get(state, 0) for state in FINISHED)
    return {
        "id": flow.id,
        "name": flow.name,
        "state": flow.state,
        "on_failure": flow.on_failure,
        "created_at": flow.created_at,
        "finished_at": flow.finished_at,
        "steps": flow.steps,
        "progress": ended / whole if whole else 1.0,
    }


def flow_detail(flow: Flow, steps: Sequence[Job], now: datetime, redaction: Redaction) -> FlowDetail:
    """Steps as the store gives them, newest first."""
    by_name = {job.step: job for job in steps if job.step is not None}
    graph = [_step(redaction.job(job), by_name, now) for job in reversed(steps[:STEPS])]
    return FlowDetail(
        **_flow(flow), meta=redaction.value(flow.meta), graph=tuple(graph), more=sum(flow.steps.values()) > len(graph)
    )


def _step(job: Job, steps: Mapping[str, Job], now: datetime) -> StepShown:
    return StepShown(
        name=job.step or str(job.id),
        id=job.id,
        task=job.task,
        queue=job.queue,
        state=job.state,
        label=label(job, now),
        needs=job.needs,
        needs_there=tuple(needed(job, steps)),
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        started_at=job.started_at,
        finished_at=job.finished_at,
        progress=job.report.progress,
        error=last_error(job),
    )


# --- schedules ------------------------------------------------------------------------------------------------


def schedule(listed: Listed, redaction: Redaction, last_job: Job | None = None) -> ScheduleShown:
    known = listed.schedule or Schedule(name=listed.name, task="")
    return ScheduleShown(
        name=listed.name,
        origin=listed.origin,
        problem=listed.problem,
        task=known.task or None,
        queue=known.queue if listed.schedule else None,
        arguments=redaction.value(known.args, known.task),
        rhythm=_rhythm(known) if listed.schedule else "",
        cron=known.cron,
        every=None if known.every is None else known.every.total_seconds(),
        zone=known.zone,
        jitter=known.jitter.total_seconds(),
        missed=known.missed,
        overlap=known.overlap,
        paused=listed.paused,
        paused_at=listed.paused_at,
        last=listed.last,
        last_job=None if last_job is None else last_job.id,
        late=listed.late,
        next=listed.next,
        live=listed.live,
        seen_at=listed.seen_at,
    )


def _rhythm(known: Schedule) -> str:
    if known.every is None:
        return f"{known.cron} in {known.zone}"
    return f"every {known.every}" if known.every else rhythm(known)
