"""The command line: thin. It parses, calls what does the work, and prints."""

from collections.abc import Mapping
from typing import ClassVar

import click

from dibs import __version__
from dibs.cli.exits import Commands


class _Dibs(Commands):
    modules: ClassVar[Mapping[str, str]] = {
        name: f"dibs.cli.{name}"
        for name in (
            "work",
            "enqueue",
            "jobs",
            "flows",
            "queues",
            "schedules",
            "workers",
            "why",
            "top",
            "doctor",
            "migrate",
            "bench",
            "serve",
            "token",
            "demo",
            "completion",
        )
    }


@click.group(cls=_Dibs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dibs")
def cli() -> None:
    """A durable job queue for Python, on the database that you already have.

    \b
      dibs work shop.tasks:app                      run workers
      dibs enqueue send_mail -a to=ada@example.com  enqueue a job by hand
      dibs top                                      watch queues and workers
      dibs why JOB                                  what keeps a job from running
      dibs jobs requeue --state failed --since 2h   run again what failed
      dibs serve shop.tasks:app                     API and dashboard

    The store is named by --url, by --app, or by DIBS_URL. Exit codes: 0 fine, 1 something is wrong or not found,
    2 wrong usage, 69 the store cannot be reached, 78 wrong configuration.
    """


def main() -> None:
    """Run the command line; what dibs refuses is one line on standard error, with a code that scripts can use."""
    cli()
