"""Units: nodes that quantized hardware computes as one, no tensor between them being quantized.

``Conv -> Relu -> [quantizer]`` is one unit: the sum of products goes through the Relu as it is, and is quantized
once, at the end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.randomness import RANDOM_OPS
from roundoff.graph.wiring import constants, reads, subgraphs

__all__ = ["Units", "derived_constants", "units"]


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
