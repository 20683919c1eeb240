"""Layer normalization and its relative without the mean, as exporters spell them out."""

from collections.abc import Iterator
from typing import Any, Protocol

from roundoff.core.tensors import Array
from roundoff.graph.pointwise import attributes

__all__ = ["NORMALIZATIONS", "match_normalization"]

NORMALIZATIONS = frozenset({"layernorm", "rmsnorm"})

_Match = tuple[str, set[str], str]


class _Graph(Protocol):
    """What of a graph is needed here."""

    def producer(self, tensor: str) -> Any | None: ...

    def constant(self, tensor: str) -> bool: ...

    def scalar(self, tensor: str) -> Array | None: ...


def match_normalization(last: Any, graph: _Graph) -> _Match | None:
    """Recognise the last node of a normalization: the quotient, or the gain or offset behind it.

    Returns:
        Its name, the names of its nodes and the tensor that is normalized.
    """
    names: set[str] = set()
    node = last
    for op_type in ("Add", "Mul"):
        step = _constant_step(node, op_type, graph)
        if step is not None and graph.producer(step) is not None:
            names.add(node.name)
            node = graph.producer(step)
    found = _quotient(node, graph)
    return (found[0], names | found[1], found[2]) if found is not None else None


def _constant_step(node: Any, op_type: str, graph: _Graph) -> str | None:
    """The live operand of a node that adds or multiplies a constant."""
    if node.op_type != op_type or node.domain or len(node.input) != 2:
        return None
    live = [name for name in node.input if not graph.constant(name)]
    return live[0] if len(live) == 1 else None


def _quotient(node: Any, graph: _Graph) -> _Match | None:
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


def _fractions(node: Any, graph: _Graph) -> Iterator[tuple[str, str, set[str]]]:
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


def _inverted(node: Any, graph: _Graph) -> Any | None:
    """The node whose reciprocal a node computes."""
    if node.op_type == "Reciprocal":
        return graph.producer(node.input[0])
    if node.op_type == "Div" and _is(graph.scalar(node.input[0]), 1):
        return graph.producer(node.input[1])
    return None


def _roots(numerator: str, node: Any, power: float, graph: _Graph) -> Iterator[tuple[str, str, set[str]]]:
    """Read a node as this power of a tensor."""
    if (node.op_type == "Sqrt" and power == 0.5) or (
        node.op_type == "Pow" and _is(graph.scalar(node.input[1]), power)
    ):
        yield numerator, node.input[0], {node.name}


def _mean_square(radicand: str, graph: _Graph) -> tuple[set[str], str] | None:
    """Read a tensor as ``mean(d * d) + epsilon``: its nodes and ``d``."""
    added = graph.producer(radicand)
    live = _constant_step(added, "Add", graph) if added is not None else None
    mean = graph.producer(live) if live is not None else None
    square = graph.producer(mean.input[0]) if mean is not None and _is_mean(mean, graph) else None
    if added is None or mean is None or square is None or not _is_square(square, graph):
        return None
    return {added.name, mean.name, square.name}, square.input[0]


def _is_square(node: Any, graph: _Graph) -> bool:
    if node.op_type == "Mul":
        return bool(node.input[0] == node.input[1])
    return bool(node.op_type == "Pow") and _is(graph.scalar(node.input[1]), 2)


def _centred(tensor: str, graph: _Graph) -> tuple[str, set[str]] | None:
    """Read a tensor as ``x - mean(x)``: ``x`` and the nodes of it."""
    node = graph.producer(tensor)
    if node is None or node.op_type != "Sub" or node.domain:
        return None
    mean = graph.producer(node.input[1])
    if mean is None or mean.input[0] != node.input[0] or not _is_mean(mean, graph):
        return None
    return node.input[0], {node.name, mean.name}


def _is_mean(node: Any, graph: _Graph) -> bool:
    """Whether a node takes the mean along one axis and keeps it; along several it is another normalization."""
    if node.op_type != "ReduceMean" or node.domain:
        return False
    given = attributes(node)
    one = len(given.get("axes", ())) == 1 or (len(node.input) > 1 and graph.scalar(node.input[1]) is not None)
    return one and given.get("keepdims", 1) == 1


def _is(value: Array | None, expected: float) -> bool:
    return value is not None and abs(float(value) - expected) < 1e-6
