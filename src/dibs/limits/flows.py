"""What a flow may hold: steps by the rules of jobs, with names, and with needs that can be met."""

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.job import FlowState, NewFlow, NewJob, NewStep, OnFailure
from dibs.limits import needs
from dibs.limits.basics import BULK, DEFAULT, ERROR_LENGTH, Limits, clean, job_id, meta_json, name, within
from dibs.limits.jobs import Admitted, admit_one


class AdmittedStep(msgspec.Struct, frozen=True):
    """A step that passed."""

    name: str
    needs: tuple[str, ...]
    job: Admitted


class AdmittedFlow(msgspec.Struct, frozen=True):
    """A flow that passed: what a store's start works on."""

    id: UUID
    name: str
    on_failure: OnFailure
    meta: str
    steps: tuple[AdmittedStep, ...]


def flow(new: NewFlow, limits: Limits = DEFAULT) -> AdmittedFlow:
    """Check a flow with all of its steps; only whether its ids are new is left to the store."""
    job_id(new.id)
    admitted = steps(new.steps, limits)
    if unknown := needs.outside({step.name: step.needs for step in admitted}):
        raise Refused(f'"{unknown[0]}" is needed and is no step of the flow')
    return AdmittedFlow(
        new.id, name(new.name, "flow"), on_failure(new.on_failure), meta_json(new.meta, limits), admitted
    )


def steps(new: Sequence[NewStep], limits: Limits = DEFAULT) -> tuple[AdmittedStep, ...]:
    """Check steps that come together. They may need what is none of them: see ``needs.outside``."""
    if not isinstance(new, list | tuple):
        raise Refused(f"steps must be a list or a tuple of NewStep, not {type(new).__name__}")
    within(len(new), (1, BULK), "the number of steps")
    admitted = tuple(_step(step, limits) for step in new)
    graph = {step.name: step.needs for step in admitted}
    if len(graph) < len(admitted) or len({step.job.id for step in admitted}) < len(admitted):
        raise Refused("each step must have a name and a job id of its own")
    if around := needs.cycle(graph):
        raise Refused(f"these steps need each other in a circle: {clean(', '.join(around), ERROR_LENGTH // 2)}")
    return admitted


def _step(step: object, limits: Limits) -> AdmittedStep:
    if not (isinstance(step, NewStep) and isinstance(step.job, NewJob)):
        raise Refused(f"a step must be a dibs.job.NewStep with a NewJob, not {type(step).__name__}")
    if step.job.key is not None:
        raise Refused("a step must have no key: its flow runs it once")
    if not isinstance(step.needs, list | tuple):
        raise Refused(f"needs must be a list or a tuple of names, not {type(step.needs).__name__}")
    needed = tuple(name(need, "need") for need in step.needs)
    if len(set(needed)) < len(needed):
        raise Refused("a step must name each of its needs once")
    return AdmittedStep(name(step.name, "step"), needed, admit_one(step.job, limits))


def on_failure(value: object) -> OnFailure:
    """One of the two ways in which a flow takes a failure."""
    if value not in tuple(OnFailure):
        raise Refused(f"on_failure must be one of {', '.join(OnFailure)}, not {value!r}")
    return OnFailure(str(value))


def flow_states(values: Collection[FlowState] | None) -> frozenset[FlowState]:
    """Which flows to list: those in these states, or in any."""
    if wrong := [value for value in values or () if value not in tuple(FlowState)]:
        raise Refused(f"a flow's state must be one of {', '.join(FlowState)}, not {wrong[0]!r}")
    return frozenset(FlowState if values is None else map(FlowState, values))


# What only the store can know to be wrong with steps, in the same words everywhere. Stores that look inside a
# script have these words there.
NO_STEP = "the steps cannot be added: this job is no step of a flow"


def known_name(step: str) -> str:
    return f'the steps cannot be added: the flow has a step "{step}" already'


def other_adder(step: str) -> str:
    return f'the steps cannot be added: "{step}" is needed and is neither one of them nor the step that adds them'


def known_job(job: UUID) -> str:
    return f"a step has the id {job} of a job that is there already: give it a new one"
