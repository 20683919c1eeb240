"""What a correction is, and the table of all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from roundoff.core.plan import Step
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.step_report import Participation
from roundoff.quantize.step_table import Chosen, StepTable, WorkContext, check_nodes, options_from

__all__ = [
    "TABLE",
    "Corrected",
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


TABLE: StepTable[Work] = StepTable("correction")
"""Every correction."""

correction, all_corrections, correction_names = TABLE.step, TABLE.all, TABLE.names


def apply_correction(step: Step, quantized: QuantizedModel, context: WorkContext) -> Corrected:
    """Change the codes of a quantized model so that its layers compute more nearly what the float model does.

    Args:
        step: Which correction, with which options, for which nodes.
        quantized: The quantized model; it is not changed.
        context: What there is to work with.

    Raises:
        BadInput: There is no such correction, option or node, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
        StepFailed: The correction does not get along with it.
    """
    chosen = TABLE.find(step.name)
    options, nodes = options_from(step, chosen.options), check_nodes(step.nodes, quantized.float_model)
    done: Corrected = TABLE.carry_out(step, Task(quantized, context, options, nodes))
    return done
