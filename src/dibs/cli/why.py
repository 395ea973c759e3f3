"""``dibs why``: one sentence about what keeps a job from running."""

import sys
from uuid import UUID

import click

from dibs import why as reasons
from dibs.cli import kinds, show
from dibs.cli.exits import FINE, WRONG
from dibs.cli.options import administering, complete_job, json_option, run, store_options


@click.command()
@click.argument("job", type=kinds.JobId(), shell_complete=complete_job)
@store_options
@json_option
def why(job: UUID, url: str, as_json: bool) -> None:
    """Say what keeps JOB from running. Exit code 1 if there is no such job.

    \b
      dibs why 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs why 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01 --json | jq -r .reason
    """
    found = run(_why(url, job))
    if as_json:
        show.emit(found)
    else:
        click.echo(show.one_line(found.sentence))
    sys.exit(WRONG if found.reason is reasons.Reason.UNKNOWN else FINE)


async def _why(url: str, job: UUID) -> reasons.Explanation:
    async with administering(url) as admin:
        return await reasons.why(admin.store, job, admin.clock(), await admin.redaction())
