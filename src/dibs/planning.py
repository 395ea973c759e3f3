"""Steps in the making: what is wrong with one is said where it is written, not when all of them are stored."""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from dibs import limits
from dibs.errors import Refused
from dibs.job import NewJob, NewStep
from dibs.limits.needs import cycle, outside

Needs = str | Iterable[str]
"""The name of a step, or names of several."""


class Steps:
    """Steps that come together: those of a plan, or those that a running step adds."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._steps: dict[str, NewStep] = {}
        self._taken = frozenset(taken)
        self._jobs: dict[UUID, str] = {}
        self._numbers: Counter[str] = Counter()

    def add(self, name: str, job: NewJob, needs: Needs = ()) -> NewStep:
        """One more; Refused if it could never be part of a flow. A need may come later."""
        limits.name(name, "step")
        if name in self._steps or name in self._taken:
            raise Refused(f"there is a step {name!r} already: give each a name of its own")
        _check_job(name, job)
        if (other := self._jobs.get(job.id)) is not None:
            raise Refused(f"steps {other!r} and {name!r} have one and the same job: make a job for each")
        step = NewStep(name=name, job=job, needs=_names(name, needs))
        self._steps[name] = step
        self._jobs[job.id] = name
        return step

    def name_for(self, job: Any) -> str:
        """The name of its task, with a number behind it from the second on."""
        if not isinstance(job, NewJob):
            return "step"  # which ``add`` refuses
        while True:
            self._numbers[job.task] += 1
            number = self._numbers[job.task]
            name = job.task if number == 1 else f"{job.task}-{number}"
            if name not in self._steps and name not in self._taken:
                return name

    @property
    def all(self) -> tuple[NewStep, ...]:
        return tuple(self._steps.values())


def check(flow: str, steps: Iterable[NewStep]) -> None:
    """Refuse what can only be seen when all steps are there: needs that nobody meets, circles, no steps at all."""
    graph = {step.name: step.needs for step in steps}
    if not graph:
        raise Refused(f"flow {flow!r} has no steps: add one with plan.step(…)")
    if unknown := outside(graph):
        name = next(name for name, needs in graph.items() if unknown[0] in needs)
        raise Refused(f"flow {flow!r}: step {name!r} needs {unknown[0]!r}, which is no step of it")
    if around := cycle(graph):
        circle = " needs ".join(repr(name) for name in [*around, around[0]][:10])
        raise Refused(f"flow {flow!r} goes in a circle and could never end: {circle}")


def _check_job(name: str, job: object) -> None:
    if not isinstance(job, NewJob):
        raise Refused(f"step {name!r} must be given a job, not {_what(job)}: write task.job(…)")
    if job.key is not None:
        raise Refused(f"step {name!r} has a key, and its flow runs it once: write {job.task}.options(key=None).job(…)")


def _what(job: object) -> str:
    return repr(job) if type(job).__module__.startswith("dibs.") else type(job).__name__


def _names(name: str, needs: Needs) -> tuple[str, ...]:
    named: tuple[Any, ...] = (needs,) if isinstance(needs, str) else tuple(dict.fromkeys(needs))
    if wrong := next((need for need in named if not isinstance(need, str)), None):
        raise Refused(f"step {name!r}: needs are names of steps, not {type(wrong).__name__}")
    if name in named:
        raise Refused(f"step {name!r} cannot need itself")
    return named
