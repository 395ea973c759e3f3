"""The web application that bench/endpoints.py measures: an endpoint that is a job, and one that does nothing."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dibs import App
from dibs.http import Endpoints, JobRequest

app = App()  # the URL comes from DIBS_URL
jobs = Endpoints(app)


@jobs.endpoint
async def echo(request: JobRequest) -> object:
    return request.body


async def bare(request: Request) -> Response:
    await request.body()
    return Response(status_code=202)


web = Starlette(
    routes=[Route("/echo", echo, methods=["POST"]), Route("/bare", bare, methods=["POST"]), *jobs.routes],
)
