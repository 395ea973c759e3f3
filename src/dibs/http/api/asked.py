"""What comes in the queries and bodies of the API, besides the values of the service."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from dibs.http.service import data
from dibs.http.service.data import Given, JobFilter, Moment, PageSize
from dibs.job import FlowState

Ticks = Annotated[int, Meta(ge=0, le=100)]


class JobsQuery(JobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: UUID | UnsetType = UNSET
    limit: PageSize = 50


class FlowsQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[tuple[FlowState, ...], Meta(max_length=4)] = ()
    after: UUID | UnsetType = UNSET
    limit: PageSize = 50


class AuditQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class TicksQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ticks: Ticks = 3


class SamplesQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hours: Annotated[int, Meta(ge=1, le=48)] = 2


class EventsQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: UUID | UnsetType = UNSET
    flow: UUID | UnsetType = UNSET


class ForceQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    force: bool = False


class ScopeQuery(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: data.Name | UnsetType = UNSET
    task: data.Name | UnsetType = UNSET
    each_key: bool = False


class ForceGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether running ones are cut off, too, and why it is done."""

    force: bool = False
    reason: Annotated[str, Meta(max_length=200)] = ""


class ReasonGiven(Given, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is done."""

    reason: Annotated[str, Meta(max_length=200)] = ""


class RescheduleGiven(ReasonGiven, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When it is due."""

    run_at: Moment


class ReprioritiseGiven(ReasonGiven, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How urgent it is: smaller runs first."""

    priority: Annotated[int, Meta(ge=-32768, le=32767)]
