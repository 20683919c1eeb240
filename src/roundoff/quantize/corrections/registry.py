"""What a correction is, and the table of all of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from roundoff.core.recipe import Step
from roundoff.errors import BadInput, nearest
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.step_options import Chosen, StepOption, check_nodes, options_from
from roundoff.quantize.work_context import Participation, WorkContext

__all__ = [
    "Corrected",
    "Correction",
    "Task",
    "all_corrections",
    "apply_correction",
    "correction",
    "correction_names",
]


@dataclass(frozen=True, slots=True)
class Corrected:
    """A quantized model with other codes; its float model is as it was.

    Attributes:
        quantized: The model.
        taken: The nodes that took part; empty when nothing was changed.
        notes: What was left as it was and why.
    """

    quantized: QuantizedModel
    taken: tuple[Participation, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """One correction to be done.

    Attributes:
        quantized: The model; it is not changed.
        context: What there is to work with.
        options: The value of every option.
        nodes: The nodes it is limited to; none for all.
    """

    quantized: QuantizedModel
    context: WorkContext
    options: Chosen
    nodes: frozenset[str]


Work = Callable[[Task], Corrected]


@dataclass(frozen=True, slots=True)
class Correction:
    """A change of the codes of a quantized model.

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


_CORRECTIONS: dict[str, Correction] = {}


def correction(name: str, **options: StepOption) -> Callable[[Work], Work]:
    """Register a function as a correction; its docstring's first line is the summary."""

    def register(work: Work) -> Work:
        if name in _CORRECTIONS:
            raise ValueError(f"correction {name!r} is registered twice")
        _CORRECTIONS[name] = Correction(name, (work.__doc__ or "").strip().splitlines()[0], options, work)
        return work

    return register


def all_corrections() -> Iterator[Correction]:
    """Every correction."""
    yield from _CORRECTIONS.values()


def correction_names() -> tuple[str, ...]:
    """Names of all corrections."""
    return tuple(_CORRECTIONS)


def apply_correction(step: Step, quantized: QuantizedModel, context: WorkContext) -> Corrected:
    """Change the codes of a quantized model so that its layers compute more nearly what the float model does.

    Args:
        step: Which correction, with which options, for which nodes.
        quantized: The quantized model; it is not changed.
        context: What there is to work with.

    Raises:
        BadInput: There is no such correction, option or node, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    if step.name not in _CORRECTIONS:
        raise BadInput(f"There is no correction {step.name!r}.", fix=nearest(step.name, _CORRECTIONS))
    chosen = _CORRECTIONS[step.name]
    options, nodes = options_from(step, chosen.options), check_nodes(step.nodes, quantized.float_model)
    return chosen.work(Task(quantized, context, options, nodes))
