"""dibs: a durable job queue for Python, on the database that you already have."""

from dibs.errors import ConfigurationError, DibsError, Refused, SchemaError, StoreUnavailable
from dibs.ids import new_id
from dibs.job import Claim, Filter, Job, NewJob, Order, Priority, Retention, State
from dibs.outcome import Cancelled, Failed, Released, Retry, Snoozed, Succeeded, Verdict
from dibs.store import Store
from dibs.stores import open_store

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Claim",
    "ConfigurationError",
    "DibsError",
    "Failed",
    "Filter",
    "Job",
    "NewJob",
    "Order",
    "Priority",
    "Refused",
    "Released",
    "Retention",
    "Retry",
    "SchemaError",
    "Snoozed",
    "State",
    "Store",
    "StoreUnavailable",
    "Succeeded",
    "Verdict",
    "new_id",
    "open_store",
]
