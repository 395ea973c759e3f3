"""One service under the API and the dashboard: plain data in, plain data out, no HTTP."""

from dibs.http.service.service import NotFound, Service

__all__ = ["NotFound", "Service"]
