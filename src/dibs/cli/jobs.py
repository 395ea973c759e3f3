"""``dibs jobs``: look at jobs, and change one or many."""

from datetime import datetime
from typing import Any
from uuid import UUID

import click
from rich.text import Text

from dibs import why as reasons
from dibs.admin import as_shown
from dibs.cli import changes, kinds, show
from dibs.cli.exits import Defaulting, Trouble
from dibs.cli.job_page import print_job
from dibs.cli.options import administering, chosen, complete_job, filter_options, json_option, run, store_options
from dibs.clock import system_clock
from dibs.job import Filter, Flow, Job, State

NARROW = 76
"""Below so many columns a job takes two lines: its id alone takes 36."""


@click.group(cls=Defaulting)
def jobs() -> None:
    """Look at jobs, and change one or many: by id, or by filter.

    \b
      dibs jobs list --state failed --since 2h
      dibs jobs show JOB
      dibs jobs requeue --state failed --task send_mail --dry-run
    """


for command in changes.COMMANDS:
    jobs.add_command(command)


@jobs.command("list")
@filter_options
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 100_000), help="At most so many.")
@click.option("--after", type=kinds.JobId(), metavar="JOB", help="Go on behind this job.")
@click.option("--ids", is_flag=True, help="Print ids only, for xargs.")
@store_options
@json_option
def _list(limit: int, after: UUID | None, ids: bool, url: str, as_json: bool, **given: Any) -> None:
    """List jobs, newest first.

    \b
      dibs jobs list --state failed --since 2h
      dibs jobs list --queue mail --state queued -n 100
      dibs jobs list --task send_mail --json | jq '.jobs[].args'
      dibs jobs list --key order-7 --ids | xargs dibs jobs cancel
      dibs jobs list --flow 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
    """
    found, total, rest = run(_find(url, chosen(**given), after, limit))
    if as_json:
        show.emit({"jobs": found, "total": total, "after": rest})
    elif ids:
        for job in found:
            click.echo(job.id)
    elif not found:
        click.echo("no job matches")
    else:
        _print(found)
        if rest is not None:
            click.echo(f"{len(found):,} of {total:,}; the rest: --after {rest}, or -n {total}", err=True)


async def _find(url: str, which: Filter, after: UUID | None, limit: int) -> tuple[list[Job], int, UUID | None]:
    async with administering(url) as admin:
        found: list[Job] = []
        whole, redaction = after is None, await admin.redaction()
        while len(found) < limit:
            page = await admin.page(which, after, min(limit - len(found), 1_000))
            found += await as_shown(admin.store, page.jobs, redaction)
            after = page.after
            if after is None:
                break
        return found, len(found) if whole and after is None else await admin.count(which), after


def _print(found: list[Job]) -> None:
    now, screen = system_clock(), show.console()
    if screen.width < NARROW:
        for job in found:
            screen.print(Text.assemble(str(job.id), "  ", show.label(job, now)), no_wrap=True)
            about = f"  {show.one_line(job.task)} in {show.one_line(job.queue)}, {_tries(job)}, {_when(job, now)}"
            screen.print(Text(about), style="bright_black", no_wrap=True, overflow="ellipsis")
        return
    table = show.Grid("JOB", "STATE", "TASK…", "WHEN", "QUEUE…?", ">TRIES?")
    for job in found:
        tries = f"{job.attempts}/{job.max_attempts}"
        table.row(str(job.id), show.label(job, now), job.task, _when(job, now), job.queue, tries)
    show.put(screen, table.fit(screen.width))


def _tries(job: Job) -> str:
    return f"{job.attempts} of {show.plural(job.max_attempts, 'attempt')}"


def _when(job: Job, now: datetime) -> str:
    """The time that matters most in the state that it is in."""
    if job.finished_at is not None:
        return f"ended {show.ago(job.finished_at, now)}"
    if job.state is State.RUNNING:
        return f"started {show.ago(job.started_at, now)}"
    return f"due {show.ago(job.run_at, now)}"


@jobs.command("show")
@click.argument("job", type=kinds.JobId(), shell_complete=complete_job)
@store_options
@json_option
def _show(job: UUID, url: str, as_json: bool) -> None:
    """Show all that is known about JOB. Exit code 1 if there is no such job.

    \b
      dibs jobs show 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs jobs show 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01 --json | jq .errors
    """
    found, flow, reason = run(_look(url, job))
    if found is None:
        raise Trouble(reason.sentence, kind="NotFound")
    if as_json:
        show.emit({"job": found, "flow": flow, "why": reason})
    else:
        print_job(found, flow, reason, system_clock())


async def _look(url: str, job: UUID) -> tuple[Job | None, Flow | None, reasons.Explanation]:
    async with administering(url) as admin:
        redaction, found = await admin.redaction(), await admin.get(job)
        flow = None if found is None or found.flow is None else await admin.flow(found.flow).flow()
        reason = await reasons.why(admin.store, job, admin.clock(), redaction)
        [safe] = [None] if found is None else await as_shown(admin.store, [found], redaction)
        return safe, flow, reason
