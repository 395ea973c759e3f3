"""What can be done from a page: forms that are posted, each answered with the page that shows what came of it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dibs.errors import Refused
from dibs.http.dashboard import asking
from dibs.http.dashboard.pages import Pages, named
from dibs.http.security import identity
from dibs.http.service.batches import Unconfirmed
from dibs.http.service.data import JobFilter, LimitGiven, OrderGiven, Verb

View = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")
FIELDS = 2_000
"""More than a page of jobs and a filter can have."""
COUNTED = 50_000
"""Whoever is asked whether he means so many jobs knows enough: nobody waits until millions are counted."""


class Actions:
    """What operators do. Who they are, and that the form is ours, is found out before."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._service = pages.service

    # --- many jobs ------------------------------------------------------------------------------------------

    async def choose(self, request: Request) -> Response:
        """How many jobs it is about: nothing changes yet."""
        form = await _form(request)
        given = self._chosen(form)
        now = self._service.clock()
        which = asking.job_filter(given, now)
        everything = not given
        dry = msgspec.structs.replace(asking.batch(form, which, now, dry_run=True), everything=everything)
        counted = await self._service.change(dry, _who(request), most=COUNTED)
        return self._pages.page(
            request,
            "confirm",
            "jobs",
            {
                "verb": counted.verb.value,
                "count": counted.count,
                "more": not counted.complete,
                "about": counted.about,
                "which": [(name, value) for name, values in given.items() for value in values],
                "everything": everything,
                "back": _local(form.get("back"), request, "jobs"),
            },
        )

    def _chosen(self, form: FormData) -> dict[str, list[str]]:
        if form.get("what") == "chosen":
            ids = [str(value) for value in form.getlist("id")]
            if not ids:
                raise Refused("no job is chosen: tick some, or choose all that match the filter")
            return {"id": ids}
        return {name: values for name, values in asking.asked(form).items() if name != "id"}

    async def begin(self, request: Request) -> Response:
        """Do what was confirmed, in the background; its page shows how far it is."""
        form, now = await _form(request), self._service.clock()
        given = asking.batch(form, asking.job_filter(asking.asked(form), now), now, dry_run=False)
        try:
            begun = await self._service.change(given, _who(request), most=COUNTED)
        except Unconfirmed as problem:
            raise Refused(f"{problem}: look at the number again and confirm it") from None
        return _go(request, f"batches/{begun.id}")

    async def stop_batch(self, request: Request) -> Response:
        await self._service.stop_batch(named(request), _who(request))
        return _go(request, f"batches/{named(request)}")

    # --- one job --------------------------------------------------------------------------------------------

    def change(self, verb: Verb) -> View:
        """The view that does this to one job."""

        async def change(request: Request) -> Response:
            form, id = await _form(request), named(request)
            asked = FormData([*form.multi_items(), ("verb", verb.value)])
            given = asking.batch(asked, JobFilter(), self._service.clock(), dry_run=False)
            done = await self._service.change_one(id, given, _who(request))
            gone = verb is Verb.DELETE and done.changed
            return _go(request, "jobs" if gone else f"jobs/{id}", verb.value if done.changed else "nothing")

        return change

    # --- all else -------------------------------------------------------------------------------------------

    def flow(self, verb: str) -> View:
        """The view that does this to a flow."""

        async def change(request: Request) -> Response:
            done = await self._service.change_flow(named(request), verb, _who(request))
            return _go(request, f"flows/{named(request)}", "flow" if done.changed else "nothing")

        return change

    def queue(self, verb: str) -> View:
        """The view that does this to a queue."""

        async def change(request: Request) -> Response:
            form = await _form(request)
            queue, who = _needed(form, "queue"), _who(request)
            match verb:
                case "pause":
                    await self._service.pause(queue, who)
                case "resume":
                    await self._service.resume(queue, who)
                case _:
                    await self._service.order(queue, _converted(_given(form, "order", "ageing"), OrderGiven), who)
            return _go(request, "queues", verb)

        return change

    async def limit(self, request: Request) -> Response:
        form = await _form(request)
        fields: dict[str, Any] = _given(form, "queue", "task", "concurrency")
        if form.get("each_key") == "yes":
            fields["each_key"] = True
        if form.get("count"):
            fields["rate"] = {"count": str(form["count"]), "per": str(form.get("per") or 1)}
        if not fields.keys() & {"concurrency", "rate"} and form.get("away") != "yes":
            raise Refused("a limit needs a number: how many at once, or how many in which time")
        await self._service.limit(_converted(fields, LimitGiven), _who(request))
        return _go(request, "queues", "limit" if fields.keys() & {"concurrency", "rate"} else "unlimited")

    async def worker(self, request: Request) -> Response:
        worker = _needed(await _form(request), "worker")
        await self._service.ask_to_stop(worker, _who(request))
        return _go(request, "workers", "stop")

    def schedule(self, verb: str) -> View:
        """The view that does this to a schedule."""

        async def change(request: Request) -> Response:
            name, who = _needed(await _form(request), "schedule"), _who(request)
            match verb:
                case "pause":
                    await self._service.pause_schedule(name, who)
                case "resume":
                    await self._service.resume_schedule(name, who)
                case _:
                    sent = await self._service.run_schedule(name, who)
                    return _go(request, f"jobs/{sent.id}", "run")
            return _go(request, "schedules", verb)

        return change


async def _form(request: Request) -> FormData:
    """What was posted. Our forms hold no files, so that nothing but the standard library is needed to read them."""
    try:
        text = (await request.body()).decode()
        return FormData([*parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS)])
    except ValueError:
        raise Refused("this form cannot be read") from None


def _who(request: Request) -> str:
    return identity(request.scope).name


def _needed(form: FormData, name: str) -> str:
    value = form.get(name)
    if not isinstance(value, str) or not value:
        raise Refused(f"this form needs a {name}")
    return value


def _converted(fields: dict[str, Any], wanted: type[T]) -> T:
    try:
        return msgspec.convert(fields, wanted, strict=False)
    except msgspec.ValidationError as problem:
        raise Refused(f"that makes no sense: {problem}") from None


def _given(form: FormData, *names: str) -> dict[str, Any]:
    return {name: str(form[name]) for name in names if form.get(name)}


def _go(request: Request, path: str, told: str = "") -> Response:
    """To the page that shows what came of it; asking for that again changes nothing."""
    said = f"?told={told}" if told else ""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{path}{said}", 303)


def _local(address: Any, request: Request, otherwise: str) -> str:
    """An address of this dashboard: what a form says must not lead elsewhere."""
    base = request.scope.get("root_path", "")
    text = str(address or "")
    parts = urlsplit(text)
    ours = not parts.scheme and not parts.netloc and parts.path.startswith(f"{base}/") and "\\" not in text
    return text if ours else f"{base}/{otherwise}"
