"""The tensors a layer-by-layer run has a row for, and what is known of them before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.plan import FLOAT
from roundoff.core.quantizers import Consumer, Quantizer, representable_range
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value
from roundoff.graph.units import Units, units
from roundoff.measure.light_pairs import Range
from roundoff.run.variants import written_quantizers

__all__ = [
    "FUSED",
    "LayerTensor",
    "layer_tensors",
]

FUSED = "fused"
"""Instead of a type: the tensor never leaves its unit."""


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """One tensor that a node computes, or an input of the network.

    Attributes:
        value: Its name, node, type and shape.
        unit: First node of the unit it is computed in; empty for inputs.
        quantized: dtype of its codes, ``float`` or ``fused``.
        quantizer: By which it is written; None when it is not quantized.
        output: Whether it is an output of the network.
    """

    value: Value
    unit: str
    quantized: str
    quantizer: Quantizer | None
    output: bool

    @property
    def name(self) -> str:
        """Its name."""
        return self.value.name

    @property
    def levels(self) -> int | None:
        """How many codes its quantizer has."""
        spec = None if self.quantizer is None else self.quantizer.spec
        return None if spec is None else spec.code_max - spec.code_min + 1

    @property
    def limits(self) -> Range | None:
        """What its quantizer can represent."""
        if self.quantizer is None:
            return None
        params, spec = self.quantizer.params, self.quantizer.spec
        low, high = representable_range(params, spec)
        half = params.scale.astype(np.float64) / 2
        # Within half a step of a code it is rounding, not clipping.
        # Limits beyond what float32 holds are infinite: nothing is clipped there.
        with np.errstate(over="ignore"):
            parts = [np.asarray(part, dtype=np.float32) for part in (low - half, high + half, params.scale)]
        per_slice = self.axis is not None
        return Range(*(part if per_slice else part.reshape(()) for part in parts))

    @property
    def axis(self) -> int | None:
        """The axis along which its quantizer has one scale per slice; None when there is one for all."""
        if self.quantizer is None or self.quantizer.params.scale.size == 1:
            return None
        return self.quantizer.spec.axis


def layer_tensors(quantized: QuantizedModel, everything: Sequence[Value]) -> tuple[LayerTensor, ...]:
    """All tensors of the float network in execution order, its inputs first.

    Args:
        quantized: The float network and its quantizers.
        everything: What is known of its tensors.
    """
    model = quantized.float_model
    written = written_quantizers(model, Edges(model, quantized.quantizers))
    grouped = units(model, quantized.quantizers)
    within = _inside(quantized, grouped)
    leaving = frozenset(outputs(model))
    found = []
    for value in everything:
        quantizer = written.get(value.name)
        label = FUSED if value.name in within else FLOAT
        found.append(
            LayerTensor(
                value=value,
                unit=grouped.unit_of.get(value.node, value.node),
                quantized=label if quantizer is None else quantizer.spec.dtype,
                quantizer=quantizer,
                output=value.name in leaving,
            )
        )
    return tuple(found)


def _inside(quantized: QuantizedModel, grouped: Units) -> frozenset[str]:
    return frozenset(
        name
        for node in quantized.float_model.proto.graph.node
        for position, name in enumerate(node.input)
        if Consumer(node.name, position) in grouped.inside
    )
