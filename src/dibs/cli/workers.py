"""``dibs workers``: who works here, and who has not been seen for a while."""

import sys

import click
from rich.text import Text

from dibs.admin import Worker
from dibs.cli import show
from dibs.cli.exits import FINE, WRONG
from dibs.cli.options import administering, json_option, run, store_options
from dibs.clock import system_clock


@click.command(short_help="List the workers, alive or not.")
@click.option("--live", is_flag=True, help="Only those that are alive. Exit code 1 if there is none.")
@store_options
@json_option
def workers(live: bool, url: str, as_json: bool) -> None:
    """List the workers: alive or not, what they serve, how many jobs they hold.

    \b
      dibs workers
      dibs workers --live --json
    """
    found = [worker for worker in run(_list(url)) if worker.live or not live]
    if as_json:
        show.emit(found)
    elif not found:
        click.echo("no workers: start one with dibs work APP")
    else:
        _print(found)
    sys.exit(WRONG if live and not found else FINE)


async def _list(url: str) -> list[Worker]:
    async with administering(url) as admin:
        return await admin.workers()


def _print(found: list[Worker]) -> None:
    now, screen = system_clock(), show.console()
    table = show.Grid("WORKER…", "STATE", "SEEN", ">HOLDS", ">SLOTS?", "QUEUES…", ">TASKS?", "HOST…?")
    for worker in found:
        host = worker.info.get("host")
        table.row(
            show.one_line(worker.name),
            liveness(worker),
            show.ago(worker.seen_at, now),
            str(worker.running),
            slots(worker),
            served(worker),
            "?" if worker.tasks is None else str(len(worker.tasks)),
            "–" if host is None else show.one_line(f"{host}:{worker.info.get('pid', '?')}"),
        )
    show.put(screen, table.fit(screen.width))


def liveness(worker: Worker) -> Text:
    """Alive; ended, holding nothing; or lost, with jobs that others have to take over."""
    if worker.live:
        return Text("live", style="green")
    return Text("lost", style="red") if worker.running else Text("ended", style="bright_black")


def served(worker: Worker) -> str:
    """The queues that it takes jobs of."""
    return "?" if worker.queues is None else ",".join(worker.queues) or "–"


def slots(worker: Worker) -> str:
    """How many jobs it runs at once; it may hold a few more, claimed ahead."""
    return "?" if worker.concurrency is None else str(worker.concurrency)
