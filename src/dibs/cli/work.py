"""``dibs work``: run the tasks of an app."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from dibs.app import WORK_URL, App
from dibs.cli import kinds, logs, show
from dibs.cli.locate import load_app
from dibs.cli.options import complete_queue, run
from dibs.cli.reload import reloading
from dibs.draining import held_back
from dibs.errors import ConfigurationError
from dibs.stores import scheme_of
from dibs.telemetry import exposition
from dibs.telemetry.exposition import FLEET
from dibs.worker import Worker, run_process
from dibs.worker.supervisor import NUMBER_VARIABLE, follow_supervisor, supervise

OURS = ("app", "url", "processes", "reload", "log_level", "as_json", "metrics_port", "metrics_host")
"""What is not a setting of the worker itself."""


@click.command()
@click.argument("app", envvar="DIBS_APP", metavar="APP")
@click.option(
    "-q",
    "--queues",
    type=kinds.Queues(),
    metavar="A,B | A=3,B=1",
    shell_complete=complete_queue,
    help="Queues in strict order, or with weights.  [default: those of the app's tasks]",
)
@click.option("-c", "--concurrency", type=click.IntRange(1), metavar="N", help="Jobs at once.  [default: 100]")
@click.option("-p", "--processes", default=1, show_default=True, type=click.IntRange(1, 1000), help="Worker processes.")
@click.option("-n", "--name", help="The worker's name, unlike all others.  [default: host, pid, a random part]")
@click.option("--lease", type=kinds.Span(), metavar="SPAN", help="How long an unrenewed claim lasts.  [default: 30s]")
@click.option("--grace", type=kinds.Span(), metavar="SPAN", help="What SIGTERM leaves to running jobs.  [default: 30s]")
@click.option("--prefetch", type=click.IntRange(0), metavar="N", help="Jobs claimed ahead.  [default: tunes itself]")
@click.option("--drain", is_flag=True, help="End when no job is due, instead of waiting for more.")
@click.option("--reload", is_flag=True, help="Start again when a .py file below this folder changes. For development.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics for Prometheus, /healthz and /readyz there. 0 finds a free port.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="0.0.0.0 in a container.")
@click.option("--url", envvar=WORK_URL, metavar="URL", help="Another store than the app's.")
@click.option("--json", "as_json", is_flag=True, help="Log in JSON, a line each; with --drain, print what was done.")
def work(**given: Any) -> None:
    """Run the tasks of APP (module:app, or module) until stopped.

    SIGTERM or Ctrl-C: finishes what runs within the grace time, gives back the rest. A second one ends it now.
    With --processes, SIGHUP restarts the processes one after the other; one that an operator asked to stop stays away
    until then. Exit code 78: the app cannot be loaded, or
    the configuration is wrong; starting it again does not help.

    \b
      dibs work shop.tasks:app
      dibs work shop.tasks --queues mail,default --concurrency 20
      dibs work shop.tasks --queues mail=3,default=1 --processes 4
      dibs work shop.tasks --processes 4 --metrics-port 9464
      dibs work shop.tasks --drain --json
    """
    logs.configure(given["log_level"], given["as_json"])
    if given["url"] is not None:
        # Not on the command line of a child: that, with the password in it, is there for all to see.
        os.environ[WORK_URL] = given["url"]
    if given["metrics_port"] is not None:
        exposition.require()
    if given["reload"]:
        sys.exit(reloading(_command(given), Path.cwd()))
    if given["processes"] > 1:
        sys.exit(_supervised(given))
    supervisor = follow_supervisor()
    app = load_app(given["app"])
    app.on("startup")(supervisor.ready)
    worker = _worker(app, given)
    logs.belongs_to(worker.name, app.redaction)
    if given["drain"]:
        run(_reach(app))
    with _metrics(worker, given):
        stats = run_process(worker, loop_factory())
    if worker.asked_to_stop:
        supervisor.leave()
    if given["drain"]:
        _say_what_is_left(run(_held_back(app, worker)))
    if given["drain"] and given["as_json"]:
        show.emit(stats)
    if worker.cut_short_by is not None:
        sys.exit(128 + worker.cut_short_by)


def _worker(app: App, given: Mapping[str, Any]) -> Worker:
    if not app.tasks.by_name:
        raise ConfigurationError("the app has no tasks: declare one with @app.task, and name the module that does")
    settings = {name: value for name, value in given.items() if name not in OURS and value is not None}
    settings["until_empty"] = settings.pop("drain")
    number = os.environ.get(NUMBER_VARIABLE)
    if number is not None and "name" in settings:
        settings["name"] += f"-{number}"
    return app.worker(**settings)


async def _reach(app: App) -> None:
    """A worker waits for a store that is away; who wants to empty a queue and go on is told that it is."""
    store = app.open_store()
    try:
        await store.setup()
    finally:
        await store.close()


async def _held_back(app: App, worker: Worker) -> int:
    store = app.open_store()
    try:
        await store.setup()
        return await held_back(store, list(worker.settings.queues), app.tasks.by_name)
    finally:
        await store.close()


def _say_what_is_left(count: int) -> None:
    if count:
        click.echo(f"{show.plural(count, 'due job')} left: limits hold them back (dibs limits)", err=True)


# --- one process --------------------------------------------------------------------------------------------


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed; it is never required."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextmanager
def _metrics(worker: Worker, given: Mapping[str, Any]) -> Iterator[None]:
    """Serve the worker's metrics while it runs: at a port of its own, or at the one of its supervisor."""
    if given["metrics_port"] is None and FLEET not in os.environ:
        yield
        return
    from dibs.telemetry import fleet  # a server's worth of imports, for those who want one
    from dibs.telemetry.serving import MetricsServer

    line = fleet.inherited()
    server: fleet.FleetServer | MetricsServer
    if line is not None:
        server = fleet.FleetServer(worker, line, int(os.environ[NUMBER_VARIABLE]))
    else:
        server = MetricsServer(worker, given["metrics_host"], given["metrics_port"])
    server.start()
    try:
        yield
    finally:
        server.stop()


# --- several, or again and again ----------------------------------------------------------------------------


def _supervised(given: Mapping[str, Any]) -> int:
    if given["url"] is not None and scheme_of(given["url"]) == "memory":
        raise ConfigurationError("memory:// lives in one process: leave out --processes, or use sqlite:///jobs.db")
    host, port, processes = given["metrics_host"], given["metrics_port"], given["processes"]
    with ExitStack() as stack:
        fds = []
        if port is not None:
            from dibs.telemetry import fleet

            fds.append(stack.enter_context(fleet.shared(host, port, processes)))
        return supervise(_command(given), processes, finite=given["drain"], fds=fds)


def _command(given: Mapping[str, Any]) -> list[str]:
    """The same command for one process, without what only the parent does."""
    command = [sys.executable, "-m", "dibs", "work", given["app"], "--log-level", given["log_level"]]
    queues = given["queues"]
    if queues is not None:
        weighed = isinstance(queues, Mapping)
        command += ["--queues", ",".join(f"{name}={queues[name]}" if weighed else name for name in queues)]
    for option in ("concurrency", "name", "prefetch"):
        if given[option] is not None:
            command += [f"--{option}", str(given[option])]
    for option in ("lease", "grace"):
        span: timedelta | None = given[option]
        if span is not None:
            command += [f"--{option}", f"{span.total_seconds()}s"]
    if given["reload"]:
        command += ["--processes", str(given["processes"])]
        if given["metrics_port"] is not None:
            command += ["--metrics-port", str(given["metrics_port"]), "--metrics-host", given["metrics_host"]]
    return command + ["--drain"] * given["drain"] + ["--json"] * given["as_json"]
