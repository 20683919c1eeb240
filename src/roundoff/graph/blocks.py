"""Blocks of a model as models of their own; each holds only the constants it reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.cutting import Cutting, ModelBlock
from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model
from roundoff.graph.qdq import FLOAT32, add_quantizer
from roundoff.graph.quantized_model import FakeConstants, chain_of, fake_quantized
from roundoff.graph.save import add_declared
from roundoff.graph.shapes import Value
from roundoff.graph.units import derived_constants, with_constant_nodes
from roundoff.graph.wiring import all_names, producer_names, reads

__all__ = [
    "BlockModels",
    "BlockVariants",
    "NodeCopies",
    "Reading",
    "Substitute",
    "Switched",
    "free_prefix",
    "leave",
]


@dataclass(frozen=True, slots=True, eq=False)
class Substitute:
    """A constant that node inputs read in place of another.

    Attributes:
        name: What it is called, if that is free.
        values: Its values.
    """

    name: str
    values: Array


Reading = Substitute | tuple[Quantizer, ...]
"""What a node input reads instead of its tensor: another constant, or the tensor after quantizers, in order."""


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
        self._nodes = {node.name: node for node in graph.node}
        constant = derived_constants(graph)
        self._makers = {name: node for name, node in producer_names(graph.node).items() if name in constant}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._taken = frozenset(all_names(graph))
        self._own = free_prefix(self._taken)
        self._needed: dict[tuple[str, ...], list[Any]] = {}

    def make(self, block: ModelBlock, readings: Mapping[Consumer, Reading] | None = None) -> Model:
        """The model of a block, made to be run; its outputs are what the block writes.

        Args:
            block: The block.
            readings: What some node inputs read instead of what they read in the whole model.

        Raises:
            BadInput: ONNX has no operators for one of the quantizers.
        """
        assembly = Assembly(self._frame(block))
        copies = NodeCopies(assembly, self._values, self._own)
        for node in self._with_constants(block.nodes):
            copies.add(node, readings or {})
        graph = assembly.proto.graph
        # Only now is it known which constants are read: a substitute takes the place of a weight, which then must
        # not be carried along. Large ones stay beside the model, as they are: blocks are opened many times.
        read = dict.fromkeys(name for node in graph.node for name in reads(node))
        beside = add_declared(graph, (self._initializers[name] for name in read if name in self._initializers))
        graph.sparse_initializer.extend(self._sparse[name] for name in read if name in self._sparse)
        return Model(assembly.proto, self._model.path, self._model.file_bytes, beside=beside)

    def nodes_in(self, block: ModelBlock) -> frozenset[str]:
        """Names of all nodes in the model of a block, copies of those that compute constants included."""
        return frozenset(node.name for node in self._with_constants(block.nodes))

    def _frame(self, block: ModelBlock) -> Model:
        """A model with the inputs and outputs of a block, and nothing between them."""
        from onnx import ModelProto

        source = self._model.proto
        proto = ModelProto(
            ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions
        )
        proto.graph.name = source.graph.name or "block"
        for name in block.reads:
            self._add_input(proto.graph, name)
        for name in block.writes:
            proto.graph.output.add(name=name)
        return Model(proto, self._model.path, 0)

    def _with_constants(self, names: tuple[str, ...]) -> list[Any]:
        """Nodes and what computes the constants they read, in order."""
        if names not in self._needed:
            self._needed[names] = with_constant_nodes(self._nodes, names, self._makers)
        return self._needed[names]

    def _add_input(self, graph: Any, name: str) -> None:
        value = self._values[name]
        added = graph.input.add(name=name).type.tensor_type
        added.elem_type = value.element.number if value.element is not None else 0
        if value.shape is not None:
            added.shape.SetInParent()
            for _ in value.shape:
                added.shape.dim.add()


class NodeCopies:
    """Copies of nodes that read something else than in their model.

    Args:
        assembly: Where they are added.
        values: The tensors of the model, with their types.
        prefix: What no name of the model begins with; from `free_prefix`.
    """

    def __init__(self, assembly: Assembly, values: Mapping[str, Value], prefix: str) -> None:
        self._assembly = assembly
        self._values = values
        self._prefix = prefix
        self._made: dict[object, str] = {}

    def add(self, node: Any, readings: Mapping[Consumer, Reading]) -> Any:
        """Add a node, and before it what it reads instead of tensors of the model; gives the copy.

        Raises:
            BadInput: ONNX has no operators for one of the quantizers.
        """
        other: dict[int, str] = {}
        if readings:
            for position, name in enumerate(node.input):
                reading = readings.get(Consumer(node.name, position)) if name else None
                if isinstance(reading, Substitute):
                    other[position] = self._constant(reading)
                elif reading is not None:
                    other[position] = self._quantized(reading)
        copy = self._assembly.copy_node(node)
        for position, name in other.items():
            copy.input[position] = name
        return copy

    def _constant(self, substitute: Substitute) -> str:
        if id(substitute) not in self._made:
            self._made[id(substitute)] = self._assembly.add_constant(
                substitute.values, f"{self._prefix}{substitute.name}"
            )
        return self._made[id(substitute)]

    def _quantized(self, quantizers: tuple[Quantizer, ...]) -> str:
        """The tensor after quantizers; the nodes are added when it is first read."""
        key = tuple(each.name for each in quantizers)
        if not key:
            raise ValueError("nothing to read")
        if key not in self._made:
            last = quantizers[-1]
            value = self._values.get(last.tensor)
            target = self._assembly.free_tensor(f"{self._prefix}{last.name}_dequantized")
            add_quantizer(
                self._assembly,
                replace(last, name=f"{self._prefix}{last.name}"),
                last.tensor if len(quantizers) == 1 else self._quantized(quantizers[:-1]),
                target=target,
                element=value.element.number if value is not None and value.element is not None else FLOAT32,
                rank=len(value.shape) if value is not None and value.shape is not None else None,
            )
            self._made[key] = target
        return self._made[key]


def free_prefix(taken: frozenset[str]) -> str:
    """What no name begins with, so that new names need no comparison with those of the whole model."""
    prefix = "quantized/"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix


# Blocks of a model with some quantizers switched on in them.


@dataclass(frozen=True, slots=True)
class Switched:
    """Quantizers that are on, sorted by where they act.

    Attributes:
        inside: For each block in which they act, what its node inputs read.
        leaving: For each tensor that leaves the model quantized, what it passes, in order.
        by_name: All of them.
    """

    inside: Mapping[int, Mapping[Consumer, Quantizer]]
    leaving: Mapping[str, tuple[Quantizer, ...]]
    by_name: Mapping[str, Quantizer]


class BlockVariants:
    """Makes models of blocks in which quantizers are on.

    Constants hold what quantizers leave of them; nothing of that is computed again when the block runs.

    Args:
        model: The whole float model.
        cutting: Its blocks.
        values: Its tensors, with their types.
        constants: What quantizers leave of its constants, if others ask for that too.
    """

    def __init__(
        self, model: Model, cutting: Cutting, values: Sequence[Value], *, constants: FakeConstants | None = None
    ) -> None:
        self._cutting = cutting
        self._models = BlockModels(model, values)
        self._constants = FakeConstants(model) if constants is None else constants
        self._blocks_of: dict[str, list[int]] = {}
        for index, block in enumerate(cutting.blocks):
            for node in self._models.nodes_in(block):
                self._blocks_of.setdefault(node, []).append(index)

    def switch(self, quantizers: Iterable[Quantizer]) -> Switched:
        """Sort quantizers that are on; of several at one node input the one that follows the others counts.

        What acts only on nodes that no wanted tensor depends on is nowhere.
        """
        by_name = {each.name: each for each in quantizers}
        readers: dict[Consumer, Quantizer] = {}
        for each in by_name.values():
            for consumer in each.consumers:
                # A requantization names the same inputs as the quantizer it follows: they read what comes last.
                other = readers.get(consumer)
                if other is None or any(before is other for before in chain_of(each, by_name)):
                    readers[consumer] = each
        inside: dict[int, dict[Consumer, Quantizer]] = {}
        for consumer, each in readers.items():
            for index in self._blocks_of.get(consumer.node, ()):
                inside.setdefault(index, {})[consumer] = each
        wanted = set(self._cutting.wanted)
        leaving = {
            each.tensor: tuple(chain_of(each, by_name))
            for each in by_name.values()
            if each.output and each.tensor in wanted
        }
        return Switched(dict(sorted(inside.items())), leaving, by_name)

    def rounded(self, switched: Switched, blocks: Iterable[int]) -> frozenset[str]:
        """Tensors that quantizers round when these blocks run; constants are rounded before."""
        acting = (each.tensor for index in blocks for each in switched.inside.get(index, {}).values())
        return frozenset(tensor for tensor in acting if tensor not in self._constants)

    def changes_nothing(self, quantizer: Quantizer) -> bool:
        """Whether its constant already holds exactly what the quantizer would leave of it."""
        return not quantizer.after and self._constants.is_idle(quantizer)

    def model(self, index: int, switched: Switched | None = None, *, part: ModelBlock | None = None) -> Model:
        """The model of a block.

        Args:
            index: Which block.
            switched: What is on in it.
            part: What to take of it, or what more to read from it, if not the block as it is.

        Raises:
            BadInput: ONNX has no operators for one of the quantizers.
        """
        block = self._cutting.blocks[index] if part is None else part
        inside = self._models.nodes_in(block)
        readers = switched.inside.get(index, {}) if switched is not None else {}
        acting = {consumer: each for consumer, each in readers.items() if consumer.node in inside}
        if switched is None or not acting:
            return self._models.make(block)
        return self._models.make(block, self._readings(acting, switched))

    def _readings(self, acting: Mapping[Consumer, Quantizer], switched: Switched) -> dict[Consumer, Reading]:
        readings: dict[Consumer, Reading] = {}
        made: dict[tuple[str, ...], Substitute] = {}
        for consumer, quantizer in acting.items():
            chain = tuple(chain_of(quantizer, switched.by_name))
            if quantizer.tensor not in self._constants:
                readings[consumer] = chain
                continue
            passed = tuple(each.name for each in chain)
            if passed not in made:
                values = self._constants.values(quantizer, switched.by_name)
                made[passed] = Substitute(f"{quantizer.name}_values", values)
            readings[consumer] = made[passed]
        return readings


def leave(values: Array, quantizers: Sequence[Quantizer]) -> Array:
    """A tensor that leaves the model, after the quantizers it passes."""
    for quantizer in quantizers:
        values = fake_quantized(values, quantizer)
    return values
