"""A quantized model, whoever made it: a float model and the quantizers that can be switched on in it."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.quantizer import Quantizer
from roundoff.graph.load import Model

__all__ = ["Oddity", "OddityKind", "QuantizedModel"]

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
    notes: tuple[str, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    preparation: tuple[str, ...] = ()
