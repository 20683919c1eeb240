"""A model cut into blocks between which little is handed on, and blocks as models of their own."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model, stored_bytes
from roundoff.graph.nodes import all_names, captured, input_at, producer_names, reads
from roundoff.graph.qdq import QuantizerNodes
from roundoff.graph.quantized_model import FakeConstants, chain_of
from roundoff.graph.save import add_declared
from roundoff.graph.shapes import Value, ValueTypes
from roundoff.graph.units import derived_constants, with_constant_nodes

# What a node costs to run, estimated from shapes: good enough to cut a model into parts of like cost.
#
# The same model and shapes always give the same figures, so that what depends on them can be repeated.

Shapes = Mapping[str, tuple[int, ...]]

# Of one core of a common machine: multiply-adds and bytes moved, and what starting a node takes.
_MULTIPLY_S = 1 / 40e9
BYTE_S = 1 / 5e9
"""Seconds to move one byte."""

_START_S = 1e-6
_VALUE_BYTES = 4


def node_seconds(node: Any, shapes: Shapes, constant: Collection[str] = ()) -> float:
    """Expected run time of a node in one sample.

    Args:
        node: The node.
        shapes: Shapes of tensors, constants included; what is not known counts as nothing.
        constant: Which of them are constants; they are read once for several samples.
    """
    touched = {name for name in (*node.input, *node.output) if name in shapes and name not in constant}
    moved = sum(_VALUE_BYTES * prod(shapes[name]) for name in touched)
    return _START_S + moved * BYTE_S + node_products(node, shapes) * _MULTIPLY_S


def node_products(node: Any, shapes: Shapes) -> int:
    """Products that a convolution or matrix product computes in one sample; 0 for all other nodes.

    Args:
        node: The node.
        shapes: Shapes of tensors, constants included; what is not known counts as nothing.
    """
    multiply = _MULTIPLIES.get(node.op_type)
    return 0 if multiply is None else multiply(node, shapes)


def _of_convolution(node: Any, shapes: Shapes) -> int:
    return _elements(node.output[0], shapes) * prod(_shape(node, 1, shapes)[1:])


def _of_transposed_convolution(node: Any, shapes: Shapes) -> int:
    return _elements(node.input[0], shapes) * prod(_shape(node, 1, shapes)[1:])


def _of_product(node: Any, shapes: Shapes) -> int:
    left = _shape(node, 0, shapes)
    turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return _elements(node.output[0], shapes) * (left[-2 if turned and len(left) > 1 else -1] if left else 0)


def _elements(name: str, shapes: Shapes) -> int:
    return prod(shapes[name]) if name in shapes else 0


def _shape(node: Any, position: int, shapes: Shapes) -> tuple[int, ...]:
    return shapes.get(input_at(node, position), ())


_MULTIPLIES: Mapping[str, Callable[[Any, Shapes], int]] = {
    "Conv": _of_convolution,
    "ConvTranspose": _of_transposed_convolution,
    "Gemm": _of_product,
    "MatMul": _of_product,
}


MOST_BLOCKS = 16
"""Blocks a model is cut into at most; more save little and each keeps a session open."""

# A tensor handed on is copied out of one block, read by the next and brought into its layout.
_HAND_ON_S = 3 * BYTE_S
# Per sample, as several are run at a time.
_RUN_START_S = 4e-6
# A session is opened for each change: for itself, for each of its nodes, for each byte of its weights.
_OPEN_S, _OPEN_NODE_S, _OPEN_BYTE_S = 1e-3, 5e-5, 2e-9
# What onnxruntime computes in one go where it can: cut in between, the tensor is written and read once more.
_HEADS = frozenset({"Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul"})
_TAILS = frozenset(
    {"Add", "BatchNormalization", "Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "PRelu", "Relu"}
    | {"Sigmoid", "Softplus", "Tanh"}
)
# Places looked at; of more, those where fewest bytes are live.
_MOST_PLACES = 400


@dataclass(frozen=True, slots=True)
class ModelBlock:
    """Consecutive nodes of a model.

    Attributes:
        nodes: Their names, in execution order; nodes that only compute constants are in no block.
        reads: What they need from before: inputs of the model, and tensors of earlier blocks.
        writes: What later blocks read of theirs, and what is wanted of the model.
        seconds: Expected run time in one sample.
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Tail:
    """A block from one of its nodes on.

    Attributes:
        index: Which block.
        block: That node and those after it in the block.
        live: What must be there before it so that it and all later blocks can run.
    """

    index: int
    block: ModelBlock
    live: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockPartition:
    """A model as a row of blocks; what its wanted tensors do not depend on is left out.

    Attributes:
        blocks: In execution order.
        live: For each block, what must be there before it so that it and all later ones can run.
        wanted: The tensors asked for.
        tails: What is left of blocks from the nodes on that changes were announced for, where that is less than
            the block and the model could be cut there.
    """

    blocks: tuple[ModelBlock, ...]
    live: tuple[tuple[str, ...], ...]
    wanted: tuple[str, ...]
    tails: Mapping[str, Tail]

    def joined(self, span: range) -> ModelBlock:
        """Blocks that follow one another as one."""
        parts = [self.blocks[index] for index in span]
        if len(parts) == 1:
            return parts[0]
        needed = {*self.wanted, *(self.live[span.stop] if span.stop < len(self.live) else ())}
        made = {name for part in parts for name in part.writes}
        return ModelBlock(
            tuple(name for part in parts for name in part.nodes),
            tuple(dict.fromkeys(name for part in parts for name in part.reads if name not in made)),
            tuple(name for part in parts for name in part.writes if name in needed),
            sum(part.seconds for part in parts),
        )

    def seconds_from(self, block: int) -> float:
        """Expected run time in one sample of a block and all after it."""
        return sum(each.seconds for each in self.blocks[block:])


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model is cut for.

    Attributes:
        changes: How many changed copies will be run of each node; one of each when None.
        samples: How many samples each of them will be run on.
        tail_bytes: What may be kept of each sample, so that changes can start in the middle of blocks; if what is
            live before all changed nodes is more, none can.
    """

    changes: Mapping[str, float] | None = None
    samples: int = 1
    tail_bytes: int = 0


_ANY_CHANGE = Demand()


def cut_model(
    model: Model,
    values: Sequence[Value],
    *,
    wanted: Sequence[str],
    demand: Demand = _ANY_CHANGE,
    blocks: int | None = None,
    behind: Collection[Consumer] | None = None,
) -> BlockPartition:
    """Cut a model.

    It is never cut inside of a node with subgraphs, nor where something is live that is no array of numbers.

    Args:
        model: The model.
        values: All its tensors, with their types and, as far as they are known, their shapes in one sample.
        wanted: Tensors it is run for: outputs, or any others.
        demand: What it is cut for.
        blocks: How many blocks, as far as there are places to cut; by default what is best, at most `MOST_BLOCKS`.
        behind: Cut only where all that is handed on is read by these node inputs alone; by any when None.
    """
    path = _Path(model, values, wanted)
    changes = demand.changes
    counts = np.array([1.0 if changes is None else changes.get(name, 0.0) for name in path.names])
    with_tails = path.bytes_before(counts > 0) <= demand.tail_bytes
    choice = _CutChoice(path, counts, samples=demand.samples, with_tails=with_tails)
    chosen = choice.best(path.places() if behind is None else path.places_behind(behind), blocks)
    bounds = [0, *chosen, len(path.names)]
    spans = [(start, end) for start, end in pairwise(bounds) if end > start]
    possible = np.isfinite(path.live_bytes())
    tails = {
        path.names[at]: Tail(index, path.block(at, end), path.live(at))
        for index, (start, end) in enumerate(spans)
        for at in range(start + 1, end)
        if with_tails and counts[at] and possible[at]
    }
    return BlockPartition(
        tuple(path.block(start, end) for start, end in spans),
        tuple(path.live(start) for start, _ in spans),
        tuple(wanted),
        tails,
    )


class _Path:
    """The nodes that wanted tensors depend on, and how long each tensor is needed."""

    def __init__(self, model: Model, values: Sequence[Value], wanted: Sequence[str]) -> None:
        graph = model.proto.graph
        constant = derived_constants(graph)
        self._wanted = frozenset(wanted)
        self._values = {value.name: value for value in values}
        self._nodes = _needed(graph.node, wanted, constant)
        self.names = [node.name for node in self._nodes]
        self._reads = [tuple(name for name in reads(node) if name not in constant) for node in self._nodes]
        weights = {tensor.name: tensor for tensor in graph.initializer}
        shapes = {value.name: value.shape for value in values if value.shape is not None}
        shapes |= {name: tuple(tensor.dims) for name, tensor in weights.items()}
        self.seconds = np.array([node_seconds(node, shapes, weights) for node in self._nodes])
        self.weight_bytes = np.array(
            [
                sum(stored_bytes(weights[name]) for name in set(reads(node)) & weights.keys())
                for node in self._nodes
            ],
            dtype=np.float64,
        )
        self._made, self._last = self._lifetimes()

    def _lifetimes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The node that computes each tensor, -1 for inputs, and the last one that reads it."""
        made: dict[str, int] = {}
        last: dict[str, int] = {}
        for index, node in enumerate(self._nodes):
            for name in self._reads[index]:
                made.setdefault(name, -1)
                last[name] = index
            made |= {name: index for name in node.output if name}
        return made, last

    def live_bytes(self) -> Array:
        """Bytes live before each node, and after the last; infinite where something cannot be handed on."""
        # A tensor is live from behind its producer to its last reader: add its bytes at the first place, take them
        # off behind the last, and sum up. What cannot be handed on bars every place in its span in the same way.
        steps = np.zeros(len(self._nodes) + 2)
        barred = np.zeros(len(self._nodes) + 2, dtype=np.int64)
        for name, last in self._last.items():
            span = self._made[name] + 1, last + 1
            value = self._values.get(name)
            plain = value is not None and _is_plain(value)
            steps[span[0]] += value.size_bytes if value is not None and plain else 0
            steps[span[1]] -= value.size_bytes if value is not None and plain else 0
            barred[span[0]] += not plain
            barred[span[1]] -= not plain
        found = np.cumsum(steps)[:-1]
        found[np.cumsum(barred)[:-1] > 0] = np.inf
        return found

    def bytes_before(self, chosen: Array) -> int:
        """Size of all that is live before any of some nodes."""
        last = np.flatnonzero(chosen)
        total = 0
        for name, end in self._last.items():
            first = np.searchsorted(last, self._made[name] + 1)
            if first < len(last) and last[first] <= end and name in self._values:
                total += self._values[name].size_bytes
        return total

    def places(self) -> list[int]:
        """Nodes before which the model may be cut, best not between nodes that are computed in one go."""
        live = self.live_bytes()
        possible = [place for place in range(1, len(self._nodes)) if np.isfinite(live[place])]
        allowed = [place for place in possible if not self._splits_pair(place)] or possible
        if len(allowed) <= _MOST_PLACES:
            return allowed
        groups = np.array_split(np.array(allowed), _MOST_PLACES)
        return [int(group[np.argmin(live[group])]) for group in groups]

    def places_behind(self, readers: Collection[Consumer]) -> list[int]:
        """Those of the places at which all that is live is read by these node inputs alone."""
        # Up to its last other reader a tensor bars every place.
        barred = np.zeros(len(self._nodes) + 1)
        last: dict[str, int] = {}
        for index, node in enumerate(self._nodes):
            others = [name for at, name in enumerate(node.input) if Consumer(node.name, at) not in readers]
            last |= {name: index for name in (*others, *captured(node)) if name in self._made}
        for name, end in last.items():
            barred[self._made[name] + 1] += 1
            barred[end + 1] -= 1
        free = np.cumsum(barred) == 0
        return [place for place in self.places() if free[place]]

    def _splits_pair(self, place: int) -> bool:
        before, after = self._nodes[place - 1], self._nodes[place]
        if before.op_type not in _HEADS or after.op_type not in _TAILS:
            return False
        return any(name in before.output and self._last[name] == place for name in self._reads[place])

    def live(self, place: int) -> tuple[str, ...]:
        """Tensors that exist before a node and are read by it or later ones."""
        return tuple(name for name, last in self._last.items() if self._made[name] < place <= last)

    def block(self, start: int, end: int) -> ModelBlock:
        inside = range(start, end)
        read = dict.fromkeys(name for index in inside for name in self._reads[index] if self._made[name] < start)
        written = dict.fromkeys(
            name
            for index in inside
            for name in self._nodes[index].output
            if name and (name in self._wanted or self._last.get(name, -1) >= end)
        )
        names = tuple(self.names[start:end])
        return ModelBlock(names, tuple(read), tuple(written), float(self.seconds[start:end].sum()))


def _needed(nodes: Iterable[Any], wanted: Iterable[str], constant: frozenset[str]) -> list[Any]:
    """The nodes that wanted tensors depend on, in order, without those that compute constants."""
    missing = set(wanted) - constant
    found = []
    for node in reversed(list(nodes)):
        if not missing.isdisjoint(node.output):
            found.append(node)
            missing.update(name for name in reads(node) if name not in constant)
    return found[::-1]


def _is_plain(value: Value) -> bool:
    """Whether it is a tensor whose elements numpy has; others cannot be handed from one session to the next."""
    element = value.element
    return value.kind == "tensor" and element is not None and element.bits > 0 and element.widened == element.dtype


class _CutChoice:
    """Finds the cuts with the least expected time, all changes together."""

    def __init__(self, path: _Path, demand: Array, *, samples: int, with_tails: bool) -> None:
        self._with_tails = with_tails
        start = np.concatenate([[0.0], np.cumsum(path.seconds)])
        self._samples = samples
        self._start = start
        self._demand = np.concatenate([[0.0], np.cumsum(demand)])
        # Everything is kept as prefix sums over nodes, so that the cost of a block [start, end) is a difference of
        # two entries, for all starts at once. `_before`: what all changes up to a node would run of the model
        # before their own nodes.
        self._before = np.concatenate([[0.0], np.cumsum(demand * start[:-1])])
        self._weights = np.concatenate([[0.0], np.cumsum(path.weight_bytes)])
        self._live = path.live_bytes()

    def best(self, places: Sequence[int], blocks: int | None) -> list[int]:
        """The places to cut at."""
        points = np.array([0, *places, len(self._start) - 1])
        count = len(points)
        most = min(MOST_BLOCKS if blocks is None else blocks, count - 1)
        if most <= 1:
            return []
        # Shortest path over the places: cost[end, start] is that of one block, total[end] the least for everything
        # before `end` with the blocks used so far. Each round allows one block more; `came_from` keeps where the
        # last of them began, to walk back from the end.
        cost = np.array([self._cost(points, points[index]) for index in range(count)])
        total, came_from = cost[:, 0], [np.zeros(count, np.int64)]
        totals = [total[-1]]
        for _ in range(most - 1):
            through = cost + total[None, :]
            came_from.append(np.argmin(through, axis=1))
            total = through.min(axis=1)
            totals.append(total[-1])
        used = int(np.argmin(totals)) if blocks is None else most - 1
        chosen, at = [], count - 1
        for step in range(used, 0, -1):
            at = int(came_from[step][at])
            chosen.append(int(points[at]))
        return chosen[::-1]

    def _cost(self, starts: Array, end: int) -> Array:
        """Expected seconds that blocks from each start to this end add; infinite for those that are none."""
        changes = self._demand[end] - self._demand[starts]
        # Each change at a node runs the block from its start to that node for nothing:
        # sum of demand(node) * (start(node) - start(block)), which is a difference of the prefix sums.
        in_vain = self._before[end] - self._before[starts] - self._start[starts] * changes
        if self._with_tails:
            in_vain = np.zeros_like(in_vain)
        opening = (
            _OPEN_S + _OPEN_NODE_S * (end - starts) + _OPEN_BYTE_S * (self._weights[end] - self._weights[starts])
        )
        # Every change further up hands its tensors on to this block.
        if self._with_tails:
            # A change opens, in the mean, half of its block.
            opening = _OPEN_S + (opening - _OPEN_S) / 2
        handing = np.where(
            starts > 0, self._demand[starts] * (_RUN_START_S + _HAND_ON_S * self._live[starts]), 0.0
        )
        cost = self._samples * (in_vain + handing) + changes * opening
        return np.where(starts < end, cost, np.inf)


# Blocks of a model as models of their own; each holds only the constants it reads.


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
    are left open, so that a block takes several samples at a time where its nodes do, unless types are given.

    Args:
        model: The whole model.
        values: All its tensors, with their types.
        types: What is declared of the tensors that go in, from `declared_types`: onnxruntime fuses nodes whose
            shapes it knows.

    Attributes:
        own: What names that are no tensor or node of the whole model begin with.
    """

    def __init__(self, model: Model, values: Sequence[Value], *, types: Mapping[str, Any] | None = None) -> None:
        graph = model.proto.graph
        self._model, self._declared = model, types or {}
        self._values: Mapping[str, Value] = {value.name: value for value in values}
        self._nodes = {node.name: node for node in graph.node}
        constant = derived_constants(graph)
        self._makers = {name: node for name, node in producer_names(graph.node).items() if name in constant}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._types = ValueTypes(model, values)
        # No name of the whole model begins with it, so that new names need no comparison with those.
        self.own, taken = "quantized/", frozenset(all_names(graph))
        while any(name.startswith(self.own) for name in taken):
            self.own = f"_{self.own}"
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
        quantizers = QuantizerNodes(assembly, self._types, prefix=self.own)
        substitutes: dict[int, str] = {}
        asked = readings or {}
        for node in self._with_constants(block.nodes):
            places = [
                (at, name) for at, name in enumerate(node.input) if asked and Consumer(node.name, at) in asked
            ]
            other: dict[int, str] = {}
            for position, name in places:
                reading = asked[Consumer(node.name, position)]
                if not isinstance(reading, Substitute):
                    other[position] = quantizers.add(reading, name)
                    continue
                if id(reading) not in substitutes:
                    substitutes[id(reading)] = assembly.add_constant(reading.values, f"{self.own}{reading.name}")
                other[position] = substitutes[id(reading)]
            copy = assembly.copy_node(node)
            for position, name in other.items():
                copy.input[position] = name
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
        if name in self._declared:
            graph.input.add(name=name).type.CopyFrom(self._declared[name])
            return
        value = self._values[name]
        added = graph.input.add(name=name).type.tensor_type
        added.elem_type = value.element.number if value.element is not None else 0
        if value.shape is not None:
            added.shape.SetInParent()
            for _ in value.shape:
                added.shape.dim.add()


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
        types: What is declared of the tensors that go into blocks; see `BlockModels`.
    """

    def __init__(
        self,
        model: Model,
        cutting: BlockPartition,
        values: Sequence[Value],
        *,
        constants: FakeConstants | None = None,
        types: Mapping[str, Any] | None = None,
    ) -> None:
        self._cutting = cutting
        self._models = BlockModels(model, values, types=types)
        self._constants = FakeConstants(model) if constants is None else constants
        self._blocks_of: dict[str, list[int]] = {}
        for index, block in enumerate(cutting.blocks):
            for node in self._models.nodes_in(block):
                self._blocks_of.setdefault(node, []).append(index)

    @property
    def own(self) -> str:
        """What names of quantizers in blocks begin with."""
        return self._models.own

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

    def model(
        self, index: int | range, switched: Switched | None = None, *, part: ModelBlock | None = None
    ) -> Model:
        """The model of a block, or of several that follow one another as one.

        Args:
            index: Which block.
            switched: What is on in it.
            part: What to take of it, or what more to read from it, if not the block as it is.

        Raises:
            BadInput: ONNX has no operators for one of the quantizers.
        """
        span = range(index, index + 1) if isinstance(index, int) else index
        block = self._cutting.joined(span) if part is None else part
        inside = self._models.nodes_in(block)
        if switched is None:
            return self._models.make(block)
        acting: dict[Consumer, Quantizer] = {}
        for each in span:
            acting |= {to: by for to, by in switched.inside.get(each, {}).items() if to.node in inside}
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
