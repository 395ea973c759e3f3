"""Every operation of the API, in the order of the document."""

from datetime import timedelta
from typing import Any

from msgspec import UNSET, Struct, structs

from dibs.http.api.asked import (
    AuditQuery,
    EventsQuery,
    FlowsQuery,
    ForceGiven,
    ForceQuery,
    JobsQuery,
    ReasonGiven,
    ReprioritiseGiven,
    RescheduleGiven,
    SamplesQuery,
    ScopeQuery,
    TicksQuery,
)
from dibs.http.api.operations import Call, Operation
from dibs.http.service import data
from dibs.http.service.data import BatchGiven, BatchState, JobFilter, Verb


class Done(Struct, frozen=True, kw_only=True):
    """It is done."""

    done: bool = True


def _set(value: Any) -> Any:
    return None if value is UNSET else value


# --- what is done -------------------------------------------------------------------------------------------------


async def overview(call: Call) -> data.Overview:
    return await call.service.overview()


async def jobs(call: Call) -> data.JobPage:
    query: JobsQuery = call.query
    which = JobFilter(**{field: getattr(query, field) for field in JobFilter.__struct_fields__})
    return await call.service.jobs(which, _set(query.after), query.limit)


async def enqueue(call: Call) -> data.Sent:
    return await call.service.enqueue(call.body, call.who.name)


async def job(call: Call) -> data.JobDetail:
    return await call.service.job(call.id)


async def why(call: Call) -> data.Why:
    return await call.service.why(call.id)


def _one(verb: Verb) -> Any:
    async def change(call: Call) -> data.Outcome:
        said = {} if call.body is None else structs.asdict(call.body)
        return await call.service.change_one(call.id, BatchGiven(verb=verb, **said), call.who.name)

    return change


async def delete(call: Call) -> data.Outcome:
    given = BatchGiven(verb=Verb.DELETE, force=call.query.force)
    return await call.service.change_one(call.id, given, call.who.name)


async def change(call: Call) -> data.Batch:
    return await call.service.change(call.body, call.who.name)


async def batches(call: Call) -> list[data.Batch]:
    return await call.service.batches()


async def batch(call: Call) -> data.Batch:
    return await call.service.batch(call.id)


async def stop_batch(call: Call) -> data.Batch:
    return await call.service.stop_batch(call.id, call.who.name)


async def audit(call: Call) -> data.AuditPage:
    return await call.service.audit(call.query.limit)


async def failures(call: Call) -> data.Failures:
    return await call.service.failures(call.query)


async def queues(call: Call) -> list[data.QueueShown]:
    return await call.service.queues()


async def queue(call: Call) -> data.QueueShown:
    return await call.service.queue(call.name)


async def pause(call: Call) -> Done:
    await call.service.pause(call.name, call.who.name)
    return Done()


async def resume(call: Call) -> Done:
    await call.service.resume(call.name, call.who.name)
    return Done()


async def order(call: Call) -> Done:
    await call.service.order(call.name, call.body, call.who.name)
    return Done()


async def limits(call: Call) -> list[data.LimitShown]:
    return await call.service.limits()


async def limit(call: Call) -> Done:
    await call.service.limit(call.body, call.who.name)
    return Done()


async def unlimit(call: Call) -> Done:
    query: ScopeQuery = call.query
    given = data.LimitGiven(queue=_set(query.queue), task=_set(query.task), each_key=query.each_key)
    await call.service.limit(given, call.who.name)
    return Done()


async def tasks(call: Call) -> list[data.TaskShown]:
    return await call.service.tasks()


async def workers(call: Call) -> list[data.WorkerShown]:
    return await call.service.workers()


async def worker(call: Call) -> data.WorkerShown:
    return await call.service.worker(call.name)


async def stop_worker(call: Call) -> Done:
    await call.service.ask_to_stop(call.name, call.who.name)
    return Done()


async def schedules(call: Call) -> list[data.ScheduleShown]:
    return await call.service.schedules(call.query.ticks)


async def schedule(call: Call) -> data.ScheduleShown:
    return await call.service.schedule(call.name, call.query.ticks)


async def put_schedule(call: Call) -> data.ScheduleShown:
    return await call.service.put_schedule(call.name, call.body, call.who.name)


async def remove_schedule(call: Call) -> Done:
    await call.service.remove_schedule(call.name, call.who.name)
    return Done()


async def pause_schedule(call: Call) -> Done:
    await call.service.pause_schedule(call.name, call.who.name)
    return Done()


async def resume_schedule(call: Call) -> Done:
    await call.service.resume_schedule(call.name, call.who.name)
    return Done()


async def run_schedule(call: Call) -> data.Sent:
    return await call.service.run_schedule(call.name, call.who.name)


async def flows(call: Call) -> data.FlowPage:
    return await call.service.flows(call.query.state, _set(call.query.after), call.query.limit)


async def flow(call: Call) -> data.FlowDetail:
    return await call.service.flow(call.id)


def _flow(verb: str) -> Any:
    async def change(call: Call) -> data.Outcome:
        force = bool(call.body is not None and getattr(call.body, "force", False))
        return await call.service.change_flow(call.id, verb, call.who.name, force=force)

    return change


async def samples(call: Call) -> data.Samples:
    return await call.service.samples(timedelta(hours=call.query.hours))


async def events(call: Call) -> Any:
    return call.service.events(_set(call.query.job), _set(call.query.flow))


async def who_am_i(call: Call) -> data.Identity:
    return call.who


def batch_status(made: data.Batch) -> int:
    """A dry run is answered; what goes on in the background is accepted."""
    return 200 if made.state is BatchState.COUNTED else 202


def _get(path: str, name: str, summary: str, handler: Any, answer: Any, **more: Any) -> Operation:
    return Operation(method="GET", path=path, name=name, summary=summary, handler=handler, answer=answer, **more)


def _post(path: str, name: str, summary: str, handler: Any, answer: Any = Done, **more: Any) -> Operation:
    return Operation(method="POST", path=path, name=name, summary=summary, handler=handler, answer=answer, **more)


def _with(body: Any) -> dict[str, Any]:
    return {"body": body, "body_optional": True}


OPERATIONS: tuple[Operation, ...] = (
    _get("/api/overview", "overview", "Everything at a glance", overview, data.Overview),
    _get("/api/me", "who_am_i", "Who is asking, and what he may do", who_am_i, data.Identity),
    _get("/api/jobs", "list_jobs", "Jobs, newest first", jobs, data.JobPage, query=JobsQuery),
    _post("/api/jobs", "enqueue", "Enqueue a job", enqueue, data.Sent, status=201, body=data.NewJobGiven),
    _get("/api/jobs/{id}", "show_job", "All about a job", job, data.JobDetail),
    Operation(
        method="DELETE",
        path="/api/jobs/{id}",
        name="delete_job",
        summary="Remove a job; a running one only with force",
        handler=delete,
        answer=data.Outcome,
        query=ForceQuery,
    ),
    _get("/api/jobs/{id}/why", "why", "What keeps a job from running", why, data.Why),
    _post(
        "/api/jobs/{id}/cancel",
        "cancel_job",
        "Cancel a job; a running one is asked, or cut off with force",
        _one(Verb.CANCEL),
        data.Outcome,
        **_with(ForceGiven),
    ),
    _post(
        "/api/jobs/{id}/requeue",
        "requeue_job",
        "Send a finished job back",
        _one(Verb.REQUEUE),
        data.Outcome,
        **_with(ReasonGiven),
    ),
    _post(
        "/api/jobs/{id}/reschedule",
        "reschedule_job",
        "Set when a job is due",
        _one(Verb.RESCHEDULE),
        data.Outcome,
        body=RescheduleGiven,
    ),
    _post(
        "/api/jobs/{id}/reprioritise",
        "reprioritise_job",
        "Set how urgent a job is",
        _one(Verb.REPRIORITISE),
        data.Outcome,
        body=ReprioritiseGiven,
    ),
    _post(
        "/api/batches",
        "change_jobs",
        "Change many jobs, or count how many that would be",
        change,
        data.Batch,
        body=BatchGiven,
        also={202: "It goes on in the background: look at the batch."},
        conflicts="More than a hundred jobs, and confirm is missing or far off: the problem's count says how many.",
    ),
    _get("/api/batches", "list_batches", "Batches, newest first", batches, list[data.Batch]),
    _get("/api/batches/{id}", "show_batch", "How a batch is", batch, data.Batch),
    _post("/api/batches/{id}/stop", "stop_batch", "Stop a batch; what was done stays done", stop_batch, data.Batch),
    _get("/api/audit", "audit", "Who did what, newest first", audit, data.AuditPage, query=AuditQuery),
    _get("/api/failures", "failures", "Failed jobs by error", failures, data.Failures, query=JobFilter),
    _get("/api/queues", "list_queues", "Every queue, counted", queues, list[data.QueueShown]),
    _get("/api/queues/{name}", "show_queue", "One queue", queue, data.QueueShown),
    _post("/api/queues/{name}/pause", "pause_queue", "Give out no more jobs of a queue", pause),
    _post("/api/queues/{name}/resume", "resume_queue", "Give out jobs of a queue again", resume),
    Operation(
        method="PUT",
        path="/api/queues/{name}/order",
        name="order_queue",
        summary="Say in which order a queue hands out its jobs",
        handler=order,
        answer=Done,
        body=data.OrderGiven,
    ),
    _get("/api/limits", "list_limits", "Every limit, and how far it is used", limits, list[data.LimitShown]),
    Operation(
        method="PUT",
        path="/api/limits",
        name="set_limit",
        summary="Limit a queue, each key of a queue, or a task",
        handler=limit,
        answer=Done,
        body=data.LimitGiven,
    ),
    Operation(
        method="DELETE",
        path="/api/limits",
        name="take_limit_away",
        summary="Take away what was set; what code declares counts again",
        handler=unlimit,
        answer=Done,
        query=ScopeQuery,
    ),
    _get("/api/tasks", "list_tasks", "Every task, counted and measured", tasks, list[data.TaskShown]),
    _get("/api/workers", "list_workers", "Every worker, and what it runs", workers, list[data.WorkerShown]),
    _get("/api/workers/{name}", "show_worker", "One worker", worker, data.WorkerShown),
    _post("/api/workers/{name}/stop", "stop_worker", "Ask a worker to finish what it runs and end", stop_worker),
    _get(
        "/api/schedules",
        "list_schedules",
        "Every schedule, with its next ticks",
        schedules,
        list[data.ScheduleShown],
        query=TicksQuery,
    ),
    _get("/api/schedules/{name}", "show_schedule", "One schedule", schedule, data.ScheduleShown, query=TicksQuery),
    Operation(
        method="PUT",
        path="/api/schedules/{name}",
        name="put_schedule",
        summary="Store a schedule, in place of a stored one of that name",
        handler=put_schedule,
        answer=data.ScheduleShown,
        body=data.ScheduleGiven,
    ),
    Operation(
        method="DELETE",
        path="/api/schedules/{name}",
        name="remove_schedule",
        summary="Forget a stored schedule",
        handler=remove_schedule,
        answer=Done,
    ),
    _post("/api/schedules/{name}/pause", "pause_schedule", "No more ticks", pause_schedule),
    _post("/api/schedules/{name}/resume", "resume_schedule", "Go on with the next tick", resume_schedule),
    _post("/api/schedules/{name}/run", "run_schedule", "Enqueue its job now", run_schedule, data.Sent, status=201),
    _get("/api/flows", "list_flows", "Flows, newest first", flows, data.FlowPage, query=FlowsQuery),
    _get("/api/flows/{id}", "show_flow", "A flow with its steps", flow, data.FlowDetail),
    _post("/api/flows/{id}/cancel", "cancel_flow", "Cancel a flow", _flow("cancel"), data.Outcome, **_with(ForceGiven)),
    _post(
        "/api/flows/{id}/retry", "retry_flow", "Run again what failed or was cancelled", _flow("retry"), data.Outcome
    ),
    _post("/api/flows/{id}/restart", "restart_flow", "Run all of it again", _flow("restart"), data.Outcome),
    _get("/api/samples", "samples", "What workers recorded", samples, data.Samples, query=SamplesQuery),
    _get(
        "/api/events",
        "events",
        "What changes, as it changes: counts, workers, ended, batch; and job or flow, if one is named",
        events,
        data.Event,
        query=EventsQuery,
        stream=True,
    ),
)
