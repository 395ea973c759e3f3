"""dibs over HTTP: endpoints whose requests become jobs, and API and dashboard for operators. Needs ``dibs[web]``."""

from dibs.errors import ConfigurationError

try:
    import starlette as _starlette  # noqa: F401 - whether it is there
except ModuleNotFoundError:
    raise ConfigurationError("dibs.http needs Starlette: pip install 'dibs[web]'") from None

from dibs.http.endpoints import Endpoints
from dibs.http.request import JobRequest
from dibs.http.responses import Answer, JobView, Responses
from dibs.http.service.data import Identity, Role
from dibs.http.site import Site, admin_app
from dibs.http.tokens import Token

__all__ = [
    "Answer",
    "Endpoints",
    "Identity",
    "JobRequest",
    "JobView",
    "Responses",
    "Role",
    "Site",
    "Token",
    "admin_app",
]
