"""A quantized model, whoever made it: a float model and the quantizers that can be switched on in it."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.quantizers import Quantizer
from roundoff.graph.load import Model
from roundoff.graph.wiring import constants
from roundoff.messages.message import Remark

__all__ = [
    "Oddity",
    "OddityKind",
    "QuantizedModel",
    "dequantized_tensors",
]


OddityKind = Literal["disagreement", "not_represented", "dynamic", "interface", "restored"]


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something in the file of a quantized model that a float model and its quantizers do not say.

    Attributes:
        kind: ``disagreement``: what was quantized with one scale is dequantized with another.
            ``not_represented``: it has no quantizer, and was left as it is.
            ``dynamic``: its scale is computed while the model runs, so that it has no quantizer here.
            ``interface``: an input or output is integers in the file, and float here.
            ``restored``: an activation that only the limits of the codes still computed was put back.
        node: The node or tensor it is about, by its name in the float model where it has one there.
        text: What it is, as a sentence without its full stop.
    """

    kind: OddityKind
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A float model with its quantizers.

    Attributes:
        float_model: What is computed with all quantizers off.
        quantizers: In execution order of their tensors.
        notes: What the reader of the model should know: what was assumed or left out.
        oddities: The same for single nodes, for programs.
        preparation: How it was made: what was folded, checked and decided before.
    """

    float_model: Model
    quantizers: tuple[Quantizer, ...]
    notes: tuple[Remark, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    preparation: tuple[Remark, ...] = ()


# What a quantized model says of its own tensors.


def dequantized_tensors(model: Model) -> dict[str, str]:
    """For each tensor that is quantized and dequantized again, the tensor that comes out and is used in its place.

    Quantizers absorb the activation before them: the tensor that keeps the activation's name is then the one
    without it, and only behind the pair does it have the values that the name promises.
    """
    graph = model.proto.graph
    fixed = constants(graph)
    quantized = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in fixed
    }
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantized:
            found.setdefault(quantized[node.input[0]], node.output[0])
    return found
