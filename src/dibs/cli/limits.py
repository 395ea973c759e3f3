"""``dibs limits``: list, set, reset."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
import msgspec

from dibs.cli import kinds, show
from dibs.cli.exits import Defaulting, Trouble
from dibs.cli.options import administering, complete_queue, complete_task, json_option, run, store_options
from dibs.clock import system_clock
from dibs.limiting import SetLimit, in_words, limit_in_words, scope_of
from dibs.scope import Limit, Rate, Scope

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Defaulting)
def limits() -> None:
    """List limits, set and reset them: how many jobs may run at once, and how many may start.

    \b
      dibs limits
      dibs limits set --queue mail --concurrency 10 --rate 100/min
      dibs limits set --queue mail --each-key --concurrency 1
      dibs limits set --task charge --concurrency 3
      dibs limits reset --queue mail
    """


@limits.command("list")
@store_options
@json_option
def _list(url: str, as_json: bool) -> None:
    """Show every limit: how far it is used, when the next job may start, and whether code or an operator set it.

    \b
      dibs limits list
      dibs limits list --json | jq '.[] | select(.next_start != null)'
    """
    found = run(_look(url))
    if as_json:
        show.emit([_plain(one) for one in found])
    elif not found:
        click.echo("no limits: declare one with app.limit(…), or dibs limits set")
    else:
        _print(found)


async def _look(url: str) -> list[SetLimit]:
    async with administering(url) as admin:
        return await admin.limits().list()


def _print(found: list[SetLimit]) -> None:
    now, screen = system_clock(), show.console()
    table = show.Grid("SCOPE…", "LIMIT", "IN USE", "NEXT START", "SET BY", "IN CODE?")
    for one in found:
        most = one.limit.concurrency
        of = "" if most is None else f" of {most:,}"
        table.row(
            show.one_line(in_words(one.scope)),
            limit_in_words(one.limit),
            "by key" if one.running is None else f"{one.running:,}{of}",
            _next_start(one, now),
            one.by,
            "" if one.in_code is None or one.in_code == one.limit else limit_in_words(one.in_code),
        )
    show.put(screen, table.fit(screen.width))


def _next_start(one: SetLimit, now: datetime) -> str:
    """When the limit lets in the next job."""
    if one.running is None:
        return "by key"
    if one.limit.concurrency == 0:
        return "never"
    if one.limit.concurrency is not None and one.running >= one.limit.concurrency:
        return "when one ends"
    return "now" if one.next_start is None else show.ago(one.next_start, now)


def _plain(one: SetLimit) -> dict[str, Any]:
    """For programs: the scope spelt out, rates as a count and seconds."""
    return {
        **msgspec.structs.asdict(one.scope),
        "limit": _numbers(one.limit),
        "set_by": one.by,
        "running": one.running,
        "next_start": one.next_start,
        "in_code": None if one.in_code is None else _numbers(one.in_code),
    }


def _numbers(limit: Limit) -> dict[str, Any]:
    rate = limit.rate
    return {
        "concurrency": limit.concurrency,
        "rate": None if rate is None else {"count": rate.count, "per": rate.per.total_seconds()},
    }


# --- changing -------------------------------------------------------------------------------------------------


def _scope_options(command: F) -> F:
    for option in reversed(
        (
            click.option("--queue", shell_complete=complete_queue, help="The jobs of this queue."),
            click.option("--each-key", is_flag=True, help="With --queue: those of each limit key by themselves."),
            click.option("--task", shell_complete=complete_task, help="The jobs of this task, in whatever queue."),
        )
    ):
        command = option(command)
    return command


@limits.command("set")
@_scope_options
@click.option("--concurrency", type=click.IntRange(0, 1_000_000), help="At most so many run at once; 0: none starts.")
@click.option("--rate", type=kinds.PerTime(), metavar="RATE", help="At most so many start: 100/min, 5/s, 10/30s.")
@store_options
@json_option
def _set(
    *,
    queue: str | None,
    each_key: bool,
    task: str | None,
    concurrency: int | None,
    rate: Rate | None,
    url: str,
    as_json: bool,
) -> None:
    """Limit a queue, each key of a queue, or a task, from the next claim on, whatever the code says.

    What is set replaces the whole limit of that scope: name concurrency and rate if you want both. Running jobs go on.

    \b
      dibs limits set --queue mail --concurrency 10
      dibs limits set --queue mail --each-key --concurrency 1 --rate 100/min
      dibs limits set --task charge --rate 5/s
    """
    _say_which(queue, task)
    if concurrency is None and rate is None:
        raise click.UsageError("say how many: --concurrency N, --rate 100/min, or both; reset takes a limit away")

    async def work() -> Limit:
        async with administering(url, create=True) as admin:
            there = admin.limits()
            return await there.set(queue=queue, task=task, each_key=each_key, concurrency=concurrency, rate=rate)

    limit = run(work())
    _tell(as_json, scope_of(queue, task, each_key), limit, "set", f"{limit_in_words(limit)}, from the next claim on")


@limits.command()
@_scope_options
@store_options
@json_option
def reset(*, queue: str | None, each_key: bool, task: str | None, url: str, as_json: bool) -> None:
    """Take away what was set. What the code of workers declares counts again. Exit code 1 if there is no such limit.

    \b
      dibs limits reset --queue mail
      dibs limits reset --queue mail --each-key
      dibs limits reset --task charge
    """
    _say_which(queue, task)
    scope = scope_of(queue, task, each_key)

    async def work() -> Limit | None:
        async with administering(url) as admin:
            if scope not in {one.scope for one in await admin.limits().list()}:
                raise Trouble(
                    f"{in_words(scope)} has no limit: dibs limits shows those that there are", kind="NotFound"
                )
            return await admin.limits().reset(queue=queue, task=task, each_key=each_key)

    back = run(work())
    now = "no limit" if back is None else f"{limit_in_words(back)}, as the code says"
    _tell(as_json, scope, back, "reset", now)


def _say_which(queue: str | None, task: str | None) -> None:
    if (queue is None) == (task is None):
        raise click.UsageError("say what to limit: --queue QUEUE or --task TASK, one of them")


def _tell(as_json: bool, scope: Scope, limit: Limit | None, what: str, meaning: str) -> None:
    if as_json:
        counts = None if limit is None else _numbers(limit)
        show.emit({**msgspec.structs.asdict(scope), "action": what, "limit": counts})
    else:
        click.echo(show.one_line(f"{in_words(scope)}: {what}, {meaning}"))
