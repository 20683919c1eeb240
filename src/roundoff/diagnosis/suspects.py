"""Who can be to blame: quantizers, together with those that must be like them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.quantizers import Kind, Quantizer
from roundoff.graph.insertion import Edges
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import derived_constants, units
from roundoff.run.variants import written_quantizers
from roundoff.studies.layers.attribution import forwarded_tensors

__all__ = ["JOINING", "Suspect", "find_suspects", "same_grid"]

JOINING = frozenset({"Concat", "Add", "Sum", "Sub"})
"""Operations that bring tensors of different sizes together."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Quantizers that share one grid, because values only move between their tensors; mostly a single one.

    Attributes:
        name: Of the quantizer that stands for all.
        kind: What they quantize.
        quantizers: All of them.
        tensor: The tensor to blame.
        tensors: All tensors.
        node: The node to blame: the one that computes the tensor, or that has the weight; empty for an input.
        nodes: That one, and those computed in one unit with it.
        op_type: Operation of the node.
        join: The Concat or Add that brings their tensors together, or writes theirs; empty where there is none.
    """

    name: str
    kind: Kind
    quantizers: tuple[str, ...]
    tensor: str
    tensors: tuple[str, ...]
    node: str
    nodes: tuple[str, ...]
    op_type: str = ""
    join: str = ""


def same_grid(left: Quantizer, right: Quantizer) -> bool:
    """Whether two quantizers have the same codes for the same values."""
    return (
        left.spec == right.spec
        and left.params.scale.shape == right.params.scale.shape
        and bool(np.array_equal(left.params.scale, right.params.scale))
        and bool(np.array_equal(left.params.zero_point, right.params.zero_point))
    )


def find_suspects(quantized: QuantizedModel) -> tuple[Suspect, ...]:
    """All suspects of a network, in execution order."""
    return tuple(_Finder(quantized).find())


class _Finder:
    def __init__(self, quantized: QuantizedModel) -> None:
        model = quantized.float_model
        self._quantized = quantized
        self._edges = Edges(model, quantized.quantizers)
        self._nodes = {node.name: node for node in model.proto.graph.node}
        self._producers = {name: node for node in model.proto.graph.node for name in node.output if name}
        self._units = units(model, quantized.quantizers)
        self._constant = derived_constants(model.proto.graph)
        self._order = {name: at for at, node in enumerate(model.proto.graph.node) for name in node.output}
        self._leader: dict[str, str] = {}
        self._joins: dict[str, str] = {}

    def find(self) -> Iterator[Suspect]:
        everything = self._quantized.quantizers
        self._leader = {each.name: each.name for each in everything}
        self._unite_same_tensor(everything)
        self._unite_moved()
        self._unite_joined()
        groups: dict[str, list[Quantizer]] = {}
        for quantizer in everything:
            groups.setdefault(self._root(quantizer.name), []).append(quantizer)
        for root, members in groups.items():
            yield self._suspect(members, self._joins.get(root, ""))

    def _root(self, name: str) -> str:
        while self._leader[name] != name:
            name = self._leader[name]
        return name

    def _unite(self, left: str, right: str, join: str = "") -> None:
        first, second = self._root(left), self._root(right)
        self._leader[second] = first
        join = join or self._joins.get(first, "") or self._joins.get(second, "")
        if join:
            self._joins[first] = join

    def _unite_same_tensor(self, quantizers: Sequence[Quantizer]) -> None:
        first: dict[str, Quantizer] = {}
        for quantizer in quantizers:
            known = first.setdefault(quantizer.tensor, quantizer)
            if known is not quantizer and same_grid(known, quantizer):
                self._unite(known.name, quantizer.name)

    def _unite_moved(self) -> None:
        written = written_quantizers(self._quantized.float_model, self._edges)
        for tensor, sources in forwarded_tensors(self._quantized, written).items():
            for source in sources:
                if (
                    source in written
                    and source not in self._constant
                    and same_grid(written[source], written[tensor])
                ):
                    join = self._producers[tensor]
                    self._unite(
                        written[source].name, written[tensor].name, join.name if join.op_type in JOINING else ""
                    )

    def _unite_joined(self) -> None:
        """An Add whose operands and result share one scale."""
        written = written_quantizers(self._quantized.float_model, self._edges)
        for tensor, quantizer in written.items():
            node = self._producers.get(tensor)
            if node is None or node.op_type not in JOINING or node.op_type == "Concat":
                continue
            read = [self._edges.read_by(node.name, at) for at in range(len(node.input))]
            if all(each is not None and same_grid(each, quantizer) for each in read):
                for each in read:
                    if each is not None:
                        self._unite(each.name, quantizer.name, node.name)

    def _suspect(self, members: Sequence[Quantizer], join: str) -> Suspect:
        main = min(members, key=lambda each: self._order.get(each.tensor, -1))
        if join:
            written = set(self._nodes[join].output)
            main = next((each for each in members if each.tensor in written), main)
        node = self._blamed(main)
        if not join and node is not None and node.op_type in JOINING:
            join = node.name
        unit = self._units.members.get(self._units.unit_of.get(node.name, ""), ()) if node is not None else ()
        name = "" if node is None else node.name
        return Suspect(
            name=main.name,
            kind=main.kind,
            quantizers=tuple(each.name for each in members),
            tensor=main.tensor,
            tensors=tuple(dict.fromkeys((main.tensor, *(each.tensor for each in members)))),
            node=name,
            nodes=tuple(dict.fromkeys((*filter(None, [name]), *unit))),
            op_type="" if node is None else node.op_type,
            join=join if main.kind != "bias" else "",
        )

    def _blamed(self, quantizer: Quantizer) -> Any:
        """The node that has a constant, or computes a tensor; for an input of the network the first to read it."""
        if quantizer.kind == "activation" and quantizer.tensor in self._producers:
            return self._producers[quantizer.tensor]
        readers: Mapping[str, Any] = self._nodes
        return next((readers[each.node] for each in quantizer.consumers), None)
