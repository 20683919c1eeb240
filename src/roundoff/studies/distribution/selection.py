"""What the user wants to look at: nodes, tensors and quantizers, by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from roundoff.core.quantizers import Quantizer
from roundoff.errors import BadInput, nearest
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import hidden_tensors
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.reading.points import quantizer_names
from roundoff.graph.weights import Weights
from roundoff.graph.wiring import reads
from roundoff.messages.message import english
from roundoff.run.variants import written_quantizers
from roundoff.studies.distribution.result import InspectedKind

__all__ = ["Inspected", "find_inspected"]


@dataclass(frozen=True, slots=True, eq=False)
class Inspected:
    """One tensor at one place.

    Attributes:
        name: Of the node that has this output alone, or of the tensor; of the quantizer where that has several.
        kind: What that is.
        tensor: The tensor.
        node: The node that computes it; the first that reads it where it is a constant; empty for an input.
        op_type: That node's operation.
        quantizer: For a quantizer itself; for a node the one by which its output is written; None without any.
    """

    name: str
    kind: InspectedKind
    tensor: str
    node: str
    op_type: str
    quantizer: Quantizer | None

    @property
    def is_constant(self) -> bool:
        """Whether its values are part of the model."""
        return self.kind in ("weight", "bias", "constant")


def find_inspected(
    quantized: QuantizedModel, patterns: Sequence[str], *, kinds: Iterable[InspectedKind] = ()
) -> tuple[Inspected, ...]:
    """Everything that one of the patterns names, in execution order.

    A pattern that is exactly a name means that: of a node (all its outputs), else of a tensor, else of a
    quantizer, which can also go by the name other tools give it. Otherwise ``*`` stands for any
    characters, ``?`` for one, and the pattern is held against nodes; where none matches against constants, tensors
    and quantizers.

    Args:
        quantized: The model.
        patterns: Names or globs.
        kinds: Look only among these; among all by default.

    Raises:
        BadInput: A pattern matches nothing.
    """
    index = _InspectedIndex(quantized, frozenset(kinds))
    chosen = {place for pattern in patterns for place in index.match(pattern)}
    return tuple(index.entries[place] for place in sorted(chosen))


class _InspectedIndex:
    """Everything there is to look at, and what it can be called."""

    def __init__(self, quantized: QuantizedModel, kinds: frozenset[InspectedKind]) -> None:
        self._quantized = quantized
        self._kinds = kinds
        graph = quantized.float_model.proto.graph
        constants = Weights(quantized.float_model).protos
        edges = Edges(quantized.float_model, quantized.quantizers)
        written = written_quantizers(quantized.float_model, edges)
        self._by_tensor: dict[str, list[Quantizer]] = {}
        for quantizer in quantized.quantizers:
            self._by_tensor.setdefault(quantizer.tensor, []).append(quantizer)
        self.entries: list[Inspected] = []
        for value in graph.input:
            if value.name not in constants:
                self._add(Inspected(value.name, "node", value.name, "", "", written.get(value.name)))
                self._add_quantizers(value.name, "", "")
        seen: set[str] = set()
        for node in graph.node:
            if node.op_type == "Constant":
                continue
            for name in reads(node):
                if name in constants and name not in seen:
                    seen.add(name)
                    self._add_constant(name, node.name, node.op_type)
            outputs = [name for name in node.output if name]
            for name in outputs:
                label = node.name if len(outputs) == 1 else name
                self._add(Inspected(label, "node", name, node.name, node.op_type, written.get(name)))
                self._add_quantizers(name, node.name, node.op_type)

    def match(self, pattern: str) -> list[int]:
        """Places of what a pattern names."""
        for labels in self._tiers():
            found = [place for label, place in labels if label == pattern]
            if found:
                return found
        nodes, *others = self._tiers()
        for labels in (nodes, [each for tier in others for each in tier]):
            found = [place for label, place in labels if fnmatchcase(label, pattern)]
            if found:
                return found
        raise self._unknown(pattern)

    def _tiers(self) -> list[list[tuple[str, int]]]:
        """Names and what they mean: of nodes, of tensors, of quantizers; what comes first counts first."""
        nodes, tensors, quantizers, loose = [], [], [], []
        for place, each in enumerate(self.entries):
            if each.kind == "node":
                nodes.append((each.node or each.tensor, place))
                tensors.append((each.tensor, place))
            elif each.kind == "activation" and each.quantizer is not None:
                quantizers.append((each.quantizer.name, place))
                # Who knows only the node calls the quantizer of its result after it.
                loose += [(alias, place) for alias in quantizer_names(each.node) if each.node]
            else:
                own = each.tensor if each.quantizer is None else each.quantizer.name
                tensors += [(label, place) for label in dict.fromkeys((each.tensor, own))]
            if each.kind != "node" and each.quantizer is not None:
                quantizers += [(alias, place) for alias in quantizer_names(each.tensor)]
        return [nodes, tensors, quantizers, loose]

    def _add(self, entry: Inspected) -> None:
        if not self._kinds or entry.kind in self._kinds:
            self.entries.append(entry)

    def _add_quantizers(self, tensor: str, node: str, op_type: str) -> None:
        for name, quantizer in self._named_quantizers(tensor):
            self._add(Inspected(name, "activation", tensor, node, op_type, quantizer))

    def _add_constant(self, tensor: str, node: str, op_type: str) -> None:
        quantizers = self._named_quantizers(tensor)
        for name, quantizer in quantizers:
            kind: InspectedKind = "bias" if quantizer.kind == "bias" else "weight"
            self._add(Inspected(name, kind, tensor, node, op_type, quantizer))
        if not quantizers:
            self._add(Inspected(tensor, "constant", tensor, node, op_type, None))

    def _named_quantizers(self, tensor: str) -> list[tuple[str, Quantizer]]:
        """The quantizers of a tensor, called after it where there is but one."""
        found = self._by_tensor.get(tensor, [])
        return [(tensor if len(found) == 1 else each.name, each) for each in found]

    def _unknown(self, pattern: str) -> BadInput:
        model = self._quantized.float_model
        what = english(
            "{pattern!r} names no node, tensor or quantizer of {path}", pattern=pattern, path=model.path
        )
        if self._kinds:
            kinds = " or ".join(sorted(self._kinds))
            others = _InspectedIndex(self._quantized, frozenset())
            if any(
                fnmatchcase(label, pattern) or label == pattern for tier in others._tiers() for label, _ in tier
            ):
                return BadInput(
                    english("{pattern!r} names nothing of the kind {kinds}.", pattern=pattern, kinds=kinds),
                    fix=english("leave --kind out, or change it"),
                )
            what += english(" of the kind {kinds}", kinds=kinds)
        holder = hidden_tensors(model).get(pattern)
        if holder is not None:
            fix = english("it is computed inside of node {holder!r} and cannot be seen; take that", holder=holder)
            return BadInput(english("{what}.", what=what), fix=fix)
        known = dict.fromkeys(
            label for each in self.entries for label in (each.node, each.tensor, each.name) if label
        )
        return BadInput(english("{what}.", what=what), fix=nearest(pattern.strip("*?"), known))
