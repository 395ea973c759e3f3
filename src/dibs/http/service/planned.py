"""What is planned: schedules and flows."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from dibs.flow import FlowHandle
from dibs.http.service import data, shown
from dibs.http.service.core import Core, NotFound
from dibs.job import Filter, FlowState
from dibs.schedules import Schedules
from dibs.task import Tasks


class Planned(Core):
    """Schedules and flows: looked at and changed."""

    # --- schedules ------------------------------------------------------------------------------------------

    def _schedules(self) -> Schedules:
        return Schedules(self.store, Tasks() if self.app is None else self.app.tasks)

    async def schedules(self, ticks: int = 3) -> list[data.ScheduleShown]:
        """Every schedule, with its next ticks."""
        redaction = await self.redaction()
        return [shown.schedule(one, redaction) for one in await self._schedules().list(ticks=ticks)]

    async def schedule(self, name: str, ticks: int = 10) -> data.ScheduleShown:
        """One schedule, with more of its ticks, and its last job."""
        schedules = self._schedules()
        one = await schedules.get(name, ticks=ticks)
        return shown.schedule(one, await self.redaction(), await schedules.last_job(one))

    async def put_schedule(self, name: str, given: data.ScheduleGiven, actor: str) -> data.ScheduleShown:
        """Store a schedule, in place of one of that name that is stored."""
        rhythm: dict[str, Any] = {
            "cron": given.cron,
            "every": given.every,
            "zone": given.zone,
            "jitter": given.jitter,
            "missed": given.missed,
            "overlap": given.overlap,
            "starts_at": given.starts_at,
            "ends_at": given.ends_at,
        }
        await self._schedules().add(name, self._new(given), paused=given.paused, replace=True, **rhythm)
        await self._done(actor, "put schedule", f"schedule {name}")
        return await self.schedule(name)

    async def remove_schedule(self, name: str, actor: str) -> None:
        await self._schedules().remove(name)
        await self._done(actor, "remove schedule", f"schedule {name}")

    async def pause_schedule(self, name: str, actor: str) -> None:
        await self._schedules().pause(name)
        await self._done(actor, "pause schedule", f"schedule {name}")

    async def resume_schedule(self, name: str, actor: str) -> None:
        await self._schedules().resume(name)
        await self._done(actor, "resume schedule", f"schedule {name}")

    async def run_schedule(self, name: str, actor: str) -> data.Sent:
        """Enqueue its job now."""
        handle = await self._schedules().run(name)
        await self._done(actor, "run schedule", f"schedule {name}, job {handle.id}", int(handle.created))
        return data.Sent(id=handle.id, created=handle.created)

    # --- flows ----------------------------------------------------------------------------------------------

    async def flows(
        self, states: Sequence[FlowState] = (), after: UUID | None = None, limit: int = 50
    ) -> data.FlowPage:
        """Some of the flows, newest first."""
        page = await (await self.store()).flows(states or None, after, limit)
        return data.FlowPage(flows=tuple(shown.flow_row(flow) for flow in page.flows), after=page.after)

    async def flow(self, id: UUID) -> data.FlowDetail:
        """A flow with its steps and what each of them needs."""
        store = await self.store()
        flow = await store.flow(id)
        if flow is None:
            raise NotFound(f"there is no flow {id}: it never was, or its jobs were deleted or pruned")
        page = await store.find(Filter(flows=(id,)), limit=shown.STEPS)
        return shown.flow_detail(flow, page.jobs, self.clock(), await self.redaction())

    async def change_flow(self, id: UUID, verb: str, actor: str, *, force: bool = False) -> data.Outcome:
        """``cancel``, ``retry`` (what failed or was cancelled) or ``restart`` (all of it)."""
        await self.flow(id)
        handle = FlowHandle(id, False, self.store)
        match verb:
            case "cancel":
                count = int(await handle.cancel(force=force))
            case "retry":
                count = await handle.retry()
            case _:
                count = await handle.restart()
        await self._done(actor, f"{verb} flow", f"flow {id}", count)
        return data.Outcome(changed=count)
