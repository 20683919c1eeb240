"""Where quantizers sit in a model: which of them each node input reads, checked against the graph."""

from collections.abc import Iterator, Sequence
from typing import Any

from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.numbers import check_numbers
from roundoff.graph.wiring import reads, subgraphs

__all__ = ["Edges", "rename_captured"]

_STALE = "plan the quantization again for this model"


class Edges:
    """The edges of a model that quantizers sit on.

    Attributes:
        leaving: Tensors that leave the network quantized, each with the quantizer that does it.

    Raises:
        BadInput: A quantizer names a tensor, a node or an input that is not there, has impossible numbers, or two
            contradict each other.
    """

    leaving: dict[str, Quantizer]

    def __init__(self, model: Model, quantizers: Sequence[Quantizer]) -> None:
        self._model = model
        self._by_name = {quantizer.name: quantizer for quantizer in quantizers}
        if len(self._by_name) < len(quantizers):
            names = [quantizer.name for quantizer in quantizers]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"Two quantizers are called {twice!r}.", fix="give each a name of its own")
        _check_tensors(model, quantizers)
        check_numbers(model, quantizers)
        self._check_chains()
        self.leaving = self._leaving()
        self._readers: dict[Consumer, Quantizer] = {}
        nodes = {node.name: node for node in model.proto.graph.node}
        for quantizer in quantizers:
            for consumer in quantizer.consumers:
                _check_consumer(quantizer, consumer, nodes, model)
                self._add_reader(quantizer, consumer)
        used = {quantizer.name for quantizer in (*self._readers.values(), *self.leaving.values())}
        self._of_tensor: dict[str, list[Quantizer]] = {}
        for quantizer in quantizers:
            if quantizer.name in used:
                self._of_tensor.setdefault(quantizer.tensor, []).append(quantizer)

    def of_tensor(self, tensor: str) -> list[Quantizer]:
        """The quantizers of a tensor whose results are read or leave the network."""
        return self._of_tensor.get(tensor, [])

    def read_by(self, node: str, position: int) -> Quantizer | None:
        """The quantizer whose result one input of a node takes; None when it takes the float values."""
        return self._readers.get(Consumer(node, position))

    def before(self, quantizer: Quantizer) -> Quantizer | None:
        """The quantizer whose result this one quantizes again; None when it takes the float values."""
        return self._by_name.get(quantizer.after)

    def _chain(self, quantizer: Quantizer) -> Iterator[Quantizer]:
        """Those before it, the nearest first."""
        before = self.before(quantizer)
        while before is not None:
            yield before
            before = self.before(before)

    def _check_chains(self) -> None:
        for quantizer in self._by_name.values():
            seen = {quantizer.name}
            before = self.before(quantizer)
            while before is not None:
                if before.tensor != quantizer.tensor:
                    what = f"Quantizer {quantizer.name!r} follows {before.name!r}, which quantizes another tensor."
                    raise BadInput(what, fix="let it follow one of the same tensor")
                if before.name in seen:
                    raise BadInput(f"Quantizer {before.name!r} follows itself.", fix=_STALE)
                seen.add(before.name)
                before = self.before(before)

    def _leaving(self) -> dict[str, Quantizer]:
        names = set(outputs(self._model))
        found: dict[str, Quantizer] = {}
        fed = {value.name for value in self._model.proto.graph.input}
        fed -= {tensor.name for tensor in self._model.proto.graph.initializer}
        for quantizer in self._by_name.values():
            if not quantizer.output:
                continue
            tensor = quantizer.tensor
            if tensor not in names:
                what = f"Quantizer {quantizer.name!r} is on the output {tensor!r}, which the model does not have."
                raise BadInput(what, fix=nearest(tensor, names))
            if tensor in fed:
                what = f"{tensor!r} is an input and an output at once, so what leaves is what comes in."
                raise BadInput(what, fix="leave that output in float, or put a node between")
            if tensor in found:
                what = (
                    f"Quantizers {found[tensor].name!r} and {quantizer.name!r} are both on the output {tensor!r}."
                )
                raise BadInput(what, fix="let only one of them be on the output")
            found[tensor] = quantizer
        return found

    def _add_reader(self, quantizer: Quantizer, consumer: Consumer) -> None:
        """Of quantizers that follow one another the last one counts."""
        other = self._readers.get(consumer)
        if other is None or any(before is other for before in self._chain(quantizer)):
            self._readers[consumer] = quantizer
        elif all(before is not quantizer for before in self._chain(other)):
            raise BadInput(
                f"Input {consumer.input} of node {consumer.node!r} is to read both {other.name!r} "
                f"and {quantizer.name!r}.",
                fix="leave one of them out, or let one follow the other",
            )


def _check_tensors(model: Model, quantizers: Sequence[Quantizer]) -> None:
    graph = model.proto.graph
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known.update(sparse.values.name for sparse in graph.sparse_initializer)
    known.update(name for node in graph.node for name in node.output if name)
    for quantizer in quantizers:
        if quantizer.tensor not in known:
            what = f"Quantizer {quantizer.name!r} is on {quantizer.tensor!r}, which {model.path} does not have."
            raise BadInput(what, fix=f"{_STALE}; {nearest(quantizer.tensor, known)}")


def _check_consumer(quantizer: Quantizer, consumer: Consumer, nodes: dict[str, Any], model: Model) -> None:
    node = nodes.get(consumer.node)
    if node is None:
        what = f"Quantizer {quantizer.name!r} feeds node {consumer.node!r}, which {model.path} does not have."
        raise BadInput(what, fix=f"{_STALE}; {nearest(consumer.node, nodes)}")
    if 0 <= consumer.input < len(node.input) and node.input[consumer.input] == quantizer.tensor:
        return
    place = f"input {consumer.input} of node {consumer.node!r} ({node.op_type})"
    if quantizer.tensor in reads(node) and quantizer.tensor not in node.input:
        raise BadInput(
            f"Quantizer {quantizer.name!r} feeds {place}, which reads {quantizer.tensor!r} only in a subgraph.",
            fix="leave that node out; nodes inside If, Loop and Scan stay in float",
        )
    what = f"Quantizer {quantizer.name!r} feeds {place}, but that does not read {quantizer.tensor!r}."
    raise BadInput(what, fix=_STALE)


def rename_captured(node: Any, names: dict[str, str]) -> None:
    """Give tensors that the subgraphs of a node take from outside their new names, in place."""
    for graph in subgraphs(node):
        inside = {value.name for value in (*graph.input, *graph.initializer)}
        inside.update(sparse.values.name for sparse in graph.sparse_initializer)
        inside.update(name for inner in graph.node for name in inner.output)
        outer = {old: new for old, new in names.items() if old not in inside}
        if not outer:
            continue
        for inner in graph.node:
            for position, name in enumerate(inner.input):
                inner.input[position] = outer.get(name, name)
            rename_captured(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)
