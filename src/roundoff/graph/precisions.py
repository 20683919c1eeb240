"""The precision every node of a quantized model really has: what it reads, its weight, and what it hands on.

This is the one definition, for plans, models and audits. It is seen from quantizers alone. A node reads what the
nearest quantizer gives, also through nodes that only pass elements on. Nodes that are computed as one have the
inputs and the output of the whole, and each its own weight.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from roundoff.core.plan import FLOAT, PlannedQuantizer, Precision
from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.graph.units import LAYERS, Units, derived_constants, joined_units
from roundoff.graph.wiring import captured

__all__ = ["NodePrecisions"]

_BIAS_AT = 2
# Their output has the elements of their input: codes go through.
_PASS_ON = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Slice", "Split", "Gather",
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "GlobalMaxPool", "Dropout", "Pad", "Resize", "Upsample",
    "ReduceMax", "ReduceMin",
})  # fmt: skip
_FLOATS = ("float", "bfloat")

AnyQuantizer = TypeVar("AnyQuantizer", Quantizer, PlannedQuantizer)


class NodePrecisions(Generic[AnyQuantizer]):
    """Looks at a quantized model node by node.

    Attributes:
        float_model: What is computed without quantizers.
        nodes: The nodes that compute something, in execution order.
        by_name: All nodes by their names.
        constants: Tensors that are the same in every run.
    """

    def __init__(self, float_model: Model, quantizers: Iterable[AnyQuantizer]) -> None:
        self.float_model = float_model
        self._quantizers: tuple[AnyQuantizer, ...] = tuple(quantizers)
        graph = float_model.proto.graph
        self.constants = derived_constants(graph)
        self.nodes = [node for node in graph.node if any(name not in self.constants for name in node.output)]
        self.by_name = {node.name: node for node in graph.node}
        self._by_edge: dict[Consumer, AnyQuantizer] = {
            edge: quantizer for quantizer in self._quantizers for edge in quantizer.consumers
        }
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._outputs = set(outputs(float_model))

    @cached_property
    def _of_tensor(self) -> Mapping[str, list[AnyQuantizer]]:
        found: dict[str, list[AnyQuantizer]] = defaultdict(list)
        for quantizer in self._quantizers:
            found[quantizer.tensor].append(quantizer)
        return found

    @cached_property
    def _readers(self) -> Mapping[str, list[Consumer]]:
        found: dict[str, list[Consumer]] = defaultdict(list)
        for node in self.float_model.proto.graph.node:
            for at, name in enumerate(node.input):
                found[name].append(Consumer(node.name, at))
        return found

    @cached_property
    def _captured(self) -> frozenset[str]:
        """Values that subgraphs take from outside."""
        return frozenset(name for node in self.nodes for name in self._captured_by(node))

    def _captured_by(self, node: Any) -> list[str]:
        """Values that the subgraphs of a node take from outside; no quantizer sits on such an edge."""
        return [name for name in captured(node) if name not in self.constants and name not in self._whole_numbers]

    @cached_property
    def _units(self) -> Units:
        return joined_units(self.float_model, self._quantizers)

    @cached_property
    def _whole_numbers(self) -> frozenset[str]:
        """Tensors that hold no floats: shapes, indices, conditions."""
        known = values(self.float_model)
        return frozenset(
            value.name
            for value in known
            if value.element is not None and not value.element.dtype.startswith(_FLOATS)
        )

    def seen_at(self, node: Any, at: int) -> AnyQuantizer | None:
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

    def outer_operands(self, node: Any) -> list[int]:
        """The operands of a node that do not come from the unit it is in."""
        return [at for at in self.operands(node) if Consumer(node.name, at) not in self._units.inside]

    def effective(self, node: Any) -> Precision:
        """The types a node computes with."""
        members = self.unit(node)
        edges = [(member, at) for member in members for at in self.outer_operands(member)]
        read = [self.dtype(self.seen_at(member, at)) for member, at in edges]
        read += [self._dtype_inside(name) for member in members for name in self._captured_by(member)]
        activation = _joined(read)
        weight = _joined(self.dtype(self.seen_at(node, at)) for at in self.weight_at(node))
        return Precision(activation, weight, self._output(members[-1]))

    def _dtype_inside(self, tensor: str) -> str:
        """The type in which a subgraph sees a tensor: float, unless it was quantized before it was passed on."""
        producer = self._producers.get(tensor)
        passed_on = producer is not None and producer.op_type in _PASS_ON and producer.input
        return self.dtype(self.seen_at(producer, 0)) if passed_on else FLOAT

    @staticmethod
    def dtype(quantizer: Quantizer | PlannedQuantizer | None) -> str:
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
        inside = tensor in self._captured
        if leaves_float or inside or any(edge not in seen for edge in self._readers.get(tensor, ())):
            yield FLOAT


def _joined(dtypes: Iterable[str]) -> str:
    return "/".join(dict.fromkeys(dtypes))
