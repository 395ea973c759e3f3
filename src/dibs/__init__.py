"""dibs: a durable job queue for Python, on the database that you already have."""

from dibs.app import App
from dibs.attempt import Attempt, current
from dibs.errors import (
    ConfigurationError,
    DibsError,
    FlowCancelled,
    FlowFailed,
    FlowUnknown,
    JobCancelled,
    JobFailed,
    JobUnknown,
    Refused,
    ScheduleUnknown,
    SchemaError,
    StoreUnavailable,
)
from dibs.flow import FlowHandle, FlowPlan
from dibs.handle import Handle
from dibs.ids import new_id
from dibs.job import Filter, Job, NewJob, OnConflict, Priority, Retention, State
from dibs.retry import Constant, Exponential, Linear
from dibs.scope import Limit, Rate, Scope
from dibs.signals import Fail, Retry, Snooze
from dibs.store import Store
from dibs.stores import open_store
from dibs.task import Task
from dibs.version import __version__

__all__ = [
    "App",
    "Attempt",
    "ConfigurationError",
    "Constant",
    "DibsError",
    "Exponential",
    "Fail",
    "Filter",
    "FlowCancelled",
    "FlowFailed",
    "FlowHandle",
    "FlowPlan",
    "FlowUnknown",
    "Handle",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobUnknown",
    "Limit",
    "Linear",
    "NewJob",
    "OnConflict",
    "Priority",
    "Rate",
    "Refused",
    "Retention",
    "Retry",
    "ScheduleUnknown",
    "SchemaError",
    "Scope",
    "Snooze",
    "State",
    "Store",
    "StoreUnavailable",
    "Task",
    "__version__",
    "current",
    "new_id",
    "open_store",
]
