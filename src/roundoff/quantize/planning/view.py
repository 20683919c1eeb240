"""The graph as the planner sees it: which inputs carry values, and which nodes a target computes as one."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer
from roundoff.core.target import Target
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import STANDARD_DOMAINS, all_nodes, by_number, reads, subgraphs
from roundoff.graph.patterns import PATTERNS, Pattern, find_patterns
from roundoff.graph.shapes import Value, values
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, message

# Which inputs of an operation are values, and which are shapes, indices, limits or parameters of its own.

_FIRST = (0,)
_NONE: tuple[int, ...] = ()

# Inputs behind the first say in which shape, along which axes, how many or within which limits.
_WITH_SETTINGS = (
    "Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Pad", "Resize", "Upsample", "TopK", "Split",
    "Dropout", "CumSum", "Trilu", "CenterCropPad", "SplitToSequence", "DFT", "STFT", "Clip", "Pow",
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
# Inputs behind the first say where to look.
_WITH_PLACES = (
    "Gather", "GatherElements", "GatherND", "MaxUnpool", "Compress", "ReverseSequence", "GridSample", "RoiAlign",
    "MaxRoiPool", "AffineGrid",
)  # fmt: skip
# Gain, offset, mean and variance are applied in the unit's own precision.
_WITH_PARAMETERS = (
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization",
)  # fmt: skip
_MADE_OF_SETTINGS = ("Range", "ConstantOfShape", "EyeLike")

# Operations of which not every input is a value to be quantized; of all others every float input is.
_VALUE_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_WITH_SETTINGS, *_WITH_PLACES, *_WITH_PARAMETERS), _FIRST),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), (0, 2)),
    "Where": (1, 2),
    **dict.fromkeys(_MADE_OF_SETTINGS, _NONE),
    **dict.fromkeys(("Shape", "Size", "OneHot", "NonMaxSuppression"), _NONE),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), _NONE),
}

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operations that sum products of an activation and a weight."""

BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
"""Where operations take a bias."""

CARRIES_NO_DATA = frozenset({"Shape", "Size"})
"""What these compute depends on shapes alone."""


SAME_TYPE = frozenset(
    {*PRODUCTS, "Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Concat", "PRelu", "Where"}
)
"""Operations whose value inputs all have one element type."""


def setting_inputs(operation: str, count: int) -> range:
    """Places of the inputs that only say how to compute: their values go nowhere.

    Args:
        operation: The op type.
        count: How many inputs the node has.
    """
    if operation in _MADE_OF_SETTINGS:
        return range(count)
    return range(1, count) if operation in _WITH_SETTINGS else range(0)


def value_inputs(operation: str, count: int) -> tuple[int, ...]:
    """Places of the inputs that are values, of a node with so many inputs; biases are not among them.

    Args:
        operation: Its op type; one of another domain with it and a dot in front.
        count: How many inputs the node has.
    """
    if operation in PRODUCTS:
        return (0, 1)
    places = _VALUE_INPUTS.get(operation)
    return tuple(range(count)) if places is None else tuple(place for place in places if place < count)


_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})
# Their results have a type of their own, whatever their inputs have.
_OWN_TYPE = frozenset({"Cast", "CastLike", "Shape", "Size", "ArgMax", "ArgMin", "NonZero", "IsNaN", "IsInf",
                       "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or",
                       "Xor"})  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """One node.

    Attributes:
        proto: The `onnx.NodeProto`.
        place: Its place in execution order.
        name: Its name.
        operation: Its op type; one of another domain with it and a dot in front.
        inputs: Names of its inputs; empty for one that is left out.
        outputs: Names of its outputs, likewise.
        nodes_inside: How many nodes its subgraphs hold, in all depths.
    """

    proto: Any
    place: int
    name: str
    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes_inside: int

    @property
    def is_control_flow(self) -> bool:
        """Whether it holds graphs of its own."""
        return self.nodes_inside > 0

    def attribute(self, name: str, default: Any) -> Any:
        """One of its attributes."""
        from onnx.helper import get_attribute_value

        found = next((each for each in self.proto.attribute if each.name == name), None)
        return default if found is None else get_attribute_value(found)

    def value_edges(self) -> Iterator[tuple[Consumer, str]]:
        """Its inputs that are values, as far as its op type tells, each with its tensor."""
        for place in value_inputs(self.operation, len(self.inputs)):
            if place < len(self.inputs) and self.inputs[place]:
                yield Consumer(self.name, place), self.inputs[place]


def _nodes_inside(node: Any) -> int:
    return sum(1 for graph in subgraphs(node) for _ in all_nodes(graph))


def _node_view(node: Any, place: int) -> NodeView:
    operation = node.op_type if node.domain in STANDARD_DOMAINS else f"{node.domain}.{node.op_type}"
    return NodeView(node, place, node.name, operation, tuple(node.input), tuple(node.output), _nodes_inside(node))


class GraphView:
    """The nodes and tensors of a model's main graph."""

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self.model = model
        self.weights = Weights(model)
        self.nodes = tuple(
            _node_view(node, place)
            for place, node in enumerate(node for node in graph.node if node.op_type != "Constant")
        )
        self.by_name = {node.name: node for node in self.nodes}
        self.producers = {name: node for node in self.nodes for name in node.outputs if name}
        self.outputs = frozenset(outputs(model))
        self._values = {value.name: value for value in values(model)}
        self.inputs = tuple(name for name, value in self._values.items() if not value.node)

    @cached_property
    def readers(self) -> dict[str, tuple[Consumer, ...]]:
        """The node inputs at which each tensor is read, in execution order."""
        found: dict[str, list[Consumer]] = defaultdict(list)
        for node in self.nodes:
            for place, name in enumerate(node.inputs):
                if name:
                    found[name].append(Consumer(node.name, place))
        return defaultdict(tuple, {name: tuple(places) for name, places in found.items()})

    @cached_property
    def captured(self) -> frozenset[str]:
        """Tensors that subgraphs read from outside."""
        return frozenset(
            name
            for node in self.nodes
            if node.is_control_flow
            for name in reads(node.proto)
            if name not in node.inputs
        )

    def read_at(self, reader: Consumer) -> str:
        """The tensor that a node input reads."""
        return self.by_name[reader.node].inputs[reader.input]

    def is_constant(self, tensor: str) -> bool:
        """Whether a tensor is part of the model."""
        return tensor in self.weights.protos

    def is_private(self, tensor: str) -> bool:
        """Whether only nodes of the main graph read a tensor."""
        return tensor not in self.outputs and tensor not in self.captured

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """Shape of a tensor; None when unknown."""
        if self.is_constant(tensor):
            return self.weights.shape(tensor)
        value = self._values.get(tensor)
        return value.shape if value is not None else None

    def rank(self, tensor: str) -> int | None:
        """Number of axes; None when unknown."""
        shape = self.shape(tensor)
        return None if shape is None else len(shape)

    def is_float(self, tensor: str) -> bool:
        """Whether a tensor holds floats, and at least one."""
        shape = self.shape(tensor)
        return self._dtypes.get(tensor, "") in _FLOATS and (shape is None or math.prod(shape) > 0)

    @cached_property
    def _dtypes(self) -> dict[str, str]:
        """Element types as far as they are known; past unknown operations they are guessed from operands."""
        known = {name: _constant_dtype(holder) for name, holder in self.weights.protos.items()}
        known |= {name: _dtype(value) for name, value in self._values.items()}
        for node in self.nodes:
            if node.operation in _OWN_TYPE or "." in node.operation or node.is_control_flow:
                continue
            operands = [tensor for _, tensor in node.value_edges()]
            dtype = next((known[tensor] for tensor in operands if known.get(tensor)), "")
            alike = [*node.outputs[:1], *(operands if node.operation in SAME_TYPE else ())]
            known |= {name: dtype for name in alike if name and not known.get(name)}
        return known

    @cached_property
    def data(self) -> frozenset[str]:
        """Tensors that depend on what is fed, and not on its shape alone."""
        found = set(self.inputs)
        for node in self.nodes:
            fed = any(name in found for name in reads(node.proto)) or not reads(node.proto)
            if fed and node.operation not in CARRIES_NO_DATA:
                found.update(name for name in node.outputs if name)
        return frozenset(found)

    @cached_property
    def used(self) -> frozenset[str]:
        """Tensors whose values reach an output of the network other than as a shape, a count or a limit."""
        found = set(self.outputs) | self.captured
        for node in reversed(self.nodes):
            if any(name in found for name in node.outputs):
                settings = setting_inputs(node.operation, len(node.inputs))
                found.update(name for place, name in enumerate(node.inputs) if place not in settings)
        return frozenset(found)

    def computes_values(self, node: NodeView) -> bool:
        """Whether a node works on values: on float data that matters for more than shapes."""
        results = any(self.is_float(name) and name in self.data and name in self.used for name in node.outputs)
        reading = any(self.is_float(tensor) and tensor in self.data for _, tensor in node.value_edges())
        return results or (reading and any(name in self.used for name in node.outputs))

    def operands(self, node: NodeView) -> Iterator[tuple[Consumer, str]]:
        """The inputs of a node that are float values, each with its tensor; constants among them."""
        return ((edge, tensor) for edge, tensor in node.value_edges() if self.is_float(tensor))

    def value_inputs_of(self, nodes: Iterable[NodeView]) -> Iterator[str]:
        """Tensors that nodes read as float values, constants not among them."""
        return (tensor for node in nodes for _, tensor in self.operands(node) if not self.is_constant(tensor))

    def results(self, node: NodeView) -> tuple[str, ...]:
        """The outputs of a node that are float values."""
        return tuple(name for name in node.outputs if name and self.is_float(name))

    def is_finite(self, tensor: str) -> bool:
        """Whether all values of a constant are numbers."""
        return bool(np.isfinite(self.weights[tensor]).all())


def _dtype(value: Value) -> str:
    if value.kind != "tensor":
        return value.kind
    return value.element.dtype if value.element is not None else ""


def _constant_dtype(holder: Any) -> str:
    """Element type of an `onnx.TensorProto` or of a Constant node."""
    if not hasattr(holder, "op_type"):
        number = holder.data_type
    elif holder.attribute[0].HasField("t"):
        number = holder.attribute[0].t.data_type
    else:
        return "float32" if holder.attribute[0].name.startswith("value_float") else "int64"
    kind = by_number(number)
    return kind.dtype if kind is not None else ""


# What nodes of an operation must fulfil to have an integer version on a target, by name.


def _rank(*allowed: int) -> Callable[[NodeView, GraphView], bool]:
    def holds(node: NodeView, view: GraphView) -> bool:
        rank = view.rank(node.inputs[0])
        return rank is None or rank in allowed

    return holds


def _attribute(name: str, default: float, wanted: float) -> Callable[[NodeView, GraphView], bool]:
    return lambda node, _: bool(node.attribute(name, default) == wanted)


NEEDS: dict[str, Callable[[NodeView, GraphView], bool]] = {
    "constant_weight": lambda node, view: len(node.inputs) > 1 and view.is_constant(node.inputs[1]),
    "rank_4": _rank(4),
    "rank_4_or_5": _rank(4, 5),
    "not_transposed": _attribute("transA", 0, 0),
    "alpha_1": _attribute("alpha", 1.0, 1.0),
    "beta_1": _attribute("beta", 1.0, 1.0),
}
"""Conditions that target files can name; what cannot be known is fulfilled. Their words are `need_*`."""


def missing_need(node: NodeView, view: GraphView, needs: tuple[str, ...]) -> str:
    """The first condition a node does not fulfil, by its name; empty when there is none."""
    return next((name for name in needs if not NEEDS[name](node, view)), "")


@dataclass(frozen=True, slots=True, eq=False)
class FusedUnit:
    """Nodes computed as one; most often a single node.

    Attributes:
        nodes: In execution order.
        steps: What the fusion is made of, an op type or a pattern each; the op type for a single node.
        obstacle: Why it has no integer version on the target; None when it has one.
        bias: The constant operand of an Add behind a product, which the product's sum begins with.
    """

    nodes: tuple[NodeView, ...]
    steps: tuple[str, ...]
    obstacle: Message | None = None
    bias: Consumer | None = None

    @property
    def first(self) -> NodeView:
        """The node that reads what the unit works on; the one with the weight, if there is one."""
        return self.nodes[0]

    @property
    def last(self) -> NodeView:
        """The node that writes the result."""
        return self.nodes[-1]

    @property
    def inner(self) -> frozenset[str]:
        """Tensors that exist only inside."""
        return frozenset(name for node in self.nodes[:-1] for name in node.outputs if name)

    @property
    def is_pattern(self) -> bool:
        """Whether it begins with a pattern, whose constants are a part of the function it computes."""
        return self.steps[0] in PATTERNS


RESIDUAL = "residual"
"""The step of a fusion that adds another tensor to what was computed, before anything is rounded.

Of two branches that could be fused with their sum, the first in the model's order is.
"""


def find_units(view: GraphView, target: Target) -> tuple[FusedUnit, ...]:
    """Group the nodes that work on values into units, in order of their first nodes.

    Tensors between the nodes of a unit are read by nobody outside of it. Where several fusions fit, the one of
    most nodes is taken, of equals the one the target names first.
    """
    finder = _UnitFinder(view, target)
    taken: set[str] = set()
    found = []
    for node in view.nodes:
        if node.name in taken:
            continue
        unit = finder.unit_at(node, taken)
        taken.update(member.name for member in unit.nodes)
        found.append(unit)
    return tuple(found)


class _UnitFinder:
    def __init__(self, view: GraphView, target: Target) -> None:
        self._view = view
        self._target = target
        self._begins: dict[str, list[Pattern]] = defaultdict(list)
        self._enters: dict[str, list[Pattern]] = defaultdict(list)
        for pattern in find_patterns(view.model):
            self._begins[pattern.nodes[0]].append(pattern)
            self._enters[pattern.entry].append(pattern)

    def unit_at(self, node: NodeView, taken: set[str]) -> FusedUnit:
        """The unit that begins with a node."""
        obstacle = self._obstacle(node)
        candidates = [
            unit
            for steps in self._target.fusions
            for unit in self._start(node, steps, blocked=bool(obstacle))
            if not taken & {member.name for member in unit.nodes}
        ]
        best = max(candidates, key=lambda unit: len(unit.nodes), default=None)
        return best if best is not None else FusedUnit((node,), (node.operation,), obstacle)

    def _obstacle(self, node: NodeView) -> Message | None:
        if node.is_control_flow:
            return message("quantize.why_control_flow", count=node.nodes_inside)
        if node.operation not in self._target.quantized_ops:
            return message("quantize.why_no_integer", target=self._target.name, op=node.operation)
        missing = missing_need(node, self._view, self._target.needs.get(node.operation, ()))
        if missing:
            return message("quantize.why_needs", target=self._target.name, why=message(f"quantize.need_{missing}"))
        infinite = self._infinite_operand(node)
        return message("quantize.why_infinite", tensor=repr(infinite)) if infinite else None

    def _infinite_operand(self, node: NodeView) -> str:
        for _, tensor in self._view.operands(node):
            # Weights are left to those who read them anyway; a mask is small.
            constant = node.operation not in PRODUCTS and self._view.is_constant(tensor)
            if constant and not self._view.is_finite(tensor):
                return tensor
        return ""

    def _start(self, node: NodeView, steps: tuple[str, ...], *, blocked: bool) -> Iterator[FusedUnit]:
        for name in steps[0].split("|"):
            if name in PATTERNS:
                for pattern in self._begins[node.name]:
                    if pattern.name == name:
                        yield from self._grow(FusedUnit(self._nodes(pattern), (name,)), steps[1:])
            elif name == node.operation and not blocked and len(steps) > 1:
                yield from self._grow(FusedUnit((node,), (name,)), steps[1:])

    def _grow(self, unit: FusedUnit, steps: tuple[str, ...]) -> Iterator[FusedUnit]:
        if not steps:
            yield unit
            return
        results = [name for name in unit.last.outputs if name]
        if len(results) != 1 or not self._view.is_private(results[0]):
            return
        for name in steps[0].split("|"):
            longer = self._with_pattern if name in PATTERNS else self._with_node
            for grown in longer(unit, name, results[0]):
                yield from self._grow(grown, steps[1:])

    def _with_pattern(self, unit: FusedUnit, name: str, tensor: str) -> Iterator[FusedUnit]:
        readers = {reader.node for reader in self._view.readers[tensor]}
        for pattern in self._enters[tensor]:
            if pattern.name == name and readers <= set(pattern.nodes):
                yield FusedUnit((*unit.nodes, *self._nodes(pattern)), (*unit.steps, name), bias=unit.bias)

    def _with_node(self, unit: FusedUnit, operation: str, tensor: str) -> Iterator[FusedUnit]:
        readers = self._view.readers[tensor]
        if len(readers) != 1:
            return
        node, place = self._view.by_name[readers[0].node], readers[0].input
        others = [(i, name) for i, name in enumerate(node.inputs) if i != place and name]
        if operation == RESIDUAL:
            if node.operation == "Add" and self._is_other_branch(others, unit):
                yield FusedUnit((*unit.nodes, node), (*unit.steps, operation), bias=unit.bias)
            return
        if node.operation != operation or not all(self._view.is_constant(name) for _, name in others):
            return
        bias = unit.bias
        if operation == "Add":
            # What is added must be a bias: anything else is an operation of its own.
            if bias is not None or not self._is_bias(unit.last, others[0][1]):
                return
            bias = Consumer(node.name, others[0][0])
        yield FusedUnit((*unit.nodes, node), (*unit.steps, operation), bias=bias)

    def _is_other_branch(self, others: Sequence[tuple[int, str]], unit: FusedUnit) -> bool:
        """Whether what is added to the result of a unit is another live tensor of its shape."""
        shape = self._view.shape(unit.last.outputs[0])
        return len(others) == 1 and all(
            self._view.is_float(name) and not self._view.is_constant(name) and self._view.shape(name) == shape
            for _, name in others
        )

    def _is_bias(self, product: NodeView, tensor: str) -> bool:
        """Whether a constant has one element for each column of the weight behind a MatMul."""
        if product.operation != "MatMul" or not self._view.is_constant(product.inputs[1]):
            return False
        columns = self._view.shape(product.inputs[1])
        return columns is not None and len(columns) > 1 and self._view.shape(tensor) == columns[-1:]

    def _nodes(self, pattern: Pattern) -> tuple[NodeView, ...]:
        return tuple(self._view.by_name[name] for name in pattern.nodes)
