"""Units: nodes that quantized hardware computes as one, no tensor between them being quantized.

``Conv -> Relu -> [quantizer]`` is one unit: the sum of products goes through the Relu as it is, and is quantized
once, at the end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from roundoff.core.plan import FLOAT, PlannedQuantizer, Precision
from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.graph.interface import RANDOM_OPS, outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import captured, constants, consumers, producers, reads, subgraphs
from roundoff.graph.patterns import find_patterns
from roundoff.graph.shapes import values


@dataclass(frozen=True, slots=True)
class Units:
    """How the nodes of a model fall into units.

    Attributes:
        members: The nodes of each unit in execution order, by the name of its first node; a node that shares its
            unit with no other is a unit of its own. Nodes that only hold or compute constants are in none.
        unit_of: The unit of each node.
        inside: The node inputs through which a unit hands a tensor on within itself.
    """

    members: Mapping[str, tuple[str, ...]]
    unit_of: Mapping[str, str]
    inside: frozenset[Consumer]


def units(model: Model, quantizers: Iterable[Quantizer]) -> Units:
    """Group nodes into units.

    A tensor stays inside a unit on its way to a node when it is not quantized there, nobody else reads it, the
    node that computes it has quantized activations or is itself further inside the unit, the other inputs of
    the reading node are constant, and what that node computes is quantized or again stays inside the unit.
    """
    wires = _Wires(model, tuple(quantizers))
    nodes = [node for node in model.proto.graph.node if not wires.is_constant(node)]
    within = wires.followers(nodes)
    inside: set[Consumer] = set()
    members: dict[str, list[str]] = {}
    unit_of: dict[str, str] = {}
    for node in nodes:
        unit = unit_of.setdefault(node.name, node.name)
        members.setdefault(unit, []).append(node.name)
        follower = within.get(node.name)
        if follower is not None and (unit != node.name or wires.has_quantized_inputs(node)):
            unit_of[follower.node] = unit
            inside.add(follower)
    return Units({unit: tuple(names) for unit, names in members.items()}, unit_of, frozenset(inside))


def derived_constants(graph: Any) -> frozenset[str]:
    """Tensors that are the same in every run: constants, and what is computed from nothing but constants."""
    known = set(constants(graph))
    for node in graph.node:
        if _is_repeatable(node) and all(name in known for name in reads(node)):
            known.update(name for name in node.output if name)
    return frozenset(known)


def with_constant_nodes(nodes: Mapping[str, Any], names: Iterable[str], makers: Mapping[str, str]) -> list[Any]:
    """Some nodes and those that compute the constants they read, in the order of all.

    Args:
        nodes: All nodes by name, in execution order.
        names: Those asked for.
        makers: The name of the node that computes each derived constant.
    """
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [makers[tensor] for tensor in reads(nodes[name]) if tensor in makers]
    return [node for name, node in nodes.items() if name in needed]


def _is_repeatable(node: Any) -> bool:
    return node.op_type not in RANDOM_OPS and not node.domain and next(subgraphs(node), None) is None


class _Wires:
    """Who reads what, and what of it is quantized."""

    def __init__(self, model: Model, quantizers: tuple[Quantizer, ...]) -> None:
        graph = model.proto.graph
        self._constant = derived_constants(graph)
        self._quantized_edges = {consumer for quantizer in quantizers for consumer in quantizer.consumers}
        self._activation_edges = {
            consumer
            for quantizer in quantizers
            if quantizer.kind == "activation" and quantizer.tensor not in self._constant
            for consumer in quantizer.consumers
        }
        self._quantized_tensors = {quantizer.tensor for quantizer in quantizers}
        self._readers = Counter(outputs(model))
        self._only_reader: dict[str, Any] = {}
        for node in graph.node:
            # A node that reads a tensor at two inputs, or inside a subgraph, needs it twice.
            self._readers.update(name for name in node.input if name)
            self._readers.update(name for name in reads(node) if name not in node.input)
            self._only_reader |= {name: node for name in node.input if name}

    def is_constant(self, node: Any) -> bool:
        """Whether all outputs of a node are constant."""
        return all(name in self._constant for name in node.output if name)

    def has_quantized_inputs(self, node: Any) -> bool:
        """Whether a node reads a quantized activation."""
        return any(Consumer(node.name, index) in self._activation_edges for index in range(len(node.input)))

    def followers(self, nodes: list[Any]) -> dict[str, Consumer]:
        """For each node the one input its result could go to without leaving a unit, if there is one."""
        found: dict[str, Consumer] = {}
        for node in reversed(nodes):
            written = [name for name in node.output if name and self._readers[name]]
            edge = self._single_edge(written[0]) if len(written) == 1 else None
            if edge is not None and (self._writes_quantized(self._only_reader[written[0]]) or edge.node in found):
                found[node.name] = edge
        return found

    def _single_edge(self, tensor: str) -> Consumer | None:
        """The only place where a tensor is read, if it is not quantized there and joined by constants only."""
        reader = self._only_reader.get(tensor)
        if reader is None or self._readers[tensor] != 1:
            return None
        edge = Consumer(reader.name, list(reader.input).index(tensor))
        joined_by_constants = all(name in self._constant for name in reads(reader) if name != tensor)
        return edge if edge not in self._quantized_edges and joined_by_constants else None

    def _writes_quantized(self, node: Any) -> bool:
        return any(name in self._quantized_tensors for name in node.output)


# Which nodes of a quantized model are computed as one, seen from its quantizers alone.
#
# Like above, with operations that are spelled out in several nodes (gelu, layer normalization,
# ...) taken for one.

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operations with a weight, at their second input."""


@dataclass(slots=True)
class _Block:
    """A node, or the nodes of an operation that is spelled out.

    Attributes:
        nodes: In execution order.
        written: The tensors it hands on to others.
        read: The tensors of others that it reads and that are not constant, with the place; an empty one where a
            subgraph reads it.
    """

    nodes: list[Any] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    read: list[tuple[str, Consumer | None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.nodes[0].name)


def joined_units(model: Model, quantizers: Iterable[Quantizer | PlannedQuantizer]) -> Units:
    """Group nodes into units.

    The result of one or several nodes stays inside a unit when it is not quantized, only one operation reads it,
    that is no layer with a weight and reads no other values but constants (a sum with a layer's result: codes),
    and what it computes is quantized or again stays inside; and when the unit begins with an operation that reads
    quantized values and has no weight in float.
    """
    found = _Joining(model, tuple(quantizers))
    within = found.followers()
    unit_of: dict[str, str] = {}
    members: dict[str, list[str]] = defaultdict(list)
    inside = {edge for block in found.blocks for edge in found.edges_within(block)}
    for block in found.blocks:
        unit = unit_of.setdefault(block.name, block.name)
        names = [str(node.name) for node in block.nodes]
        members[unit] += names
        unit_of.update(dict.fromkeys(names, unit))
        follower = within.get(block.name)
        if follower is not None and (unit != block.name or found.reads_integers(block)):
            unit_of[follower.name] = unit
            inside.update(edge for name, edge in follower.read if edge is not None and name in block.written)
    place = {node.name: at for at, node in enumerate(model.proto.graph.node)}
    ordered = {unit: tuple(sorted(names, key=place.__getitem__)) for unit, names in members.items()}
    return Units(ordered, unit_of, frozenset(inside))


class _Joining:
    """The operations of a model, and what of it is quantized.

    Attributes:
        blocks: In order of their last nodes.
    """

    def __init__(self, model: Model, quantizers: tuple[Quantizer | PlannedQuantizer, ...]) -> None:
        graph = model.proto.graph
        self._constant = derived_constants(graph)
        self._quantized = {each.tensor for each in quantizers}
        self._edges = {edge for each in quantizers if each.kind == "activation" for edge in each.consumers}
        self._all_edges = {edge for each in quantizers for edge in each.consumers}
        self._outputs = set(outputs(model))
        self._nodes = [node for node in graph.node if any(name not in self._constant for name in node.output)]
        self._pattern_of = self._patterns(model)
        self.blocks = self._find_blocks()
        self._readers: dict[str, list[_Block]] = defaultdict(list)
        for block in self.blocks:
            for name, _ in block.read:
                self._readers[name].append(block)
        for block in self.blocks:
            written = [name for node in block.nodes for name in node.output if name]
            block.written = [name for name in written if self._readers[name] or name in self._outputs]

    def _patterns(self, model: Model) -> dict[str, str]:
        """The spelled-out operation of nodes, by the name of its last node; the largest where several fit."""
        nodes = {node.name: node for node in self._nodes}
        found: dict[str, str] = {}
        for pattern in sorted(find_patterns(model), key=lambda each: -len(each.nodes)):
            known = all(name in nodes and name not in found for name in pattern.nodes)
            inner = (name for each in pattern.nodes[:-1] if known for name in nodes[each].output)
            if known and not any(name in self._quantized for name in inner):
                found.update(dict.fromkeys(pattern.nodes, pattern.nodes[-1]))
        return found

    def _find_blocks(self) -> list[_Block]:
        blocks: dict[str, _Block] = defaultdict(_Block)
        for node in self._nodes:
            blocks[self._pattern_of.get(node.name, node.name)].nodes.append(node)
        for block in blocks.values():
            own = {name for node in block.nodes for name in node.output}
            block.read = [edge for node in block.nodes for edge in self._reads(node) if edge[0] not in own]
        place = {node.name: at for at, node in enumerate(self._nodes)}
        return [blocks[name] for name in sorted(blocks, key=place.__getitem__)]

    def _reads(self, node: Any) -> Iterator[tuple[str, Consumer | None]]:
        live = [name for name in reads(node) if name not in self._constant]
        for at, name in enumerate(node.input):
            if name in live:
                yield name, Consumer(node.name, at)
        yield from ((name, None) for name in live if name not in node.input)

    def edges_within(self, block: _Block) -> Iterator[Consumer]:
        """The inputs through which an operation hands a tensor on within itself."""
        own = {name for node in block.nodes for name in node.output if name}
        for node in block.nodes if len(block.nodes) > 1 else ():
            yield from (Consumer(node.name, at) for at, name in enumerate(node.input) if name in own)

    def reads_integers(self, block: _Block) -> bool:
        """Whether it reads a quantized activation, and has no weight in float."""
        integers = any(edge in self._edges for _, edge in block.read)
        return integers and all(edge in self._all_edges for edge in self._weights(block))

    def _weights(self, block: _Block) -> Iterator[Consumer]:
        for node in block.nodes:
            if node.op_type in LAYERS:
                yield from (
                    Consumer(node.name, at) for at, name in enumerate(node.input[:2]) if name in self._constant
                )

    def followers(self) -> dict[str, _Block]:
        """For each operation the one its result could go to without leaving a unit, if there is one."""
        found: dict[str, _Block] = {}
        for block in reversed(self.blocks):
            reader = self._only_reader(block)
            if reader is not None and (reader.name in found or self._quantized & set(reader.written)):
                found[block.name] = reader
        return found

    def _only_reader(self, block: _Block) -> _Block | None:
        """What alone reads the result of an operation, and nothing else but constants; a sum may read codes."""
        if len(block.written) != 1 or block.written[0] in self._outputs or block.written[0] in self._quantized:
            return None
        tensor = block.written[0]
        reader = self._readers[tensor][0]
        seen = Counter(name for name, _ in reader.read)
        alone = all(each is reader for each in self._readers[tensor])
        alone = alone and (set(seen) == {tensor} or self._adds_codes(reader, block, tensor))
        # A single node that reads it twice, or inside a subgraph, needs it more than once.
        once = len(reader.nodes) > 1 or (seen[tensor] == 1 and reader.read[0][1] is not None)
        # A layer multiplies codes, or floats: what it reads is never inside.
        layer = any(True for _ in self._weights(reader))
        return reader if alone and once and not layer else None

    def _adds_codes(self, reader: _Block, block: _Block, tensor: str) -> bool:
        """Whether codes are added to what a layer computed, before that is rounded."""
        others = [edge for name, edge in reader.read if name != tensor]
        layer = block.nodes[0].op_type in LAYERS
        return layer and [node.op_type for node in reader.nodes] == ["Add"] and self._edges.issuperset(others)


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
        self._producers = producers(graph.node)
        self._outputs = set(outputs(float_model))

    @cached_property
    def _of_tensor(self) -> Mapping[str, list[AnyQuantizer]]:
        found: dict[str, list[AnyQuantizer]] = defaultdict(list)
        for quantizer in self._quantizers:
            found[quantizer.tensor].append(quantizer)
        return found

    @cached_property
    def _readers(self) -> Mapping[str, list[Consumer]]:
        return consumers(self.float_model.proto.graph.node)

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
        for _ in range(len(self.by_name) + 1):
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
