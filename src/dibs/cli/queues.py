"""``dibs queues``: list, pause, resume, and the order of their jobs."""

from collections.abc import Sequence
from datetime import timedelta

import click
from rich.text import Text

from dibs.admin import Admin, Queue
from dibs.cli import kinds, show
from dibs.cli.exits import Defaulting
from dibs.cli.options import administering, complete_queue, json_option, run, store_options
from dibs.clock import system_clock
from dibs.job import Filter, Order, State


@click.group(cls=Defaulting)
def queues() -> None:
    """List queues, pause and resume them.

    \b
      dibs queues
      dibs queues pause mail
      dibs queues resume mail
      dibs queues order mail lifo
      dibs queues order mail fifo --ageing 10s
    """


@queues.command("list")
@store_options
@json_option
def _list(url: str, as_json: bool) -> None:
    """Show every queue: how many jobs in each state, how late the oldest is, who serves it.

    \b
      dibs queues list
      dibs queues list --json | jq '.[] | select(.due > 1000) | .name'
    """
    found = run(_look(url))
    if as_json:
        show.emit(found)
    elif not found:
        click.echo("no queues yet: the first job of a queue makes it")
    else:
        _print(found)


async def _look(url: str) -> list[Queue]:
    async with administering(url) as admin:
        return await admin.queues()


def _print(found: list[Queue]) -> None:
    now, screen = system_clock(), show.console()
    table = show.Grid("QUEUE…", ">DUE", ">SCHED?", ">RUN", ">DONE?", ">FAIL", ">WORKERS", "OLDEST", "")
    for queue in found:
        table.row(
            show.one_line(queue.name),
            f"{queue.due:,}",
            f"{queue.scheduled + queue.states[State.WAITING]:,}",
            f"{queue.states[State.RUNNING]:,}",
            f"{queue.states[State.SUCCEEDED]:,}",
            Text(f"{queue.states[State.FAILED]:,}", style="red" if queue.states[State.FAILED] else ""),
            Text(str(len(queue.workers)), style="red" if queue.due and not queue.workers else ""),
            "–" if queue.oldest_due is None else show.span(now - queue.oldest_due),
            marks(queue),
        )
    show.put(screen, table.fit(screen.width))


def marks(queue: Queue) -> Text:
    """What is unusual about the queue."""
    ageing = [] if queue.ageing is None else [f"ages {show.span(queue.ageing)}"]
    words = ["paused"] * queue.paused + ["lifo"] * (queue.order is Order.LIFO) + ageing
    return Text(" ".join(words), style="yellow")


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="QUEUE…", shell_complete=complete_queue)
@store_options
@json_option
def pause(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Give out no more jobs of QUEUE. Those that run go on.

    \b
      dibs queues pause mail reports
    """
    unknown = run(_change(url, "pause", names))
    _tell(as_json, names, "paused", "running jobs go on, nothing new starts", unknown)


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="QUEUE…", shell_complete=complete_queue)
@store_options
@json_option
def resume(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Give out jobs of QUEUE again.

    \b
      dibs queues resume mail
    """
    unknown = run(_change(url, "resume", names))
    _tell(as_json, names, "resumed", "workers take its jobs again", unknown)


@queues.command()
@click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
@click.argument("order", type=click.Choice([order.value for order in Order]))
@click.option("--ageing", type=kinds.Span(), metavar="SPAN", help="Every so long a due job is worth one priority more.")
@store_options
@json_option
def order(name: str, order: str, ageing: timedelta | None, url: str, as_json: bool) -> None:
    """Hand out the oldest (fifo) or the newest (lifo) of jobs of equal priority first.

    With --ageing, in a fifo queue, jobs of a low priority run in the end, however many urgent ones come. Without it
    the queue does not age, whatever was set before.

    \b
      dibs queues order mail lifo
      dibs queues order mail fifo --ageing 10s
    """

    async def work() -> None:
        async with administering(url, create=True) as admin:
            await admin.order(name, Order(order), ageing)

    run(work())
    aged = "" if ageing is None else f", one priority more for every {show.span(ageing)} of waiting"
    _tell(as_json, (name,), f"{Order(order).value}{aged}", "from the next claim on")


async def _change(url: str, verb: str, names: tuple[str, ...]) -> list[str]:
    """Do it, and answer which of them no job is in: a queue may be paused before its first one, or be mistyped."""
    async with administering(url, create=True) as admin:
        change = {"pause": Admin.pause, "resume": Admin.resume}[verb]
        for name in names:
            await change(admin, name)
        return [name for name in names if not (await admin.page(Filter(queues=(name,)), limit=1)).jobs]


def _tell(as_json: bool, names: tuple[str, ...], what: str, meaning: str, unknown: Sequence[str] = ()) -> None:
    if as_json:
        show.emit({"queues": names, "action": what})
    else:
        click.echo(f"{', '.join(names)}: {what}, {meaning}")
    for name in unknown:
        click.echo(f"note: there is no job in {name} yet: see 'dibs queues' for the names of all", err=True)
