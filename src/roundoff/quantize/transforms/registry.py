"""What a transform is, and the table of all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from roundoff.core.plan import Step
from roundoff.graph.load import Model
from roundoff.quantize.agreement import PreparationCheck, check_preparation
from roundoff.quantize.step_report import Participation
from roundoff.quantize.step_table import Chosen, StepTable, WorkContext, check_nodes, options_from

__all__ = ["TABLE", "Job", "Transformed", "all_transforms", "apply_transform", "transform", "transform_names"]

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


TABLE: StepTable[Work] = StepTable("transform")
"""Every transform."""

transform, all_transforms, transform_names = TABLE.step, TABLE.all, TABLE.names


def apply_transform(step: Step, model: Model, context: WorkContext) -> Transformed:
    """Change a float model without changing what it computes; undone where outputs say otherwise.

    Args:
        step: Which transform, with which options, for which nodes.
        model: A prepared float model (`roundoff.graph.preparation`); it is not changed.
        context: What there is to work with.

    Raises:
        BadInput: There is no such transform, option or node, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
        StepFailed: The transform does not get along with it.
    """
    chosen = TABLE.find(step.name)
    job = Job(model, context, options_from(step, chosen.options), check_nodes(step.nodes, model))
    done: Transformed = TABLE.carry_out(step, job)
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
