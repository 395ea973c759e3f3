"""Options that several commands take, and how a command gets to its store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from os import environ
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from dibs.admin import Admin
from dibs.cli import kinds
from dibs.errors import ConfigurationError
from dibs.job import Filter, State
from dibs.redaction import Redaction
from dibs.stores import DEFAULT_URL, open_store, scheme_of
from dibs.stores.schema import open_schema

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

COMPLETION_PATIENCE = 1.0


def resolve_url(url: str | None, app: str | None) -> str:
    """Where the store is: ``--url``, or the app's, or ``DIBS_URL``, or the default."""
    if url is not None:
        return url
    if app is None and not environ.get("DIBS_URL"):
        app = environ.get("DIBS_APP") or None
    if app is not None:
        from dibs.cli.locate import load_app

        return load_app(app).url
    return environ.get("DIBS_URL") or DEFAULT_URL


def _resolve(context: click.Context, parameter: click.Parameter, url: str | None) -> str:
    if context.resilient_parsing:  # a shell completes: nobody's code is run for that
        return url or environ.get("DIBS_URL") or DEFAULT_URL
    return resolve_url(url, context.meta.get("dibs.app"))


def _remember_app(context: click.Context, parameter: click.Parameter, app: str | None) -> str | None:
    context.meta["dibs.app"] = app
    return app


def store_options(command: F) -> F:
    """``--url`` and ``--app``; the command gets ``url``."""
    command = click.option(
        "--url",
        metavar="URL",
        callback=_resolve,
        help=f"The store: sqlite:///jobs.db, postgresql://…, redis://…  [env: DIBS_URL; default: {DEFAULT_URL}]",
    )(command)
    return app_option(expose_value=False)(command)


def app_option(*, expose_value: bool) -> Callable[[F], F]:
    """``--app``: where else the URL can come from."""
    return click.option(
        "--app",
        metavar="MODULE:APP",
        is_eager=True,
        expose_value=expose_value,
        callback=_remember_app,
        help="Take the URL from this app.  [env: DIBS_APP]",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work."""
    return asyncio.run(work)


@asynccontextmanager
async def administering(url: str, *, create: bool = False) -> AsyncIterator[Admin]:
    """The operator's service on the store at a URL. A file that is not there is not created by looking."""
    scheme = scheme_of(url)
    if scheme == "memory":
        raise ConfigurationError("memory:// keeps jobs inside one process: name the store that you mean with --url")
    if scheme == "sqlite" and not create:
        try:
            await open_schema(url).status()
        except ConfigurationError as problem:
            raise ConfigurationError(f"{problem}, or name another store with --url or DIBS_URL") from None
    store = open_store(url)
    try:
        await store.setup()
        yield Admin(store, redaction=_marked())
    finally:
        await store.close()


def _marked() -> Redaction:
    """What the app marks as secret that was named; without one, what workers tell counts."""
    context = click.get_current_context(silent=True)
    app = None if context is None else context.meta.get("dibs.app")
    if app is None:
        return Redaction()
    from dibs.cli.locate import load_app

    return load_app(app).redaction


# --- which jobs ---------------------------------------------------------------------------------------------


def filter_options(command: F) -> F:
    """The options that choose jobs; the command gets them as keywords for ``chosen``."""
    for option in reversed(
        (
            click.option(
                "--state",
                "states",
                type=click.Choice([state.value for state in State]),
                multiple=True,
                help="In this state.",
            ),
            click.option("--queue", "queues", multiple=True, shell_complete=complete_queue, help="In this queue."),
            click.option("--task", "tasks", multiple=True, shell_complete=complete_task, help="Of this task."),
            click.option("--key", "keys", multiple=True, help="With this key."),
            click.option(
                "--flow",
                "flows",
                type=kinds.FlowId(),
                multiple=True,
                shell_complete=complete_flow,
                help="A step of it.",
            ),
            click.option("--worker", "workers", multiple=True, shell_complete=complete_worker, help="Last held by it."),
            click.option("--since", "created_since", type=kinds.Moment(), metavar="WHEN", help="Created since: 2h, …"),
            click.option("--before", "created_before", type=kinds.Moment(), metavar="WHEN", help="Created before."),
            click.option("--finished-since", type=kinds.Moment(), metavar="WHEN", help="Finished since."),
            click.option("--finished-before", type=kinds.Moment(), metavar="WHEN", help="Finished before."),
        )
    ):
        command = option(command)
    return command


def chosen(**given: Any) -> Filter:
    """The filter that the options of ``filter_options`` say."""
    fields = {name: value for name, value in given.items() if value not in (None, (), False)}
    if "states" in fields:
        fields["states"] = tuple(State(state) for state in fields["states"])
    return Filter(**fields)


# --- completion: what is cheap to ask, and silence when it is not ------------------------------------------


def _completer(look: Callable[[Admin], Coroutine[Any, Any, set[str]]]) -> Callable[..., list[CompletionItem]]:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        async def ask() -> set[str]:
            url = context.params.get("url") or environ.get("DIBS_URL") or DEFAULT_URL
            async with asyncio.timeout(COMPLETION_PATIENCE), administering(url) as admin:
                return await look(admin)

        try:
            names = asyncio.run(ask())
        except Exception:  # a shell that waits for a completion wants no errors
            return []
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]

    return complete


async def _queues(admin: Admin) -> set[str]:
    return {queue.name for queue in await admin.queues()}


async def _tasks(admin: Admin) -> set[str]:
    seen = {task for worker in await admin.workers() for task in worker.tasks or ()}
    return seen | {job.task for job in (await admin.page(Filter(), limit=100)).jobs}


async def _workers(admin: Admin) -> set[str]:
    return {worker.name for worker in await admin.workers()}


async def _jobs(admin: Admin) -> set[str]:
    return {str(job.id) for job in (await admin.page(Filter(), limit=50)).jobs}


async def _flows(admin: Admin) -> set[str]:
    return {str(flow.id) for flow in (await admin.flows(limit=50)).flows}


async def _schedules(admin: Admin) -> set[str]:
    return {schedule.name for schedule in await admin.schedules().list(ticks=0)}


complete_schedule = _completer(_schedules)
complete_queue = _completer(_queues)
complete_task = _completer(_tasks)
complete_worker = _completer(_workers)
complete_job = _completer(_jobs)
complete_flow = _completer(_flows)
