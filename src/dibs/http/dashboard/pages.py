"""The pages: each asks the service and fills a template. Nothing here changes anything."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from dibs.errors import Refused
from dibs.http.dashboard import asking, graph, timeline
from dibs.http.dashboard.graph import Node
from dibs.http.dashboard.overview import charts, counting, numbers, place_of, verdict
from dibs.http.dashboard.rendering import render
from dibs.http.security import COOKIE, IDENTITY
from dibs.http.service import NotFound, Service
from dibs.http.service.data import FlowDetail, Identity, StepShown, Verb
from dibs.job import FlowState, QueueCounts, State
from dibs.redaction import safe_url

SHOWN = 50
"""How many jobs stand on a page."""
LONGEST = 5
"""How many of the longest running jobs, and of the groups of failures, stand on the first page."""
VERBS = (
    (Verb.REQUEUE, "Requeue", ""),
    (Verb.CANCEL, "Cancel", "danger"),
    (Verb.RESCHEDULE, "Reschedule", ""),
    (Verb.REPRIORITISE, "Reprioritise", ""),
    (Verb.DELETE, "Delete", "danger"),
)

TOLD = {
    "cancel": "Cancelled; if it runs, it is asked to end.",
    "requeue": "Requeued: due now, with all its attempts.",
    "reschedule": "Rescheduled.",
    "reprioritise": "Reprioritised.",
    "delete": "Deleted.",
    "nothing": "Nothing changed: it is not in a state in which that can be done.",
    "pause": "Paused: what runs goes on, nothing new is started.",
    "resume": "Resumed.",
    "order": "The order is set.",
    "limit": "The limit is set.",
    "unlimited": "The limit is gone.",
    "stop": "Asked to stop: the worker learns of it within some seconds, and finishes what it runs.",
    "run": "This is the job.",
    "flow": "Done: the steps show what came of it.",
}
"""What a page says after something was done, by a word in its address: an address cannot say anything else."""


class Pages:
    """What can be looked at. Who looks is found out before."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def page(
        self, request: Request, template: str, here: str, filled: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Fill a template with what is on every page, and with the rest."""
        who: Identity | None = request.scope.get(IDENTITY)
        everywhere = {
            "who": "" if who is None else who.name,
            "operator": who is not None and who.may_change,
            "session": COOKIE in request.cookies,
            "store": safe_url(self.service.url) if self.service.url else "",
            "told": TOLD.get(request.query_params.get("told", ""), ""),
        }
        return render(request, template, here, self.service.clock(), {**everywhere, **filled}, status=status)

    async def login(self, request: Request) -> Response:
        """Where a browser that shows no session is sent."""
        asked = request.query_params
        return self.page(request, "login", "login", {"wrong": "wrong" in asked, "next": asked.get("next", "/")})

    # --- one page each --------------------------------------------------------------------------------------

    async def overview(self, request: Request) -> Response:
        service = self.service
        seen, workers, samples, failures = await asyncio.gather(
            service.overview(), service.workers(), service.samples(), service.failures()
        )
        running = sorted(
            ((worker.name, job) for worker in workers for job in worker.jobs),
            key=lambda each: each[1].started_at or seen.at,
        )
        return self.page(
            request,
            "overview",
            "",
            {
                "verdict": verdict(seen),
                "place_of": place_of,
                "numbers": numbers(seen),
                "charts": charts(samples),
                "queues": seen.queues,
                "counting": counting(seen),
                "running": running[:LONGEST],
                "failures": failures.groups[:LONGEST],
            },
        )

    async def jobs(self, request: Request) -> Response:
        asking.only_known(request.query_params)
        given, now = asking.asked(request.query_params), self.service.clock()
        which = asking.job_filter(given, now)
        place = asking.after(request.query_params)
        found, (counts, _) = await asyncio.gather(self.service.jobs(which, place, SHOWN), self.service.counts())
        known = () if self.service.app is None else self.service.app.tasks.by_name
        searched = bool(given.get("text") or given.get("group") or (found.after and len(found.jobs) < SHOWN))
        return self.page(
            request,
            "jobs",
            "jobs",
            {
                "jobs": found.jobs,
                "note": f"{found.looked_at:,} jobs were looked through for this page." if searched else "",
                "newest": asking.query(given) or "?" if place else "",
                "older": asking.query(given, after=found.after) if found.after else "",
                "states": self._states(given, counts),
                "asked": {name: given.get(name, [""])[-1] for name in asking.FIELDS},
                "chosen_states": given.get("state", []),
                "which": [(name, value) for name, values in given.items() for value in values],
                "known_queues": [one.queue for one in counts],
                "known_tasks": sorted(known),
                "verbs": VERBS,
                "back": f"{request.url.path}{asking.query(given)}",
            },
        )

    def _states(
        self, given: dict[str, list[str]], counts: list[QueueCounts]
    ) -> list[tuple[str, int | None, bool, str, bool]]:
        """Every state with how many there are, as far as only queues are asked for."""
        rest = {name: values for name, values in given.items() if name != "state"}
        queues = set(rest.get("queue", ())) or {one.queue for one in counts}
        exact = not rest.keys() - {"queue"}
        chosen = given.get("state", [])
        total = {state: sum(one.states[state] for one in counts if one.queue in queues) for state in State}
        more = {state for one in counts if one.queue in queues for state in one.more}
        whole = sum(total.values()) if exact else None
        chips = [("all", whole, bool(more), asking.query(rest) or "?", not chosen)]
        for state in State:
            link = asking.query(rest, state=state.value)
            chips.append((state.value, total[state] if exact else None, state in more, link, state in chosen))
        return chips

    async def job(self, request: Request) -> Response:
        id = named(request)
        job, why = await asyncio.gather(self.service.job(id), self.service.why(id))
        return self.page(
            request, "job", "jobs", {"job": job, "why": why, "timeline": timeline.draw(job, self.service.clock())}
        )

    async def failures(self, request: Request) -> Response:
        found = await self.service.failures()
        age = (self.service.clock() - found.seen_at).total_seconds()
        notes = [
            "" if found.complete else f"Only the newest {found.looked_at:,} failed jobs were looked at.",
            f"That was {age:.0f} s ago." if age >= 1 else "",
        ]
        return self.page(request, "failures", "failures", {"groups": found.groups, "note": " ".join(notes).strip()})

    async def flows(self, request: Request) -> Response:
        asked = request.query_params.getlist("state")
        if wrong := [each for each in asked if each not in tuple(FlowState)]:
            raise Refused(f"a flow is never {wrong[0][:40]!a}: it is one of {', '.join(FlowState)}")
        states = [FlowState(each) for each in asked]
        found = await self.service.flows(states, asking.after(request.query_params))
        chips = [("all", "?", not states), *((each.value, f"?state={each}", each in states) for each in FlowState)]
        older = asking.query({"state": asked}, after=found.after) if found.after else ""
        return self.page(request, "flows", "flows", {"flows": found.flows, "states": chips, "older": older})

    async def flow(self, request: Request) -> Response:
        flow = await self.service.flow(named(request))
        base = request.scope.get("root_path", "")
        drawing = graph.draw([_node(step, base) for step in flow.graph])
        return self.page(request, "flow", "flows", {"flow": flow, "graph": drawing, "note": _note(flow)})

    async def queues(self, request: Request) -> Response:
        filled = {"queues": await self.service.queues(), "limits": await self.service.limits()}
        return self.page(request, "queues", "queues", filled)

    async def workers(self, request: Request) -> Response:
        return self.page(request, "workers", "workers", {"workers": await self.service.workers()})

    async def schedules(self, request: Request) -> Response:
        return self.page(request, "schedules", "schedules", {"schedules": await self.service.schedules(ticks=5)})

    async def audit(self, request: Request) -> Response:
        entries = (await self.service.audit()).entries
        return self.page(request, "audit", "audit", {"entries": entries, "batches": await self.service.batches()})

    async def batch(self, request: Request) -> Response:
        return self.page(request, "batch", "jobs", {"batch": await self.service.batch(named(request))})


def named(request: Request) -> UUID:
    """The id in the address."""
    text = request.path_params["id"]
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"{text[:60]} is no id") from None


def _node(step: StepShown, base: str) -> Node:
    words = f"{step.name}: {step.label}, {step.task}"
    error = f", {step.error}" if step.error else ""
    return Node(step.name, step.state.value, step.needs_there, f"{base}/jobs/{step.id}", f"{words}{error}")


def _note(flow: FlowDetail) -> str:
    return f"Only the first {len(flow.graph):,} steps are shown." if flow.more else ""
