"""The HTTP API: every operation in one table, from which routes and the OpenAPI document are made."""

from dibs.http.api.document import document
from dibs.http.api.operations import Operation
from dibs.http.api.router import API
from dibs.http.api.table import OPERATIONS

__all__ = ["API", "OPERATIONS", "Operation", "document"]
