"""What a transform is, and the table of all of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from roundoff.core.recipe import Step
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model
from roundoff.quantize.preparation_check import PreparationCheck, check_preparation
from roundoff.quantize.step_options import Chosen, StepOption, check_nodes, options_from
from roundoff.quantize.work_context import Participation, WorkContext

__all__ = ["Job", "Transform", "Transformed", "all_transforms", "apply_transform", "transform", "transform_names"]

# Samples on which the outputs before and after are compared.
_CHECKED_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Transformed:
    """A float model that computes what it did, in another form.

    Attributes:
        model: The model.
        taken: The nodes that took part; empty when nothing was changed.
        notes: What was left as it was and why, and how outputs compare.
    """

    model: Model
    taken: tuple[Participation, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One transform to be done.

    Attributes:
        model: The model; it is not changed.
        context: What there is to work with.
        options: The value of every option.
        nodes: The nodes it is limited to; none for all.
    """

    model: Model
    context: WorkContext
    options: Chosen
    nodes: frozenset[str]


Work = Callable[[Job], Transformed]


@dataclass(frozen=True, slots=True)
class Transform:
    """A change of a float model that keeps its function.

    Attributes:
        name: As users write it.
        summary: What it does, in one sentence.
        options: What can be chosen.
        work: Does it.
    """

    name: str
    summary: str
    options: Mapping[str, StepOption]
    work: Work


_TRANSFORMS: dict[str, Transform] = {}


def transform(name: str, **options: StepOption) -> Callable[[Work], Work]:
    """Register a function as a transform; its docstring's first line is the summary."""

    def register(work: Work) -> Work:
        if name in _TRANSFORMS:
            raise ValueError(f"transform {name!r} is registered twice")
        _TRANSFORMS[name] = Transform(name, (work.__doc__ or "").strip().splitlines()[0], options, work)
        return work

    return register


def all_transforms() -> Iterator[Transform]:
    """Every transform."""
    yield from _TRANSFORMS.values()


def transform_names() -> tuple[str, ...]:
    """Names of all transforms."""
    return tuple(_TRANSFORMS)


def apply_transform(step: Step, model: Model, context: WorkContext) -> Transformed:
    """Change a float model without changing what it computes; undone where outputs say otherwise.

    Args:
        step: Which transform, with which options, for which nodes.
        model: A prepared float model (`roundoff.graph.preparation`); it is not changed.
        context: What there is to work with.

    Raises:
        BadInput: There is no such transform, option or node, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    if step.name not in _TRANSFORMS:
        raise BadInput(f"There is no transform {step.name!r}.", fix=nearest(step.name, _TRANSFORMS))
    chosen = _TRANSFORMS[step.name]
    job = Job(model, context, options_from(step, chosen.options), check_nodes(step.nodes, model))
    done = chosen.work(job)
    if not done.taken:
        return Transformed(model, (), done.notes)
    check = check_preparation(model, done.model, context.samples, count=_CHECKED_SAMPLES, threads=context.threads)
    if check.agrees:
        return Transformed(done.model, done.taken, (*done.notes, _agreement(step, check)))
    undone = f"{step.name} was undone, because it changed what the float model computes"
    return Transformed(model, (), (*done.notes, undone, *check.notes))


def _agreement(step: Step, check: PreparationCheck) -> str:
    worst = max((each.max_abs_error for each in check.outputs), default=0.0)
    same = "bit for bit" if worst == 0 else f"up to float rounding (largest difference {worst:.2g})"
    count = f"{check.samples} sample{'s'[: check.samples != 1]}"
    return f"float outputs after {step.name} equal those before it {same}, {count}"
