"""A quantized model, whoever made it: a float model and the quantizers that can be switched on in it."""

from dataclasses import dataclass

from roundoff.core.quantizer import Quantizer
from roundoff.graph.load import Model

__all__ = ["QuantizedModel"]


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A float model with its quantizers.

    Attributes:
        float_model: What is computed with all quantizers off.
        quantizers: In execution order of their tensors.
        notes: What the reader of the model should know: what was rewritten, assumed or left out.
    """

    float_model: Model
    quantizers: tuple[Quantizer, ...]
    notes: tuple[str, ...] = ()
