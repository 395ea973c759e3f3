"""Everything dibs raises on purpose. Each message is one line and says what to do."""

from typing import Any

from dibs.job import Flow, Job


class DibsError(Exception):
    """The root of all errors that dibs raises."""


class Refused(DibsError, ValueError):
    """The input breaks a rule of :mod:`dibs.limits`. Nothing was stored."""


class ConfigurationError(DibsError):
    """A URL, an option, a missing extra or a server setting that dibs cannot work with."""


class SchemaError(DibsError):
    """The store's schema is missing, too old or too new for this version of dibs."""


class StoreUnavailable(DibsError):
    """The store cannot be reached, or it went away during the call.

    Whether the call took effect is unknown: an enqueue can be sent again with the same ids, a settle can be
    sent again as it is, and a claim that got lost comes back when its lease expires.
    """


class UnexpectedResult(DibsError, TypeError):
    """The job succeeded, but its result is not of the type that the task's annotation promises."""


class JobNotSucceeded(DibsError):
    """The job ended without a result; ``job`` is the job as it was found."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.job)


class JobFailed(JobNotSucceeded):
    """The job failed for good; ``job.errors`` tells how its attempts ended."""


class JobCancelled(JobNotSucceeded):
    """The job was cancelled."""


class ScheduleUnknown(DibsError, LookupError):
    """There is no schedule of that name: it was never added or declared, or it was removed."""


class JobUnknown(DibsError, LookupError):
    """There is no job with that id: it never was, or it was deleted or pruned."""


class FlowNotSucceeded(DibsError):
    """The flow ended without success; ``flow`` and ``steps`` (by name) are as they were found."""

    def __init__(self, message: str, flow: Flow, steps: dict[str, Job]) -> None:
        super().__init__(message)
        self.flow = flow
        self.steps = steps

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.flow, self.steps)


class FlowFailed(FlowNotSucceeded):
    """A step of the flow failed for good."""


class FlowCancelled(FlowNotSucceeded):
    """The flow, or a step of it, was cancelled."""


class FlowUnknown(DibsError, LookupError):
    """There is no flow with that id: it never was, or its jobs were deleted or pruned."""
