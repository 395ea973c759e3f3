"""``dibs enqueue``: one job, by hand."""

from difflib import get_close_matches
from functools import reduce
from operator import or_
from os import environ
from typing import Any

import click

from dibs.cli import kinds, show
from dibs.cli.locate import load_app
from dibs.cli.options import administering, app_option, complete_queue, complete_task, json_option, resolve_url, run
from dibs.clock import system_clock
from dibs.errors import Refused
from dibs.job import Enqueued, NewJob, OnConflict
from dibs.options import TaskOptions, new_job, replaced
from dibs.task import Tasks


@click.command()
@click.argument("task", shell_complete=complete_task)
@click.argument("plain", nargs=-1, type=kinds.Plain(), metavar="[NAME=VALUE]…")
@click.option("--args", "whole", type=kinds.Json(), metavar="JSON", help="All arguments as a JSON object; - reads it.")
@click.option("-a", "--arg", "single", multiple=True, type=kinds.Pair(), metavar="NAME=VALUE", help="One argument.")
@click.option("--queue", shell_complete=complete_queue, help="[default: the task's with --app, else default]")
@click.option("--priority", type=click.IntRange(-32768, 32767), help="Smaller runs first.")
@click.option("--delay", type=kinds.Span(), metavar="SPAN", help="Not before so long from now: 90s, 5m, 1h30m, 2d.")
@click.option("--run-at", type=kinds.Moment(ahead=True), metavar="WHEN", help="Not before: 2030-01-31T14:30Z.")
@click.option("--key", help="At most one unfinished job of a queue has it.")
@click.option("--unique-for", type=kinds.Span(), metavar="SPAN", help="The key is busy for at least so long.")
@click.option("--on-conflict", type=click.Choice([each.value for each in OnConflict]), help="If the key is busy.")
@click.option("--max-delay", type=kinds.Span(), metavar="SPAN", help="The longest that debounce puts a job off.")
@click.option("--expires-in", type=kinds.Span(), metavar="SPAN", help="Do not start it so long after it was due.")
@click.option("--limit-key", help="Whose job it is, for limits of each key.")
@click.option("--max-attempts", type=click.IntRange(1, 1000), help="How often it may be tried.")
@click.option("--url", metavar="URL", help="The store.  [env: DIBS_URL]")
@app_option(expose_value=True)
@json_option
def enqueue(
    *,
    task: str,
    plain: tuple[Any, ...],
    whole: Any,
    single: tuple[tuple[str, Any], ...],
    url: str | None,
    app: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Enqueue a job of TASK and print its id.

    Its arguments are given by name, or all of them as one JSON object. A value is JSON if it looks like JSON (7, true,
    [1, 2]), else text; 'zip="08000"' is text that looks like a number. With --app the arguments are checked against
    the task before anything is stored, and its queue and other options count.

    \b
      dibs enqueue send_mail to=ada@example.com urgent=true
      dibs enqueue send_mail -a to=ada@example.com -a urgent=true
      dibs enqueue send_mail --args '{"to": "ada@example.com"}' --delay 10m
      dibs enqueue send_mail -a to=ada@example.com --app shop.tasks:app
      echo '{"to": "ada@example.com"}' | dibs enqueue send_mail --args - --key mail-ada
      dibs enqueue rebuild_index --key index --on-conflict debounce --delay 30s --max-delay 5m
      dibs enqueue send_mail -a to=ada@example.com --limit-key acme --expires-in 1h
    """
    args = arguments(whole, single, plain)
    if given["delay"] is not None and given["run_at"] is not None:
        raise click.UsageError("say --delay or --run-at, not both")
    options = {name: value for name, value in given.items() if value is not None}
    path = app or environ.get("DIBS_APP")
    job = _unchecked(task, args, options) if path is None else checked(load_app(path).tasks, task, args, options)
    answer = run(_send(resolve_url(url, app), job))
    if as_json:
        about = {"id": answer.id, "created": answer.created, "changed": answer.changed}
        show.emit({**about, "task": job.task, "queue": job.queue})
        return
    click.echo(answer.id)
    if not answer.created:
        became = "is now this one" if answer.changed else "was not replaced"
        click.echo(f"key {job.key} is busy in queue {job.queue}: the job that has it {became}", err=True)


def arguments(
    whole: Any, single: tuple[tuple[str, Any], ...], plain: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    """All arguments of ``--args`` and ``-a``, and those without either."""
    if whole is not None and not isinstance(whole, dict):
        raise click.UsageError("--args must be a JSON object: '{\"name\": value}'")
    return reduce(or_, [*plain, dict(single)], whole or {})


def _unchecked(task: str, args: dict[str, Any], options: dict[str, Any]) -> NewJob:
    keys = {"key": options.get("key"), "limit_key": options.get("limit_key")}
    return new_job(replaced(TaskOptions(), options), system_clock, task=task, args=args, **keys)


def checked(tasks: Tasks, name: str, args: dict[str, Any], options: dict[str, Any]) -> NewJob:
    """The job of a task of an app; Refused if there is no such task, or if the arguments do not fit it."""
    task = tasks.by_name.get(name)
    if task is None:
        near = get_close_matches(name, tasks.by_name, n=1) or sorted(tasks.by_name)[:5]
        known = f"did you mean {near[0]}?" if len(near) == 1 else f"it has {', '.join(near) or 'none'}"
        raise Refused(f"the app has no task {name!r}: {known}")
    # What came as JSON is read as a worker would read it: text becomes a datetime where the task wants one.
    try:
        positional, named = task.signature.unpack(args)
    except Refused as problem:
        raise Refused(str(problem).replace("the stored arguments do not fit it: ", "")) from None
    return task.options(**options).job(*positional, **named)


async def _send(url: str, job: NewJob) -> Enqueued:
    async with administering(url, create=True) as admin:
        return (await admin.enqueue([job]))[0]
