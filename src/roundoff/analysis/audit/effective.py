"""What every node of a quantized model really computes with, and with which scales."""

from collections.abc import Collection
from functools import cached_property
from typing import Any

from roundoff.core.audit import Part, QuantizedPart
from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.graph.precisions import NodePrecisions
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.graph.wiring import reads

__all__ = ["EffectiveView"]


class EffectiveView(NodePrecisions[Quantizer]):
    """Looks at a quantized model node by node.

    Attributes:
        model: The model.
    """

    def __init__(self, model: QuantizedModel) -> None:
        super().__init__(model.float_model, model.quantizers)
        self.model = model

    @cached_property
    def _weights(self) -> Weights:
        return Weights(self.float_model)

    def has_one_slice(self, tensor: str, axis: int) -> bool:
        """Whether a constant has a single slice along an axis, so that one scale per slice is one scale."""
        if tensor not in self._weights:
            return False
        shape = self._weights.shape(tensor)
        return -len(shape) <= axis < len(shape) and shape[axis] == 1

    def parts(self, node: Any) -> tuple[QuantizedPart, ...]:
        """How the inputs and outputs of a node are quantized."""
        found: dict[tuple[Part, str], QuantizedPart] = {}
        for at in range(len(node.input)):
            quantizer = self.seen_at(node, at) if at in self.operands(node) else None
            quantizer = quantizer or self._by_edge.get(Consumer(node.name, at))
            if quantizer is not None:
                found.setdefault((quantizer.kind, quantizer.name), _part(quantizer.kind, quantizer))
        for name in node.output:
            for quantizer in self._of_tensor.get(name, []):
                found.setdefault(("output", quantizer.name), _part("output", quantizer))
        return tuple(found.values())

    def producer(self, tensor: str) -> Any:
        """The node that computes a tensor; None for inputs and constants."""
        return self._producers.get(tensor)

    def of_tensor(self, tensor: str) -> list[Quantizer]:
        """The quantizers of a tensor."""
        return self._of_tensor.get(tensor, [])

    def reached(self, start: Collection[str], *, backwards: bool) -> set[str]:
        """The nodes that depend on what some nodes compute; or, backwards, those on which these depend."""
        found: set[str] = set()
        for node in reversed(self.nodes) if backwards else self.nodes:
            others = self._behind(node) if backwards else self._before(node)
            if any(other in start or other in found for other in others):
                found.add(node.name)
        return found

    def _before(self, node: Any) -> list[str]:
        return [self._producers[name].name for name in reads(node) if name in self._producers]

    def _behind(self, node: Any) -> list[str]:
        return [edge.node for name in node.output for edge in self._readers.get(name, ())]


def _part(part: Part, quantizer: Quantizer) -> QuantizedPart:
    scale, zero_point = quantizer.params.scale, quantizer.params.zero_point
    return QuantizedPart(
        part=part,
        tensor=quantizer.tensor,
        dtype=quantizer.spec.dtype,
        axis=quantizer.spec.axis,
        scales=int(scale.size),
        scale_min=float(scale.min()),
        scale_max=float(scale.max()),
        zero_point_min=int(zero_point.min()),
        zero_point_max=int(zero_point.max()),
    )
