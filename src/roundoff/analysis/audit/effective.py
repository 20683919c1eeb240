"""What every node of a quantized model really computes with, seen from its quantizers."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from roundoff.core.audit import Part, QuantizedPart
from roundoff.core.quant_plan import FLOAT, Precision
from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants, units
from roundoff.graph.wiring import reads

__all__ = ["LAYERS", "EffectiveView"]

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operations with a weight, at their second input."""

_BIAS_AT = 2
# Their output has the elements of their input: codes go through.
_PASS_ON = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Slice", "Split", "Gather",
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "GlobalMaxPool", "Dropout", "Pad", "Resize", "Upsample",
    "ReduceMax", "ReduceMin",
})  # fmt: skip
_FLOATS = ("float", "bfloat")


class EffectiveView:
    """Looks at a quantized model node by node.

    Attributes:
        model: The model.
        nodes: The nodes that compute something, in execution order.
    """

    def __init__(self, model: QuantizedModel) -> None:
        self.model = model
        graph = model.float_model.proto.graph
        self.constants = derived_constants(graph)
        self.nodes = [node for node in graph.node if any(name not in self.constants for name in node.output)]
        self._by_edge = {edge: quantizer for quantizer in model.quantizers for edge in quantizer.consumers}
        self._of_tensor: dict[str, list[Quantizer]] = defaultdict(list)
        for quantizer in model.quantizers:
            self._of_tensor[quantizer.tensor].append(quantizer)
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._readers: dict[str, list[Consumer]] = defaultdict(list)
        for node in graph.node:
            for at, name in enumerate(node.input):
                self._readers[name].append(Consumer(node.name, at))
        self.by_name = {node.name: node for node in graph.node}
        self._outputs = set(outputs(model.float_model))
        self._units = units(model.float_model, model.quantizers)

    @cached_property
    def _whole_numbers(self) -> frozenset[str]:
        """Tensors that hold no floats: shapes, indices, conditions."""
        known = values(self.model.float_model)
        return frozenset(
            value.name
            for value in known
            if value.element is not None and not value.element.dtype.startswith(_FLOATS)
        )

    def seen_at(self, node: Any, at: int) -> Quantizer | None:
        """The quantizer whose result an input sees, also through nodes that only pass elements on."""
        edge = Consumer(node.name, at)
        for _ in range(len(self.nodes)):
            if edge in self._by_edge:
                return self._by_edge[edge]
            producer = self._producers.get(self.by_name[edge.node].input[edge.input])
            if producer is None or producer.op_type not in _PASS_ON or not producer.input:
                return None
            edge = Consumer(producer.name, 0)
        return None

    def operands(self, node: Any) -> list[int]:
        """The inputs of a node that are computed and float."""
        return [
            at
            for at, name in enumerate(node.input)
            if name and name not in self.constants and name not in self._whole_numbers
        ]

    def weight_at(self, node: Any) -> list[int]:
        """The inputs of a node that are its weights: constant operands, if it is a layer or they are quantized."""
        found = []
        for at, name in enumerate(node.input):
            layer = node.op_type in LAYERS and at < _BIAS_AT
            quantizer = self._by_edge.get(Consumer(node.name, at))
            weight = quantizer is not None and quantizer.kind == "weight"
            if name in self.constants and name not in self._whole_numbers and (layer or weight):
                found.append(at)
        return found

    def unit(self, node: Any) -> list[Any]:
        """The nodes that are computed together with a node."""
        first = self._units.unit_of.get(node.name, node.name)
        return [self.by_name[name] for name in self._units.members.get(first, (node.name,))]

    def effective(self, node: Any) -> Precision:
        """The types a node computes with."""
        members = self.unit(node)
        edges = [
            (member, at)
            for member in members
            for at in self.operands(member)
            if Consumer(member.name, at) not in self._units.inside
        ]
        activation = _joined(self.dtype(self.seen_at(member, at)) for member, at in edges)
        weight = _joined(self.dtype(self.seen_at(node, at)) for at in self.weight_at(node))
        return Precision(activation, weight, self._output(members[-1]))

    @staticmethod
    def dtype(quantizer: Quantizer | None) -> str:
        """The type of what a quantizer gives; ``float`` without one."""
        return FLOAT if quantizer is None else quantizer.spec.dtype

    def _output(self, node: Any) -> str:
        return _joined(
            dtype
            for name in node.output
            if name and name not in self._whole_numbers
            for dtype in self._stored_as(name, node)
        )

    def _stored_as(self, tensor: str, node: Any) -> Iterator[str]:
        """The types in which the readers of a tensor get it."""
        own = self._of_tensor.get(tensor, [])
        if not own and node.op_type in _PASS_ON and node.input:
            yield self.dtype(self.seen_at(node, 0))
            return
        seen = {edge for quantizer in own for edge in quantizer.consumers}
        yield from (quantizer.spec.dtype for quantizer in own if quantizer.consumers or quantizer.output)
        leaves_float = tensor in self._outputs and not any(quantizer.output for quantizer in own)
        if leaves_float or any(edge not in seen for edge in self._readers[tensor]):
            yield FLOAT

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
        return [edge.node for name in node.output for edge in self._readers[name]]


def _joined(dtypes: Iterator[str]) -> str:
    return "/".join(dict.fromkeys(dtypes))


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
