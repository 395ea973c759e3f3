"""dibs over HTTP: endpoints whose requests become jobs. Needs the extra ``dibs[web]``."""

from dibs.errors import ConfigurationError

try:
    import starlette as _starlette  # noqa: F401 - whether it is there
except ModuleNotFoundError:
    raise ConfigurationError("dibs.http needs Starlette: pip install 'dibs[web]'") from None

from dibs.http.endpoints import Endpoints
from dibs.http.request import JobRequest
from dibs.http.responses import Answer, JobView, Responses

__all__ = ["Answer", "Endpoints", "JobRequest", "JobView", "Responses"]
