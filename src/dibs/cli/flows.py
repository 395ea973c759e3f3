"""``dibs flows``: look at flows and their steps, cancel them, run them again."""

from datetime import datetime
from uuid import UUID

import click
from rich.text import Text

from dibs.cli import flow_changes, kinds, show
from dibs.cli.exits import Defaulting, Trouble
from dibs.cli.flow_page import ended, label, print_flow
from dibs.cli.options import administering, complete_flow, json_option, run, store_options
from dibs.clock import system_clock
from dibs.job import Flow, FlowState, Job

NARROW = 76
"""Below so many columns a flow takes two lines: its id alone takes 36."""


@click.group(cls=Defaulting)
def flows() -> None:
    """Look at flows, cancel them, run them again: by id, or by state.

    \b
      dibs flows list --state failed
      dibs flows show FLOW
      dibs flows retry FLOW
    """


for command in flow_changes.COMMANDS:
    flows.add_command(command)


@flows.command("list")
@flow_changes.state_option
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 100_000), help="At most so many.")
@click.option("--after", type=kinds.FlowId(), metavar="FLOW", help="Go on behind this flow.")
@click.option("--ids", is_flag=True, help="Print ids only, for xargs.")
@store_options
@json_option
def _list(*, states: tuple[str, ...], limit: int, after: UUID | None, ids: bool, url: str, as_json: bool) -> None:
    """List flows, newest first.

    \b
      dibs flows list --state running
      dibs flows list --state failed --json | jq '.flows[].name'
      dibs flows list --state failed --ids | xargs dibs flows retry
    """
    found, rest = run(_find(url, flow_changes.read_states(states), after, limit))
    if as_json:
        show.emit({"flows": found, "after": rest})
    elif ids:
        for flow in found:
            click.echo(flow.id)
    elif not found:
        click.echo("no flow matches")
    else:
        _print(found)
        if rest is not None:
            click.echo(f"there are more: --after {rest}, or a larger -n", err=True)


async def _find(
    url: str, states: tuple[FlowState, ...] | None, after: UUID | None, limit: int
) -> tuple[list[Flow], UUID | None]:
    async with administering(url) as admin:
        found: list[Flow] = []
        while len(found) < limit:
            page = await admin.flows(states, after, min(limit - len(found), 1_000))
            found += page.flows
            after = page.after
            if after is None:
                break
        return found, after


def _print(found: list[Flow]) -> None:
    now, screen = system_clock(), show.console()
    if screen.width < NARROW:
        for flow in found:
            screen.print(Text.assemble(str(flow.id), "  ", label(flow)), no_wrap=True)
            about = f"  {show.one_line(flow.name)}, {ended(flow)} steps ended, {_when(flow, now)}"
            screen.print(Text(about), style="bright_black", no_wrap=True, overflow="ellipsis")
        return
    table = show.Grid("FLOW", "STATE", "NAME…", ">STEPS", "WHEN?")
    for flow in found:
        table.row(str(flow.id), label(flow), flow.name, ended(flow), _when(flow, now))
    show.put(screen, table.fit(screen.width))


def _when(flow: Flow, now: datetime) -> str:
    if flow.finished_at is not None:
        return f"ended {show.ago(flow.finished_at, now)}"
    return f"created {show.ago(flow.created_at, now)}"


@flows.command("show")
@click.argument("flow", type=kinds.FlowId(), shell_complete=complete_flow)
@store_options
@json_option
def _show(flow: UUID, url: str, as_json: bool) -> None:
    """Show FLOW and its steps: what each needs, its state, its times, its last error. Exit code 1 if there is none.

    \b
      dibs flows show 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs flows show 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01 --json | jq '.steps[] | .step, .state'
    """
    found, steps = run(_look(url, flow))
    if found is None or not steps:
        raise Trouble(f"there is no flow {flow}: it never was, or its jobs were deleted or pruned", kind="NotFound")
    if as_json:
        show.emit({"flow": found, "steps": steps})
    else:
        print_flow(found, steps, system_clock())


async def _look(url: str, flow: UUID) -> tuple[Flow | None, list[Job]]:
    async with administering(url) as admin:
        handle, redaction = admin.flow(flow), await admin.redaction()
        steps = (await handle.steps()).values()
        secrets = redaction.secrets(steps)
        return await handle.flow(), [redaction.job(step, secrets) for step in steps]
