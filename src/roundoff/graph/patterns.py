"""Operations that exporters spell out in several nodes: swish, hardswish, gelu, mish, layer normalization ...

A function of one number is recognised by what its nodes compute, not by how they are arranged: every way to write
it down is found, and a constant that makes it another function is not overlooked.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.normalization_patterns import NORMALIZATIONS, match_normalization
from roundoff.graph.pointwise import POINTWISE, evaluate
from roundoff.graph.weights import Weights
from roundoff.graph.wiring import reads

__all__ = ["PATTERNS", "Pattern", "find_patterns"]

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
    graph = _Graph(model)
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


class _Graph:
    """Who computes and who reads what."""

    def __init__(self, model: Model) -> None:
        self._weights = Weights(model)
        self.nodes = [node for node in model.proto.graph.node if node.op_type != "Constant"]
        self.index = {node.name: place for place, node in enumerate(self.nodes)}
        self._producers = {name: node for node in self.nodes for name in node.output if name}
        self._outputs = {value.name for value in model.proto.graph.output}
        self._scalars: dict[str, Array | None] = {}

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        readers = defaultdict(set)
        for node in self.nodes:
            for name in reads(node):
                readers[name].add(node.name)
        return readers

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
        return not inner & self._outputs and all(self._readers[tensor] <= names for tensor in inner)


def _match_function(last: Any, graph: _Graph) -> tuple[str, set[str], str] | None:
    """Walk backwards from a node until everything hangs on one tensor, and see which function of it that is."""
    if last.op_type not in _LAST_OPS or last.domain or len(last.output) != 1:
        return None
    for nodes, entry in _regions(last, graph):
        values = _evaluate(nodes, entry, graph)
        for name, expected in _VALUES.items():
            if np.allclose(values, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                return name, {node.name for node in nodes}, entry
    return None


def _regions(last: Any, graph: _Graph) -> Iterator[tuple[list[Any], str]]:
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


def _evaluate(nodes: list[Any], entry: str, graph: _Graph) -> Array:
    known = {entry: _POINTS, "": np.zeros(0)}
    for node in nodes:
        inputs = [known[name] if name in known else graph.scalar(name) for name in node.input]
        known[node.output[0]] = evaluate(node, [value for value in inputs if value is not None])
    return np.broadcast_to(known[nodes[-1].output[0]], _POINTS.shape)
