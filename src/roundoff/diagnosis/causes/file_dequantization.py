"""Codes in the file of a quantized model that are dequantized in another way than they were quantized."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.checks import WORSE_DB, FileCase, FileSuspect
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy
from roundoff.diagnosis.subject import loss_measures
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.nodes import producer_names
from roundoff.graph.quantized_model import Oddity
from roundoff.graph.weights import Weights
from roundoff.messages.message import as_message, message

# Scales that differ by less than this part are the same number, written otherwise.
_SAME = 1e-4
# What only moves codes leaves their scale as it is.
_MOVES = frozenset({"Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
# A file that is better by this much is so by more than the last bits.
_BETTER_DB = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class _OddPair:
    """A quantize node and a dequantize node of its codes that disagree, with scale and zero point of each.

    Attributes:
        tensor: What is quantized, by its name in the file.
        quantize: Index of the first in the graph.
        dequantize: Index of the second.
        ours: Scale and zero point of the first.
        theirs: Those of the second.
    """

    tensor: str
    quantize: int
    dequantize: int
    ours: tuple[Array, Array]
    theirs: tuple[Array, Array]


@cause("wrong-dequantization", of="file", order=20)
class FileDequantization:
    """Codes in the file are dequantized with another scale or zero point than they were quantized with."""

    def signal(self, case: FileCase, suspect: FileSuspect) -> Signal | None:
        """Whether a quantize node and its dequantize node disagree."""
        del suspect
        if case.given is None or case.loss is None:
            return None
        pairs = _pairs(case)
        if pairs:
            first = pairs[0]
            with np.errstate(divide="ignore", invalid="ignore"):
                times = float(np.max(first.theirs[0] / first.ours[0]))
            return Signal(1.0, {"pairs": float(len(pairs)), "scale_ratio": times})
        worse = case.loss.excess_db(case.case.loss(more=True)) >= WORSE_DB
        return Signal(1.0) if worse and _disagreements(case) else None

    def intervene(self, case: FileCase, suspect: FileSuspect) -> Intervention | None:
        """The file with the same numbers in both nodes of each such pair; or its quantizers alone."""
        del suspect
        if case.loss is None:
            return None
        pairs, odd = _pairs(case), _disagreements(case)
        right = _put_right(case, pairs) if pairs else case.case.loss(more=True)
        if right is None:
            return None
        producers = producer_names(case.case.facts.nodes.values())
        known = [each.tensor for each in pairs if each.tensor in producers]
        names = tuple(dict.fromkeys(known or [each.node for each in odd]))
        summary = next((as_message(each.text) for each in odd if each.node in names or not pairs), None)
        if summary is None:
            first = pairs[0]
            numbers = {"scale": float(first.ours[0].flat[0]), "other": float(first.theirs[0].flat[0])}
            summary = message("diagnosis.file_pairs_summary", tensor=first.tensor, **numbers)
        return Intervention(
            message("diagnosis.file_pairs_changed"),
            loss_measures(case.loss, right),
            1.0 if right.value < case.loss.value and case.loss.excess_db(right) >= _BETTER_DB else 0.0,
            summary,
            nodes=tuple(dict.fromkeys(producers.get(name, name) for name in names)),
            tensors=tuple(name for name in names if name in producers),
        )

    def remedy(self, case: FileCase, suspect: FileSuspect, proof: Intervention) -> Remedy:
        """The same scale on both sides."""
        del case, suspect, proof
        return Remedy(message("diagnosis.file_pairs_remedy"), "free")


def _disagreements(case: FileCase) -> list[Oddity]:
    return [each for each in case.case.facts.quantized.oddities if each.kind == "disagreement"]


def _pairs(case: FileCase) -> list[_OddPair]:
    """All pairs that disagree, looked for once."""
    if "pairs" not in case.known:
        case.known["pairs"] = [] if case.given is None else list(_found(case.given))
    found: list[_OddPair] = case.known["pairs"]
    return found


def _found(given: Model) -> Iterator[_OddPair]:
    nodes, weights = given.proto.graph.node, Weights(given)
    at = {name: place for place, node in enumerate(nodes) for name in node.output}
    for place, node in enumerate(nodes):
        source = at.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        while source is not None and nodes[source].op_type in _MOVES:
            source = at.get(nodes[source].input[0])
        if source is None or nodes[source].op_type != "QuantizeLinear":
            continue
        first = nodes[source]
        if {first.input[1], node.input[1]} <= set(weights.protos):
            ours, theirs = _numbers(first, weights), _numbers(node, weights)
            if ours[0].shape == theirs[0].shape and not _agree(ours, theirs):
                yield _OddPair(first.input[0], source, place, ours, theirs)


def _numbers(node: Any, weights: Weights) -> tuple[Array, Array]:
    """Scale and zero point of a node."""
    scale = weights[node.input[1]].astype(np.float64)
    stored = len(node.input) > 2 and node.input[2] in weights.protos
    zero = weights[node.input[2]].astype(np.int64) if stored else np.zeros(scale.shape, np.int64)
    return scale, zero


def _agree(ours: tuple[Array, Array], theirs: tuple[Array, Array]) -> bool:
    same = np.allclose(ours[0], theirs[0], rtol=_SAME, atol=0.0)
    return bool(same and np.array_equal(ours[1], theirs[1]))


def _put_right(case: FileCase, pairs: list[_OddPair]) -> Loss | None:
    """What the file loses when both nodes of each pair have the numbers of one; of the two ways the better."""

    def after(copied: Callable[[_OddPair], tuple[int, int]]) -> Loss | None:
        given = case.given
        if given is None:
            return None
        proto = type(given.proto)()
        proto.CopyFrom(given.proto)
        for pair in pairs:
            source, target = copied(pair)
            numbers = list(proto.graph.node[source].input[1:])
            del proto.graph.node[target].input[1:]
            proto.graph.node[target].input.extend(numbers)
        return case.measured(model_from_proto(proto, path=given.path), more=True)

    ways = (
        after(lambda pair: (pair.quantize, pair.dequantize)),
        after(lambda pair: (pair.dequantize, pair.quantize)),
    )
    return min((each for each in ways if each is not None), key=lambda each: each.value, default=None)
