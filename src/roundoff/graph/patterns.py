"""Operations that exporters spell out in several nodes: swish, hardswish, gelu, mish, layer normalization ...

A function of one number is recognised by what its nodes compute, not by how they are arranged: every way to write
it down is found, and a constant that makes it another function is not overlooked.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.nodes import producers, readers
from roundoff.graph.weights import Weights

# What nodes that treat every element alike compute, on a few numbers: enough to know a function by its values.

_Function = Callable[[Sequence[Array], Mapping[str, Any]], Array]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(x)))


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in np.ravel(x)]).reshape(np.shape(x))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


def _clip(inputs: Sequence[Array], attribute: Mapping[str, Any]) -> Array:
    low = inputs[1] if len(inputs) > 1 and inputs[1].size else attribute.get("min", -math.inf)
    high = inputs[2] if len(inputs) > 2 and inputs[2].size else attribute.get("max", math.inf)
    return np.asarray(np.minimum(np.maximum(inputs[0], low), high))


def _gelu(x: Array, approximate: bytes) -> Array:
    if approximate == b"tanh":
        return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(x / 2 * (1 + _erf(x / math.sqrt(2))))


def _one(function: Callable[[Array], Array]) -> _Function:
    return lambda inputs, _: np.asarray(function(inputs[0]))


def _two(function: Callable[[Array, Array], Array]) -> _Function:
    return lambda inputs, _: np.asarray(function(inputs[0], inputs[1]))


_FUNCTIONS: dict[str, _Function] = {
    "Abs": _one(np.abs),
    "Add": _two(np.add),
    "Cast": _one(np.asarray),
    "Clip": _clip,
    "Div": _two(np.divide),
    "Erf": _one(_erf),
    "Exp": _one(np.exp),
    "Gelu": lambda inputs, attribute: _gelu(inputs[0], attribute.get("approximate", b"none")),
    "HardSigmoid": lambda inputs, attribute: _hard_sigmoid(
        inputs[0], attribute.get("alpha", 0.2), attribute.get("beta", 0.5)
    ),
    "HardSwish": _one(lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
    "Identity": _one(np.asarray),
    "Log": _one(np.log),
    "Max": _two(np.maximum),
    "Min": _two(np.minimum),
    "Mish": _one(lambda x: x * np.tanh(_softplus(x))),
    "Mul": _two(np.multiply),
    "Neg": _one(np.negative),
    "Pow": _two(np.power),
    "Reciprocal": _one(np.reciprocal),
    "Relu": _one(lambda x: np.maximum(x, 0)),
    "Sigmoid": _one(_sigmoid),
    "Softplus": _one(_softplus),
    "Sqrt": _one(np.sqrt),
    "Sub": _two(np.subtract),
    "Swish": lambda inputs, attribute: inputs[0] * _sigmoid(attribute.get("alpha", 1.0) * inputs[0]),
    "Tanh": _one(np.tanh),
}

POINTWISE = frozenset(_FUNCTIONS)
"""Op types that can be evaluated here."""


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    from onnx.helper import get_attribute_value

    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}


def evaluate(node: Any, inputs: Sequence[Array]) -> Array:
    """What a node computes, float64; without a result where its function has none (NaN).

    Args:
        node: A node whose op type is in `POINTWISE`.
        inputs: Its inputs, each a single number or as many numbers as the others; empty where it has none.
    """
    with np.errstate(all="ignore"):
        return _FUNCTIONS[node.op_type](inputs, attributes(node))


# Layer normalization and its relative without the mean, as exporters spell them out.

NORMALIZATIONS = frozenset({"layernorm", "rmsnorm"})

_Match = tuple[str, set[str], str]


class _NormalizationGraph(Protocol):
    """What of a graph is needed here."""

    def producer(self, tensor: str) -> Any | None: ...

    def constant(self, tensor: str) -> bool: ...

    def scalar(self, tensor: str) -> Array | None: ...


def match_normalization(last: Any, graph: _NormalizationGraph) -> _Match | None:
    """Recognise the last node of a normalization: the quotient, or the gain or offset behind it.

    Returns:
        Its name, the names of its nodes and the tensor that is normalized.
    """
    names: set[str] = set()
    node = last
    folded = _scale_and_shift(last, graph)
    if folded is not None:
        return folded
    for op_type in ("Add", "Mul"):
        step = _constant_step(node, op_type, graph)
        if step is not None and graph.producer(step) is not None:
            names.add(node.name)
            node = graph.producer(step)
            # RMS norms are computed in float32, and their gain is applied in the network's own type.
            if node is not None and node.op_type == "Cast" and graph.producer(node.input[0]) is not None:
                names.add(node.name)
                node = graph.producer(node.input[0])
    found = _quotient(node, graph) or _by_moments(node, graph)
    return (found[0], names | found[1], found[2]) if found is not None else None


def _scale_and_shift(last: Any, graph: _NormalizationGraph) -> _Match | None:
    """Read a node as ``x * r + (offset - mean(x) * r)``, ``r = gain / sqrt(...)``: as TensorFlow has it."""
    if last.op_type != "Add" or last.domain or len(last.input) != 2:
        return None
    for scaled, shift in ((last.input[0], last.input[1]), (last.input[1], last.input[0])):
        left, right = graph.producer(scaled), graph.producer(shift)
        if left is None or right is None or (left.op_type, right.op_type) != ("Mul", "Sub"):
            continue
        moved = graph.producer(right.input[1]) if graph.constant(right.input[0]) else None
        shared = set(left.input) & set(moved.input) if moved is not None and moved.op_type == "Mul" else set()
        if moved is None or len(shared) != 1:
            continue
        factor = shared.pop()
        [entry] = [name for name in left.input if name != factor] or [""]
        [mean] = [name for name in moved.input if name != factor] or [""]
        averaging, inverse = graph.producer(mean), _gained_inverse(factor, graph)
        if averaging is None or inverse is None or averaging.input[0] != entry or not _is_mean(averaging, graph):
            continue
        spread = _mean_square(inverse[0], graph)
        centred = None if spread is None else _centred(spread[1], graph)
        if spread is not None and centred is not None and centred[0] == entry:
            own = {last.name, left.name, right.name, moved.name, averaging.name, *inverse[1]}
            return "layernorm", own | spread[0] | centred[1], entry
    return None


def _gained_inverse(factor: str, graph: _NormalizationGraph) -> tuple[str, set[str]] | None:
    """Read a tensor as ``gain / sqrt(radicand)``, with or without a constant gain: the radicand and the nodes."""
    node = graph.producer(factor)
    step = None if node is None else _constant_step(node, "Mul", graph)
    names = {node.name} if node is not None and step is not None else set()
    node = graph.producer(step) if step is not None else node
    if node is None:
        return None
    inner = _inverted(node, graph)
    roots = _roots("", inner, 0.5, graph) if inner is not None else _roots("", node, -0.5, graph)
    found = next(roots, None)
    return None if found is None else (found[1], names | {node.name} | found[2])


def _constant_step(node: Any, op_type: str, graph: _NormalizationGraph) -> str | None:
    """The live operand of a node that adds or multiplies a constant."""
    if node.op_type != op_type or node.domain or len(node.input) != 2:
        return None
    live = [name for name in node.input if not graph.constant(name)]
    return live[0] if len(live) == 1 else None


def _quotient(node: Any, graph: _NormalizationGraph) -> _Match | None:
    for numerator, radicand, extra in _fractions(node, graph):
        spread = _mean_square(radicand, graph)
        if spread is None:
            continue
        names, deviation = spread
        names = names | {node.name, *extra}
        centred = _centred(numerator, graph)
        if centred is not None:
            entry, own = centred
            other = _centred(deviation, graph)
            if deviation == numerator or (other is not None and other[0] == entry):
                return "layernorm", names | own | (other[1] if other is not None else set()), entry
        if deviation == numerator:
            return "rmsnorm", names, numerator
    return None


def _fractions(node: Any, graph: _NormalizationGraph) -> Iterator[tuple[str, str, set[str]]]:
    """Ways to read a node as ``numerator / sqrt(radicand)``: both tensors, and the nodes of the divisor."""
    if node.domain or len(node.input) != 2:
        return
    for numerator, other in ((node.input[0], node.input[1]), (node.input[1], node.input[0])):
        divisor = graph.producer(other)
        if divisor is None:
            continue
        if node.op_type == "Div" and other == node.input[1]:
            yield from _roots(numerator, divisor, 0.5, graph)
        elif node.op_type == "Mul":
            yield from _roots(numerator, divisor, -0.5, graph)
            inverted = _inverted(divisor, graph)
            if inverted is not None:
                for _, radicand, names in _roots(numerator, inverted, 0.5, graph):
                    yield numerator, radicand, names | {divisor.name}


def _inverted(node: Any, graph: _NormalizationGraph) -> Any | None:
    """The node whose reciprocal a node computes."""
    if node.op_type == "Reciprocal":
        return graph.producer(node.input[0])
    if node.op_type == "Div" and _is(graph.scalar(node.input[0]), 1):
        return graph.producer(node.input[1])
    return None


def _roots(
    numerator: str, node: Any, power: float, graph: _NormalizationGraph
) -> Iterator[tuple[str, str, set[str]]]:
    """Read a node as this power of a tensor."""
    if (node.op_type == "Sqrt" and power == 0.5) or (
        node.op_type == "Pow" and _is(graph.scalar(node.input[1]), power)
    ):
        yield numerator, node.input[0], {node.name}


def _mean_square(radicand: str, graph: _NormalizationGraph) -> tuple[set[str], str] | None:
    """Read a tensor as ``mean(d * d) + epsilon``: its nodes and ``d``."""
    added = graph.producer(radicand)
    live = _constant_step(added, "Add", graph) if added is not None else None
    mean = graph.producer(live) if live is not None else None
    square = graph.producer(mean.input[0]) if mean is not None and _is_mean(mean, graph) else None
    if added is None or mean is None or square is None or not _is_square(square, graph):
        return None
    return {added.name, mean.name, square.name}, square.input[0]


def _by_moments(node: Any, graph: _NormalizationGraph) -> _Match | None:
    """Read a node as ``(x - mean(x)) * gain / sqrt(mean(x * x) - mean(x)**2 + epsilon)``: as JAX has it."""
    if node.op_type != "Mul" or node.domain or len(node.input) != 2:
        return None
    for numerator, factor in ((node.input[0], node.input[1]), (node.input[1], node.input[0])):
        centred, inverse = _centred(numerator, graph), _gained_inverse(factor, graph)
        spread = _second_less_first(inverse[0], graph) if inverse is not None else None
        if centred is not None and inverse is not None and spread is not None and spread[0] == centred[0]:
            return "layernorm", {node.name} | centred[1] | inverse[1] | spread[1], centred[0]
    return None


def _second_less_first(radicand: str, graph: _NormalizationGraph) -> tuple[str, set[str]] | None:
    """Read a tensor as ``mean(x * x) - mean(x)**2 + epsilon``, kept from being negative: ``x`` and the nodes."""
    added = graph.producer(radicand)
    live = _constant_step(added, "Add", graph) if added is not None else None
    if added is None or live is None:
        return None
    node, names = _before_broadcast(live, graph)
    if node is not None and node.op_type in ("Max", "Relu"):
        names = names | {node.name}
        node = graph.producer(next((name for name in node.input if not _is(graph.scalar(name), 0)), ""))
    if node is None or node.op_type != "Sub" or node.domain:
        return None
    second, squared = _mean(node.input[0], graph), graph.producer(node.input[1])
    square = graph.producer(second[0]) if second is not None else None
    if second is None or square is None or squared is None:
        return None
    first = _mean(squared.input[0], graph)
    if (
        first is None
        or first[0] != square.input[0]
        or not (_is_square(square, graph) and _is_square(squared, graph))
    ):
        return None
    return first[0], names | {added.name, node.name, square.name, squared.name} | second[1] | first[1]


# Between a mean and what is centred by it: the same values, repeated.
_BROADCASTS = frozenset({"Reshape", "Expand", "Unsqueeze", "Squeeze"})


def _before_broadcast(tensor: str, graph: _NormalizationGraph) -> tuple[Any | None, set[str]]:
    """The node that computes what a tensor repeats, and the nodes that repeat it."""
    node, names = graph.producer(tensor), set()
    while node is not None and node.op_type in _BROADCASTS and not node.domain:
        names.add(str(node.name))
        node = graph.producer(node.input[0])
    return node, names


def _mean(tensor: str, graph: _NormalizationGraph) -> tuple[str, set[str]] | None:
    """Read a tensor as the mean of another one along one axis: that one, and the nodes."""
    node, names = _before_broadcast(tensor, graph)
    if node is None:
        return None
    names = names | {node.name}
    if node.op_type in ("Mul", "Div"):
        live = _constant_step(node, node.op_type, graph)
        factor = next((graph.scalar(name) for name in node.input if graph.constant(name)), None)
        if live is None or factor is None or not factor:
            return None
        count = float(factor) if node.op_type == "Div" else 1 / float(factor)
        node = graph.producer(live)
        if node is None or node.op_type != "ReduceSum" or abs(count - round(count)) > 1e-3 * count or count < 2:
            return None
        return (node.input[0], names | {node.name}) if _along_one_axis(node, graph) else None
    return (node.input[0], names) if node.op_type == "ReduceMean" and _along_one_axis(node, graph) else None


def _is_square(node: Any, graph: _NormalizationGraph) -> bool:
    if node.op_type == "Mul":
        return bool(node.input[0] == node.input[1])
    return bool(node.op_type == "Pow") and _is(graph.scalar(node.input[1]), 2)


def _centred(tensor: str, graph: _NormalizationGraph) -> tuple[str, set[str]] | None:
    """Read a tensor as ``x - mean(x)``: ``x`` and the nodes of it."""
    node = graph.producer(tensor)
    if node is None or node.op_type != "Sub" or node.domain:
        return None
    mean = _mean(node.input[1], graph)
    return (node.input[0], {node.name} | mean[1]) if mean is not None and mean[0] == node.input[0] else None


def _is_mean(node: Any, graph: _NormalizationGraph) -> bool:
    """Whether a node takes the mean along one axis and keeps it; along several it is another normalization."""
    keeps = node.op_type == "ReduceMean" and attributes(node).get("keepdims", 1) == 1
    return keeps and _along_one_axis(node, graph)


def _along_one_axis(node: Any, graph: _NormalizationGraph) -> bool:
    if node.domain:
        return False
    axes = attributes(node).get("axes", ())
    return len(axes) == 1 or (len(node.input) > 1 and graph.scalar(node.input[1]) is not None)


def _is(value: Array | None, expected: float) -> bool:
    return value is not None and abs(float(value) - expected) < 1e-6


# The longest form met in practice, gelu by tanh with products for the cube, has ten.
_MOST_NODES = 12
# Constants of exported models have three digits at least (float16); the functions below differ by far more.
_TOLERANCE = 2e-3
_POINTS = np.concatenate([np.linspace(-9, 9, 37), [-3.3, -0.7, 0.13, 1.9, 5.7]])
# The last node of every known form; a search from each of the other nodes would find nothing.
_LAST_OPS = frozenset({"Clip", "Div", "Gelu", "HardSigmoid", "HardSwish", "Max", "Min", "Mish", "Mul", "Swish"})


def _functions() -> dict[str, Array]:
    """What the named functions give at the points of comparison."""
    x = _POINTS
    erf = np.array([math.erf(value) for value in x / math.sqrt(2)])
    return {
        "relu6": np.clip(x, 0, 6),
        "hardsigmoid": np.clip(x / 6 + 0.5, 0, 1),
        "hardswish": x * np.clip(x / 6 + 0.5, 0, 1),
        "swish": x / (1 + np.exp(-x)),
        "quick_gelu": x / (1 + np.exp(-1.702 * x)),
        "gelu": x / 2 * (1 + erf),
        "mish": x * np.tanh(np.log1p(np.exp(x))),
    }


_VALUES = _functions()

PATTERNS = frozenset({*_VALUES, *NORMALIZATIONS})
"""Names of all patterns."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Nodes that together compute one known operation.

    Attributes:
        name: What they compute.
        nodes: Their names in execution order.
        entry: The tensor they work on.
        exit: The tensor they compute; all others between them are read by nobody else.
    """

    name: str
    nodes: tuple[str, ...]
    entry: str
    exit: str


def find_patterns(model: Model) -> tuple[Pattern, ...]:
    """All patterns of a model's main graph, in order of their last nodes; one may be a part of another."""
    graph = _PatternGraph(model)
    found: dict[tuple[str, str], Pattern] = {}
    for node in graph.nodes:
        match = match_normalization(node, graph) or _match_function(node, graph)
        if match is not None and graph.is_closed(match[1], node):
            name, nodes, entry = match
            pattern = Pattern(name, tuple(graph.in_order(nodes)), entry, node.output[0])
            # Gain and offset of a normalization belong to it; without them it is found first.
            found.pop((name, pattern.nodes[0]), None)
            found[name, pattern.nodes[0]] = pattern
    return tuple(found.values())


class _PatternGraph:
    """Who computes and who reads what."""

    def __init__(self, model: Model) -> None:
        self._weights = Weights(model)
        self.nodes = [node for node in model.proto.graph.node if node.op_type != "Constant"]
        self.index = {node.name: place for place, node in enumerate(self.nodes)}
        self._producers = producers(self.nodes)
        self._outputs = {value.name for value in model.proto.graph.output}
        self._scalars: dict[str, Array | None] = {}

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        return {tensor: {node.name for node in found} for tensor, found in readers(self.nodes).items()}

    def producer(self, tensor: str) -> Any | None:
        """The node that computes a tensor; None for inputs and constants."""
        return self._producers.get(tensor)

    def place(self, tensor: str) -> int:
        """When a tensor is computed; -1 for inputs and constants."""
        node = self._producers.get(tensor)
        return self.index[node.name] if node is not None else -1

    def constant(self, tensor: str) -> bool:
        """Whether a tensor is a constant."""
        return tensor in self._weights.protos

    def scalar(self, tensor: str) -> Array | None:
        """The value of a constant of one element, float64."""
        if tensor not in self._scalars:
            one = self.constant(tensor) and math.prod(self._weights.shape(tensor)) == 1
            value = self._weights[tensor] if one else None
            usable = value is not None and value.dtype.kind not in "SUO"
            self._scalars[tensor] = value.astype(np.float64).reshape(()) if value is not None and usable else None
        return self._scalars[tensor]

    def in_order(self, names: set[str]) -> list[str]:
        """Node names in execution order."""
        return sorted(names, key=self.index.__getitem__)

    def is_closed(self, names: set[str], last: Any) -> bool:
        """Whether what these nodes compute is read by themselves alone, but for the result of the last one."""
        nodes = (self.nodes[self.index[name]] for name in names if name != last.name)
        inner = {tensor for node in nodes for tensor in node.output if tensor}
        return not inner & self._outputs and all(self._readers.get(tensor, set()) <= names for tensor in inner)


def _match_function(last: Any, graph: _PatternGraph) -> tuple[str, set[str], str] | None:
    """Walk backwards from a node until everything hangs on one tensor, and see which function of it that is."""
    if last.op_type not in _LAST_OPS or last.domain or len(last.output) != 1:
        return None
    for nodes, entry in _regions(last, graph):
        values = _evaluate(nodes, entry, graph)
        for name, expected in _VALUES.items():
            if np.allclose(values, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                return name, {node.name for node in nodes}, entry
    return None


def _regions(last: Any, graph: _PatternGraph) -> Iterator[tuple[list[Any], str]]:
    """Ever larger sets of nodes, in execution order, that compute the last one's result from one tensor."""
    nodes = [last]
    frontier = {name for name in last.input if name and graph.scalar(name) is None}
    while frontier and len(nodes) <= _MOST_NODES:
        if len(frontier) == 1:
            yield sorted(nodes, key=lambda node: graph.index[node.name]), next(iter(frontier))
        # What is computed last cannot be what the others are computed from.
        latest = max(sorted(frontier), key=graph.place)
        node = graph.producer(latest)
        if node is None or node.op_type not in POINTWISE or node.domain or len(node.output) != 1:
            return
        nodes.append(node)
        frontier = (frontier - {latest}) | {name for name in node.input if name and graph.scalar(name) is None}


def _evaluate(nodes: list[Any], entry: str, graph: _PatternGraph) -> Array:
    known = {entry: _POINTS, "": np.zeros(0)}
    for node in nodes:
        inputs = [known[name] if name in known else graph.scalar(name) for name in node.input]
        known[node.output[0]] = evaluate(node, [value for value in inputs if value is not None])
    return np.broadcast_to(known[nodes[-1].output[0]], _POINTS.shape)
