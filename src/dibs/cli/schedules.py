"""``dibs schedules``: list, show, add, change, pause, resume, remove, run."""

from collections.abc import Callable
from os import environ
from typing import Any, TypeVar

import click
import msgspec

from dibs.cli import kinds, show
from dibs.cli.enqueue import arguments, checked
from dibs.cli.exits import Defaulting
from dibs.cli.locate import load_app
from dibs.cli.options import (
    administering,
    app_option,
    complete_queue,
    complete_schedule,
    complete_task,
    json_option,
    resolve_url,
    run,
    store_options,
)
from dibs.cli.schedule_page import print_list, print_one
from dibs.errors import Refused
from dibs.job import Job, NewJob
from dibs.redaction import Redaction
from dibs.schedule import Schedule
from dibs.schedules import Listed
from dibs.task import Tasks

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = 10
_OF_THE_JOB = ("queue", "priority", "key", "unique_for", "limit_key", "max_attempts")


@click.group(cls=Defaulting)
def schedules() -> None:
    """List schedules, add and change them, pause and resume them.

    \b
      dibs schedules
      dibs schedules show nightly
      dibs schedules add nightly make_report --cron '0 3 * * *' --zone Europe/Berlin
      dibs schedules pause nightly
      dibs schedules run nightly
    """


name_argument = click.argument("name", shell_complete=complete_schedule)


@schedules.command("list")
@store_options
@json_option
def _list(url: str, as_json: bool) -> None:
    """Show every schedule: the next tick and the last, whether it is paused, and where it comes from.

    One in code is run by workers that have it in their code; it is gone when no worker has said so for three minutes.

    \b
      dibs schedules list
      dibs schedules list --json | jq '.[] | select(.paused) | .name'
    """
    found = run(_look(url))
    if as_json:
        show.emit([_plain(listed) for listed in found])
    elif not found:
        click.echo("no schedules: declare one with @app.schedule(…), or dibs schedules add")
    else:
        print_list(found)


async def _look(url: str) -> list[Listed]:
    async with administering(url) as admin:
        redaction = await admin.redaction()
        return [_hidden(one, redaction) for one in await admin.schedules().list(ticks=1)]


def _hidden(listed: Listed, redaction: Redaction) -> Listed:
    """Without the arguments that are secret."""
    if listed.schedule is None:
        return listed
    args = redaction.value(listed.schedule.args, listed.schedule.task)
    return msgspec.structs.replace(listed, schedule=msgspec.structs.replace(listed.schedule, args=args))


@schedules.command("show")
@name_argument
@click.option("-n", "--ticks", type=click.IntRange(1, 1_000), default=_SHOWN, show_default=True, help="How many ticks.")
@store_options
@json_option
def _show(name: str, ticks: int, url: str, as_json: bool) -> None:
    """Show all about the schedule NAME, with its next ticks, in its zone and in UTC. Exit code 1 if there is none.

    \b
      dibs schedules show nightly
      dibs schedules show nightly -n 3 --json | jq -r '.next[]'
    """
    listed, last = run(_look_at(url, name, ticks))
    if as_json:
        show.emit({**_plain(listed), "last_job": None if last is None else {"id": last.id, "state": last.state}})
    else:
        print_one(listed, last)


async def _look_at(url: str, name: str, ticks: int) -> tuple[Listed, Job | None]:
    async with administering(url) as admin:
        listed = await admin.schedules().get(name, ticks=ticks)
        last = await admin.schedules().last_job(listed)
        return _hidden(listed, await admin.redaction()), last


def _plain(listed: Listed) -> dict[str, Any]:
    """For programs: spans of time as seconds."""
    made: dict[str, Any] = {field: getattr(listed, field) for field in listed.__struct_fields__}
    schedule = listed.schedule
    if schedule is not None:
        made["schedule"] = {field: getattr(schedule, field) for field in schedule.__struct_fields__} | {
            "every": None if schedule.every is None else schedule.every.total_seconds(),
            "jitter": schedule.jitter.total_seconds(),
            "unique_for": None if schedule.unique_for is None else schedule.unique_for.total_seconds(),
            "expires_in": None if schedule.expires_in is None else schedule.expires_in.total_seconds(),
            "paused": listed.paused,
        }
    return made


# --- adding and changing --------------------------------------------------------------------------------------


def _rhythm_options(command: F) -> F:
    for option in reversed(
        (
            click.option("--cron", metavar="EXPRESSION", help="Five fields, or @hourly, @daily, @weekly, …"),
            click.option("--every", type=kinds.Span(), metavar="SPAN", help="Instead of --cron: 90s, 5m, 1h30m, 2d."),
            click.option("--zone", help="Whose clock --cron means: Europe/Berlin.  [default: UTC]"),
            click.option("--jitter", type=kinds.Span(), metavar="SPAN", help="Spread the jobs over so long a time."),
            click.option(
                "--missed", type=click.Choice(["skip", "one", "all"]), help="Ticks that nobody was there for."
            ),
            click.option("--overlap", type=click.Choice(["allow", "skip"]), help="skip: no new job beside the last."),
            click.option("--starts-at", type=kinds.Moment(ahead=True), metavar="WHEN", help="No tick before."),
            click.option("--ends-at", type=kinds.Moment(ahead=True), metavar="WHEN", help="No tick from then on."),
            click.option("--expires-in", type=kinds.Span(), metavar="SPAN", help="Start none so long after its tick."),
        )
    ):
        command = option(command)
    return command


def _job_options(command: F) -> F:
    for option in reversed(
        (
            click.option("--args", "whole", type=kinds.Json(), metavar="JSON", help="All arguments as a JSON object."),
            click.option("-a", "--arg", "single", multiple=True, type=kinds.Pair(), metavar="NAME=VALUE", help="One."),
            click.option("--queue", shell_complete=complete_queue, help="Where its jobs go."),
            click.option("--priority", type=click.IntRange(-32768, 32767), help="Smaller runs first."),
            click.option("--key", help="At most one unfinished job of a queue has it."),
            click.option("--unique-for", type=kinds.Span(), metavar="SPAN", help="The key is busy for so long."),
            click.option("--limit-key", help="Whose jobs they are, for limits of each key."),
            click.option("--max-attempts", type=click.IntRange(1, 1000), help="How often a job may be tried."),
            click.option("--url", metavar="URL", help="The store.  [env: DIBS_URL]"),
        )
    ):
        command = option(command)
    return app_option(expose_value=True)(command)


@schedules.command()
@click.argument("name")
@click.argument("task", shell_complete=complete_task)
@_rhythm_options
@_job_options
@click.option("--paused", is_flag=True, help="Have no ticks before it is resumed.")
@click.option("--replace", is_flag=True, help="Put it in the place of a stored one of that name.")
@json_option
def add(*, name: str, task: str, paused: bool, replace: bool, as_json: bool, **given: Any) -> None:
    """Store the schedule NAME, which enqueues a job of TASK at every tick. Any worker runs it, whatever its code.

    With --app the arguments are checked against the task, and its queue and other options count.

    \b
      dibs schedules add nightly make_report --cron '0 3 * * *' --zone Europe/Berlin -a kind=sales
      dibs schedules add poll fetch --every 90s --overlap skip
      dibs schedules add monday make_report --cron '0 6 * * MON' --app shop.tasks:app
    """
    url, tasks, words = _reading(given)
    what = _new_job(task, words, tasks)

    async def work() -> Schedule:
        async with administering(url, create=True) as admin:
            return await admin.schedules(tasks).add(name, what, paused=paused, replace=replace, **words["rhythm"])

    _told(run(work()), url, "added", as_json)


@schedules.command()
@name_argument
@_rhythm_options
@click.option("--forever", is_flag=True, help="Take its end back.")
@click.option("--task", shell_complete=complete_task, help="Another task.")
@_job_options
@json_option
def change(*, name: str, task: str | None, forever: bool, as_json: bool, **given: Any) -> None:
    """Change what you name of a stored schedule; the rest stays. One in code is changed there.

    \b
      dibs schedules change nightly --cron '30 3 * * *'
      dibs schedules change nightly -a kind=staff --queue slow
    """
    url, tasks, words = _reading(given)
    if forever:
        words["rhythm"]["ends_at"] = None

    async def work() -> Schedule:
        async with administering(url) as admin:
            kept = admin.schedules(tasks)
            listed = await kept.get(name)
            what = None
            if listed.schedule is not None and (task is not None or words["job"] or words["args"] is not None):
                what = _changed_job(listed.schedule, task, words, tasks)
            return await kept.change(name, what, **words["rhythm"])

    _told(run(work()), url, "changed", as_json)


def _reading(given: dict[str, Any]) -> tuple[str, Tasks, dict[str, Any]]:
    """Where the store is, the tasks that are known, and what was said of rhythm, job and arguments."""
    url, app = given.pop("url"), given.pop("app")
    path = app or environ.get("DIBS_APP")
    tasks = Tasks() if path is None else load_app(path).tasks
    whole, single = given.pop("whole"), given.pop("single")
    said = {word: value for word, value in given.items() if value is not None}
    job = {word: said.pop(word) for word in _OF_THE_JOB if word in said}
    args = arguments(whole, single) if whole is not None or single else None
    return resolve_url(url, app), tasks, {"rhythm": said, "job": job, "args": args}


def _new_job(task: str, words: dict[str, Any], tasks: Tasks) -> NewJob:
    args = words["args"] or {}
    if tasks.by_name:
        return checked(tasks, task, args, {"delay": None, "run_at": None, **words["job"]})
    return NewJob(task=task, args=args, **words["job"])


def _changed_job(old: Schedule, task: str | None, words: dict[str, Any], tasks: Tasks) -> NewJob:
    """Single arguments are put beside those that are there."""
    args = words["args"]
    if args is not None and task is None and isinstance(old.args, dict):
        args = {**old.args, **args}
    job = NewJob(
        task=task or old.task,
        args=old.args if args is None else args,
        queue=old.queue,
        priority=old.priority,
        max_attempts=old.max_attempts,
        key=old.key,
        unique_for=old.unique_for,
        limit_key=old.limit_key,
        meta=old.meta,
    )
    if tasks.by_name and job.task not in tasks.by_name:
        raise Refused(f"the app has no task {job.task!r}")
    return msgspec.structs.replace(job, **words["job"])


def _told(schedule: Schedule, url: str, done: str, as_json: bool) -> None:
    listed, _ = run(_look_at(url, schedule.name, 1))
    if as_json:
        show.emit(_plain(listed))
        return
    if listed.paused:
        coming = f"paused: dibs schedules resume {schedule.name}"
    else:
        coming = f"next tick {show.utc(listed.next[0])}" if listed.next else "it has no tick ahead"
    click.echo(show.one_line(f"{schedule.name}: {done}, {coming}"))


# --- pausing and the rest -------------------------------------------------------------------------------------


def _verb(url: str, verb: str, name: str) -> Any:
    async def work() -> Any:
        async with administering(url) as admin:
            return await getattr(admin.schedules(), verb)(name)

    return run(work())


def _tell(as_json: bool, names: tuple[str, ...], what: str, meaning: str) -> None:
    if as_json:
        show.emit({"schedules": names, "action": what})
    else:
        click.echo(show.one_line(f"{', '.join(names)}: {what}, {meaning}"))


names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_schedule)


@schedules.command()
@names_argument
@store_options
@json_option
def pause(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Have no more ticks of NAME until it is resumed. Also for schedules in code. Jobs that are there run.

    \b
      dibs schedules pause nightly
    """
    for name in names:
        _verb(url, "pause", name)
    _tell(as_json, names, "paused", "no new jobs until it is resumed")


@schedules.command()
@names_argument
@store_options
@json_option
def resume(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Go on with the next tick of NAME. Those of the pause are not made up for.

    \b
      dibs schedules resume nightly
    """
    for name in names:
        _verb(url, "resume", name)
    _tell(as_json, names, "resumed", "it goes on with its next tick")


@schedules.command()
@names_argument
@store_options
@json_option
def remove(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Forget the stored schedule NAME. Jobs that are there run.

    \b
      dibs schedules remove nightly
    """
    for name in names:
        _verb(url, "remove", name)
    _tell(as_json, names, "removed", "jobs that it made before are left")


@schedules.command("run")
@name_argument
@store_options
@json_option
def _run(name: str, url: str, as_json: bool) -> None:
    """Enqueue a job of NAME as if a tick was due now, also while it is paused, and print its id.

    \b
      dibs schedules run nightly
    """
    handle = _verb(url, "run", name)
    if as_json:
        show.emit({"id": handle.id, "created": handle.created, "schedule": name})
        return
    click.echo(handle.id)
    if not handle.created:
        click.echo("its last job is unfinished, and it must not overlap: this is that job", err=True)
