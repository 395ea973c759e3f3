"""The verbs of ``dibs jobs`` that change jobs: they count first, ask if it is many, and go in chunks."""

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dibs.admin import Admin
from dibs.cli import kinds, show
from dibs.cli.exits import FINE, USAGE, WRONG, Trouble
from dibs.cli.options import administering, chosen, complete_job, filter_options, json_option, run, store_options
from dibs.clock import system_clock
from dibs.job import FINISHED, Cancel, Change, Delete, Filter, Reprioritise, Requeue, Reschedule, State
from dibs.store import CHUNK

NAMED = 20
"""Of so many named jobs that were not changed it is said why."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asked for on the command line."""

    verb: str
    done: str
    which: Filter
    change: Change
    url: str
    dry_run: bool
    yes: bool
    as_json: bool


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; printed as it is with ``--json``."""

    action: str
    dry_run: bool
    count: int
    asked: int = 0
    """How many of them run and were only asked to stop."""
    expired: int = 0
    """How many of them have expired, and would end again at the next claim."""
    unchanged: dict[str, str] = msgspec.field(default_factory=dict)
    """Jobs that were named and not changed, with the reason."""


def changing(things: str, *which: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every verb that changes jobs or flows; ``which`` says how they are named and chosen."""

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            json_option,
            store_options,
            click.option("-y", "--yes", is_flag=True, help="Do not ask, also for many."),
            click.option("--dry-run", is_flag=True, help="Only count: change nothing."),
            click.option("--all", "everything", is_flag=True, help=f"All {things} that the verb applies to."),
            *which,
        ):
            command = option(command)
        return command

    return with_options


_changing = changing(
    "jobs",
    filter_options,
    click.argument("ids", nargs=-1, type=kinds.JobId(), metavar="[JOB]…", shell_complete=complete_job),
)


@click.command()
@click.option("--force", is_flag=True, help="End running jobs at once; their workers are fenced out.")
@_changing
def cancel(force: bool, **given: Any) -> None:
    """End unfinished jobs. Running ones are asked, and stop in a moment, or at the next heartbeat.

    \b
      dibs jobs cancel 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs jobs cancel --queue mail --task send_mail --dry-run
      dibs jobs cancel --key order-7
      dibs jobs cancel --flow 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01 --yes
    """
    _do("cancel", "cancelled", Cancel(force), **given)


@click.command()
@_changing
def requeue(**given: Any) -> None:
    """Send finished jobs back to their queues: due now, attempts from 0.

    \b
      dibs jobs requeue 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs jobs requeue --state failed --finished-since 2h --yes
    """
    if given["everything"] and not given["states"]:
        raise click.UsageError("say which: requeue --all --state failed, or --state succeeded as well if you mean it")
    _do("requeue", "requeued", Requeue(), **given)


@click.command()
@click.option("--run-at", type=kinds.Moment(ahead=True), metavar="WHEN", help="+10m, now, 2030-01-31T14:30Z.")
@click.option("--delay", type=kinds.Span(), metavar="SPAN", help="So long from now: 90s, 5m, 1h30m, 2d.")
@_changing
def reschedule(run_at: datetime | None, delay: timedelta | None, **given: Any) -> None:
    """Set when jobs that have not started are due. A time without a zone is this machine's local time.

    \b
      dibs jobs reschedule 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01 --run-at now
      dibs jobs reschedule --queue reports --delay 8h
    """
    if (run_at is None) == (delay is None):
        raise click.UsageError("say when: --run-at WHEN or --delay SPAN, one of them")
    moment = run_at if delay is None else system_clock() + delay
    assert moment is not None
    _do("reschedule", "rescheduled", Reschedule(moment), **given)


@click.command()
@click.option("--priority", required=True, type=click.IntRange(-32768, 32767), help="Smaller runs first.")
@_changing
def reprioritise(priority: int, **given: Any) -> None:
    """Set the priority of jobs that have not started. Smaller runs first.

    \b
      dibs jobs reprioritise --queue mail --task receipt --priority -100
    """
    _do("reprioritise", "reprioritised", Reprioritise(priority), **given)


@click.command()
@click.option("--force", is_flag=True, help="Running jobs too; their workers are fenced out.")
@_changing
def delete(force: bool, **given: Any) -> None:
    """Remove jobs without a trace. Running ones only with --force.

    \b
      dibs jobs delete --state cancelled --finished-before 30d
      dibs jobs delete --all --dry-run
    """
    _do("delete", "deleted", Delete(force), **given)


COMMANDS: tuple[click.Command, ...] = (cancel, requeue, reschedule, reprioritise, delete)


# --- one way for all of them --------------------------------------------------------------------------------


def _do(
    verb: str,
    done: str,
    change: Change,
    *,
    ids: tuple[UUID, ...],
    url: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    which = chosen(ids=tuple(dict.fromkeys(ids)), **given)
    if which == Filter():
        raise click.UsageError(f"name the jobs to {verb} by id or by filter (--state, --queue, …), or say --all")
    wanted = Wanted(
        verb=verb, done=done, which=which, change=change, url=url, dry_run=dry_run, yes=yes, as_json=as_json
    )
    result = run(_survey(wanted))
    if not dry_run and result.count:
        # Not inside the event loop, which would keep Ctrl-C from whoever is asked.
        _confirm(wanted, result.count)
        result = msgspec.structs.replace(result, count=run(_carry_out(wanted, result.count)))
    if as_json:
        show.emit(result)
    else:
        _tell(wanted, result)
    sys.exit(WRONG if result.unchanged else FINE)


async def _survey(wanted: Wanted) -> Done:
    """What would happen."""
    async with administering(wanted.url) as admin:
        which, change = wanted.which, wanted.change
        count = await admin.change(which, change, dry_run=True)
        return Done(
            action=wanted.verb,
            dry_run=wanted.dry_run,
            count=count,
            asked=await _running(admin, which) if isinstance(change, Cancel) and not change.force else 0,
            expired=await _expired(admin, which) if isinstance(change, Requeue) and count else 0,
            unchanged=await _unchanged(admin, wanted, changed=count),
        )


async def _carry_out(wanted: Wanted, total: int) -> int:
    async with administering(wanted.url) as admin:
        return await _with_bar(admin, wanted, total)


def _confirm(wanted: Wanted, total: int) -> None:
    """Ask before many jobs are changed that nobody named one by one."""
    if not wanted.yes and wanted.which.ids is None and total > 1:
        ask(f"{wanted.verb} {show.plural(total)}", as_json=wanted.as_json)


def ask(what: str, *, as_json: bool) -> None:
    """Go on only if somebody says so: ``what`` is what would happen."""
    if as_json or not sys.stdin.isatty():
        raise Trouble(f"this would {what} and there is nobody to ask: say --yes (nothing was changed)", USAGE, "Usage")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        raise Trouble("nothing was changed", WRONG, "Declined")


async def _with_bar(admin: Admin, wanted: Wanted, total: int) -> int:
    screen = show.console(err=True)
    if total <= CHUNK or wanted.as_json or not screen.is_terminal:
        return await admin.change(wanted.which, wanted.change)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bars:
        bar = bars.add_task(wanted.verb, total=total)

        def advance(done: int, known: int) -> None:
            bars.update(bar, completed=done, total=known)

        return await admin.change(wanted.which, wanted.change, progress=advance)


async def _running(admin: Admin, which: Filter) -> int:
    if which.states is not None and State.RUNNING not in which.states:
        return 0
    return await admin.count(msgspec.structs.replace(which, states=(State.RUNNING,)))


async def _expired(admin: Admin, which: Filter) -> int:
    states = tuple(state for state in State if state in FINISHED and (which.states is None or state in which.states))
    return await admin.expired(msgspec.structs.replace(which, states=states)) if states else 0


async def _unchanged(admin: Admin, wanted: Wanted, changed: int) -> dict[str, str]:
    """Of the jobs that were named: which the verb does not apply to, and why."""
    ids = wanted.which.ids
    if ids is None or changed >= len(ids):
        return {}
    reasons: dict[str, str] = {}
    for id_ in ids:
        job = await admin.get(id_)
        if job is None:
            reasons[str(id_)] = "there is no such job"
        elif job.state not in wanted.change.states:
            states = ", ".join(state for state in State if state in wanted.change.states)
            reasons[str(id_)] = f"it is {job.state}, {wanted.verb} applies to {states}"
        elif not (await admin.page(msgspec.structs.replace(wanted.which, ids=(id_,)), limit=1)).jobs:
            reasons[str(id_)] = "it does not match the filter"
    return reasons


def _tell(wanted: Wanted, result: Done) -> None:
    if wanted.which.ids is None and not result.count:
        click.echo(f"no job to {wanted.verb} matches")
    elif wanted.dry_run:
        click.echo(f"would {wanted.verb} {show.plural(result.count)} (dry run: nothing was changed)")
    else:
        note = f", {result.asked:,} of them run and were asked to stop" if result.asked else ""
        click.echo(f"{wanted.done} {show.plural(result.count)}{note}")
    if result.expired:
        click.echo(f"{show.plural(result.expired)} of them expired, and will end again: enqueue them anew", err=True)
    for at, (id_, reason) in enumerate(result.unchanged.items()):
        if at == NAMED:
            click.echo(f"and {len(result.unchanged) - NAMED:,} more", err=True)
            break
        click.echo(f"{id_}: {reason}", err=True)
