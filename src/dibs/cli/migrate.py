"""``dibs migrate``: the schema of a SQL store, brought up to date when you say so."""

import asyncio
import json

import click

from dibs.cli.exits import Defaulting
from dibs.cli.options import json_option, store_options
from dibs.stores.schema import open_schema


class _Migrate(Defaulting):
    default = "status"


@click.group(cls=_Migrate)
def migrate() -> None:
    """Create the schema of a store, or bring it up to date.

    Safe while workers run: old and new ones work side by side.

    \b
      dibs migrate up --url postgresql://localhost/shop
      dibs migrate status
      dibs migrate dump > schema.sql
    """


@migrate.command()
@store_options
@json_option
def up(url: str, as_json: bool) -> None:
    """Apply what is pending."""
    applied = asyncio.run(open_schema(url).up())
    if as_json:
        click.echo(json.dumps({"applied": applied}))
    else:
        click.echo(f"applied {', '.join(applied)}" if applied else "nothing to apply: the schema is up to date")


@migrate.command()
@store_options
@json_option
def status(url: str, as_json: bool) -> None:
    """Say which version the store has. Exit code 1 if anything is pending."""
    found = asyncio.run(open_schema(url).status())
    if as_json:
        click.echo(json.dumps({"current": found.current, "latest": found.latest, "pending": found.pending}))
    else:
        click.echo(f"version {found.current or 'none'} of {found.latest}" if found.latest else "this store needs none")
        for name in found.pending:
            click.echo(f"pending: {name} (dibs migrate up)")
    if found.pending:
        raise SystemExit(1)


@migrate.command()
@store_options
def dump(url: str) -> None:
    """Print the schema as the database holds it."""
    click.echo(asyncio.run(open_schema(url).dump()), nl=False)
