"""Options that several commands take."""

import click

from dibs.stores import DEFAULT_URL

url_option = click.option(
    "--url",
    envvar="DIBS_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="The store: sqlite:///jobs.db, postgresql://…",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
