"""Handlers in processes of their own: work that must be killable, or that holds the GIL."""

from dibs.worker.processes.failures import HandlerError, ProcessDied, caused_by
from dibs.worker.processes.pool import ProcessPool
from dibs.worker.processes.reference import Reference, refer, refuse_while_importing

__all__ = ["HandlerError", "ProcessDied", "ProcessPool", "Reference", "caused_by", "refer", "refuse_while_importing"]
