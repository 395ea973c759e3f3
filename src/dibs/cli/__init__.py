"""The command line: thin. It parses, calls what does the work, and prints."""

import sys

import click

from dibs import __version__
from dibs.cli.demo import demo
from dibs.cli.migrate import migrate
from dibs.errors import DibsError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dibs")
def cli() -> None:
    """A durable job queue for Python, on the database that you already have."""


cli.add_command(demo)
cli.add_command(migrate)


def main() -> None:
    """Run the command line; what dibs refuses is one line on standard error, and exit code 1."""
    try:
        cli()
    except DibsError as problem:
        click.echo(f"dibs: {problem}", err=True)
        sys.exit(1)
