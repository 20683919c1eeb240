"""Blocks of a model as models of their own; each holds only the constants it reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizer import Consumer
from roundoff.core.tensors import Array
from roundoff.graph.assembly import all_names
from roundoff.graph.cutting import Block
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value
from roundoff.graph.units import derived_constants
from roundoff.graph.wiring import reads

__all__ = ["BlockModels", "Substitute"]


@dataclass(frozen=True, slots=True, eq=False)
class Substitute:
    """A constant that node inputs read in place of another.

    Attributes:
        name: What it is called, if that is free.
        values: Its values.
    """

    name: str
    values: Array


class BlockModels:
    """Makes models of blocks.

    Nodes that compute constants are copied into every block that reads these. Shapes of what goes in and comes out
    are left open, so that a block takes several samples at a time where its nodes do.

    Args:
        model: The whole model.
        values: All its tensors, with their types.
    """

    def __init__(self, model: Model, values: Sequence[Value]) -> None:
        graph = model.proto.graph
        self._model = model
        self._values: Mapping[str, Value] = {value.name: value for value in values}
        self._nodes = {node.name: (position, node) for position, node in enumerate(graph.node)}
        self._constant = derived_constants(graph)
        self._producers = {
            name: node.name for node in graph.node for name in node.output if name in self._constant
        }
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._taken = frozenset(all_names(graph))

    def make(self, block: Block, substitutes: Mapping[Consumer, Substitute] | None = None) -> Model:
        """The model of a block; its outputs are what the block writes.

        Args:
            block: The block.
            substitutes: What some node inputs read instead of what they read in the whole model.
        """
        from onnx import ModelProto

        source = self._model.proto
        proto = ModelProto(
            ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions
        )
        graph = proto.graph
        graph.name = source.graph.name or "block"
        nodes = self._with_constants(block.nodes)
        graph.node.extend(nodes)
        if substitutes:
            self._substitute(graph, substitutes)
        read = dict.fromkeys(name for node in graph.node for name in reads(node))
        graph.initializer.extend(self._initializers[name] for name in read if name in self._initializers)
        graph.sparse_initializer.extend(self._sparse[name] for name in read if name in self._sparse)
        for name in block.reads:
            self._add_input(graph, name)
        for name in block.writes:
            graph.output.add(name=name)
        return Model(proto, self._model.path, proto.ByteSize())

    def nodes_in(self, block: Block) -> frozenset[str]:
        """Names of all nodes in the model of a block, copies of those that compute constants included."""
        return frozenset(node.name for node in self._with_constants(block.nodes))

    def _with_constants(self, names: Iterable[str]) -> list[Any]:
        """Nodes and what computes the constants they read, in order."""
        found: dict[str, tuple[int, Any]] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            position, node = self._nodes[name]
            found[name] = position, node
            waiting += [self._producers[tensor] for tensor in reads(node) if tensor in self._producers]
        return [node for _, node in sorted(found.values(), key=lambda entry: entry[0])]

    def _substitute(self, graph: Any, substitutes: Mapping[Consumer, Substitute]) -> None:
        """Let node inputs read other constants, and add these."""
        from onnx.numpy_helper import from_array

        added: dict[int, str] = {}
        for node in graph.node:
            for position, name in enumerate(node.input):
                other = substitutes.get(Consumer(node.name, position))
                if other is None or not name:
                    continue
                if id(other) not in added:
                    added[id(other)] = _free(other.name, self._taken)
                    graph.initializer.append(from_array(other.values, added[id(other)]))
                node.input[position] = added[id(other)]

    def _add_input(self, graph: Any, name: str) -> None:
        value = self._values[name]
        added = graph.input.add(name=name).type.tensor_type
        added.elem_type = value.element.number if value.element is not None else 0
        if value.shape is not None:
            added.shape.SetInParent()
            for _ in value.shape:
                added.shape.dim.add()


def _free(wanted: str, taken: frozenset[str]) -> str:
    name = wanted
    while name in taken:
        name += "_"
    return name
