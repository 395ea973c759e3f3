"""The verbs of ``dibs flows`` that change flows: they count first, ask if it is many, and go flow by flow."""

import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import click
import msgspec

from dibs.admin import Admin
from dibs.cli import kinds, show
from dibs.cli.changes import ask, changing
from dibs.cli.exits import FINE, WRONG
from dibs.cli.options import administering, complete_flow, run
from dibs.job import Flow, FlowState, State

state_option = click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in FlowState]),
    multiple=True,
    help="In this state.",
)


def read_states(states: tuple[str, ...]) -> tuple[FlowState, ...] | None:
    """The states that the option says; None for all."""
    return tuple(FlowState(state) for state in states) or None


class Verb(msgspec.Struct, frozen=True):
    """What is done to a flow, and to which it applies."""

    name: str
    done: str
    misfit: Callable[[Flow], str | None]
    """Why it does not apply to the flow; None if it does."""
    apply: Callable[[Admin, UUID], Any]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; printed as it is with ``--json``."""

    action: str
    dry_run: bool
    flows: int
    """How many flows were changed, or would be."""
    unchanged: dict[str, str] = msgspec.field(default_factory=dict)
    """Flows that were named and not changed, with the reason."""


_changing = changing(
    "flows",
    state_option,
    click.argument("ids", nargs=-1, type=kinds.FlowId(), metavar="[FLOW]…", shell_complete=complete_flow),
)


@click.command()
@click.option("--force", is_flag=True, help="End running steps at once; their workers are fenced out.")
@_changing
def cancel(force: bool, **given: Any) -> None:
    """Cancel all unfinished steps of flows. Running ones are asked, and stop at the next heartbeat.

    \b
      dibs flows cancel 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs flows cancel --state running --dry-run
    """

    def misfit(flow: Flow) -> str | None:
        return None if flow.finished_at is None else f"it has ended: {flow.state}"

    _do(Verb("cancel", "cancelled", misfit, lambda admin, flow: admin.flow(flow).cancel(force=force)), **given)


@click.command()
@_changing
def retry(**given: Any) -> None:
    """Run again those steps of flows that failed or were cancelled. What succeeded stays as it is.

    \b
      dibs flows retry 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs flows retry --state failed --yes
    """

    def misfit(flow: Flow) -> str | None:
        again = flow.steps[State.FAILED] + flow.steps[State.CANCELLED]
        return None if again else f"it is {flow.state}, and no step of it failed or was cancelled"

    _do(Verb("retry", "retried", misfit, lambda admin, flow: admin.flow(flow).retry()), **given)


@click.command()
@_changing
def restart(**given: Any) -> None:
    """Run whole flows again, from their first steps. Only flows that have ended.

    \b
      dibs flows restart 0192f0c8-2f6e-7cc3-9a51-2f3e7d6b8a01
      dibs flows restart --state cancelled --dry-run
    """
    if given["everything"] and not given["states"]:
        raise click.UsageError("say which: restart --all --state failed, or --state succeeded as well if you mean it")

    def misfit(flow: Flow) -> str | None:
        return f"it is {flow.state} and has not ended: cancel it first" if flow.finished_at is None else None

    _do(Verb("restart", "restarted", misfit, lambda admin, flow: admin.flow(flow).restart()), **given)


COMMANDS: tuple[click.Command, ...] = (cancel, retry, restart)


# --- one way for all of them --------------------------------------------------------------------------------


def _do(
    verb: Verb,
    *,
    ids: tuple[UUID, ...],
    states: tuple[str, ...],
    everything: bool,
    url: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if not ids and not states and not everything:
        raise click.UsageError(f"name the flows to {verb.name} by id or by --state, or say --all")
    chosen, unchanged = run(_choose(url, verb, ids, read_states(states)))
    if chosen and not dry_run:
        if not yes and not ids and len(chosen) > 1:
            # Not inside the event loop, which would keep Ctrl-C from whoever is asked.
            ask(f"{verb.name} {show.plural(len(chosen), 'flow')}", as_json=as_json)
        run(_carry_out(url, verb, chosen))
    result = Done(action=verb.name, dry_run=dry_run, flows=len(chosen), unchanged=unchanged)
    if as_json:
        show.emit(result)
    else:
        _tell(verb, result, named=bool(ids))
    sys.exit(WRONG if unchanged else FINE)


async def _choose(
    url: str, verb: Verb, ids: tuple[UUID, ...], states: tuple[FlowState, ...] | None
) -> tuple[list[UUID], dict[str, str]]:
    """The flows to change; and of those that were named the others, each with the reason."""
    async with administering(url) as admin:
        if not ids:
            return [flow.id async for flow in admin.every_flow(states) if verb.misfit(flow) is None], {}
        chosen, unchanged = list[UUID](), dict[str, str]()
        for id_ in dict.fromkeys(ids):
            flow = await admin.flow(id_).flow()
            reason = "there is no such flow" if flow is None else verb.misfit(flow)
            if flow is not None and states is not None and flow.state not in states:
                reason = f"it is {flow.state}, not {' or '.join(states)}"
            if reason is None:
                chosen.append(id_)
            else:
                unchanged[str(id_)] = reason
        return chosen, unchanged


async def _carry_out(url: str, verb: Verb, chosen: list[UUID]) -> None:
    async with administering(url) as admin:
        for flow in chosen:
            await verb.apply(admin, flow)


def _tell(verb: Verb, result: Done, *, named: bool) -> None:
    if not named and not result.flows:
        click.echo(f"no flow to {verb.name} matches")
    elif result.dry_run:
        click.echo(f"would {verb.name} {show.plural(result.flows, 'flow')} (dry run: nothing was changed)")
    else:
        click.echo(f"{verb.done} {show.plural(result.flows, 'flow')}")
    for id_, reason in result.unchanged.items():
        click.echo(f"{id_}: {reason}", err=True)
