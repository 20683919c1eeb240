"""Whether a loss is local or accumulates, and who is to blame."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.graph.insertion import Edges
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.wiring import constants
from roundoff.measure.metrics import ratio_db
from roundoff.measure.thresholds import ThresholdSet
from roundoff.studies.layers.experiments import Proof, Role, UnitQuantizers
from roundoff.studies.layers.result import Cause, Culprit, Introduced, LayerRow, LayerScore, LayerVerdict

if TYPE_CHECKING:
    from roundoff.studies.layers.attribution import OwnError

__all__ = [
    "Contribution",
    "Prover",
    "forwarded_tensors",
    "judge",
    "judge_outputs",
]


# A unit stands out when what it adds is this much worse than what the median unit adds: where the outputs are
# spoilt and somebody must have done it, and where they are not.
_STANDS_OUT_DB, _STANDS_FAR_OUT_DB = 6.0, 10.0
# With fewer units there is no median to speak of; a healthy unit of 8 bits is at about this level.
_FEWEST_UNITS, _USUAL_DB = 4, 35.0
# Units worth a try where the outputs agree have at least this estimated share.
_WORTH_TRYING = 0.05
# A tensor that is this bad is worth a word even if it hardly shows at the outputs: another fault may hide it.
_RUINED_DB = 15.0
# Outputs that agree this well have nothing to explain, even if what little is lost comes from one place; and this
# well, even if they keep the thresholds, something is lost that is worth a word.
_NOTHING_LOST_DB, _LITTLE_LOST_DB = 30.0, 20.0
# Few units are this part of all that add an error, and not more than so many.
_FEW, _MOST_NAMED = 0.2, 8


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one unit adds, and what of it arrives at the outputs.

    Attributes:
        writer: Name and operation of the node that writes its result; empty for an input of the network.
        weighted: Those of the node that has its weights; the same where it has none.
        tensor: What the unit writes.
        own: What it adds.
        share: Estimated share of the error at the outputs.
        levels: Codes the tensor has.
        parts: Its quantizers.
    """

    writer: tuple[str, str]
    weighted: tuple[str, str]
    tensor: str
    own: "OwnError"
    share: float
    levels: int | None
    parts: UnitQuantizers

    @property
    def badness_db(self) -> float:
        """How good the unit is on its own, by the whole tensor or its median channel, whichever is worse."""
        return ratio_db(1.0, max(self.own.ratio, self.own.channel_ratio))

    def introduced(self) -> Introduced:
        """The same, for the row."""
        own = self.own
        return Introduced(ratio_db(1.0, own.ratio), ratio_db(1.0, own.channel_ratio), self.share, own.cause)

    def culprit(self, role: Role) -> Culprit:
        """The same, for the verdict, with the cause that was proven."""
        own, channels = self.own, self.own.channels
        cause = self._cause(role)
        node, op_type = self.weighted if cause in ("weights", "integer arithmetic") else self.writer
        return Culprit(
            node=node,
            op_type=op_type,
            weighted=self.weighted[0],
            tensor=self.tensor,
            introduced=replace(self.introduced(), cause=cause),
            clipped=own.clipped,
            used_levels=own.used_levels,
            levels=self.levels,
            remedy=self._remedy(role),
            quantized_again=role.quantized_again,
            weights_again=role.weights_again,
            result_again=role.result_again,
            worst_channel=None if channels is None else channels.worst,
            worst_channel_sqnr_db=None if channels is None else ratio_db(1.0, channels.worst_ratio),
            lost_channels=0 if channels is None else channels.lost,
            channels=0 if channels is None else channels.count,
        )

    def _cause(self, role: Role) -> Cause:
        """What was measured to cost more; where it was not, what makes most of the error at the tensor."""
        if self.own.cause == "integer arithmetic" or not role.costlier:
            return self.own.cause
        inside = "weights" if self.parts.weights else self.own.quantizer_cause
        return inside if role.costlier == "inside" else self.own.quantizer_cause

    def _remedy(self, role: Role) -> tuple[str, ...]:
        inside = (self.parts.rule(self.weighted[0]),) if role.inside else ()
        return (*inside, f"tensor:{self.tensor}=float") if role.result else inside


Prover = Callable[[Sequence[Sequence[Contribution]], int], Proof]
"""Tries units in some orders, at most so many of each, and says what came of it."""


def judge(
    rows: Sequence[LayerRow], contributions: Sequence[Contribution], thresholds: ThresholdSet, prove: Prover
) -> LayerVerdict:
    """Decide whether the loss is local or distributed.

    Args:
        rows: All rows, with accumulated scores.
        contributions: Of all units that add an error.
        thresholds: What the outputs must keep.
        prove: Called when something is lost, to find out what takes it away.
    """
    outputs, agrees = judge_outputs(rows, thresholds)
    damaged = any(row.output and row.accumulated and row.accumulated.status == "nonfinite" for row in rows)
    if damaged or (outputs and agrees is None):
        return LayerVerdict("open", outputs, agrees, thresholds.describe())
    ranked = sorted(contributions, key=lambda each: each.share, reverse=True)
    limit = _usual(ranked) - (_STANDS_FAR_OUT_DB if agrees else _STANDS_OUT_DB)
    worst = _worst_output_db(rows)
    outstanding = [each for each in ranked if each.badness_db <= limit]
    fine = LayerVerdict("fine", outputs, agrees, thresholds.describe(), contributors=len(ranked))
    passes = bool(agrees) and worst >= _LITTLE_LOST_DB
    worth = [each for each in outstanding if each.share >= _WORTH_TRYING]
    proof = None
    if ranked and not (passes and (worst >= _NOTHING_LOST_DB or not worth)):
        # Where the outputs agree, only units that are known to be bad are accused of what little is lost.
        orders = [worth] if passes else [ranked] if agrees else _orders(ranked, outstanding)
        proof = prove(orders, min(_MOST_NAMED, math.ceil(_FEW * len(ranked))))
    verdict = fine if proof is None else _verdict(fine, proof, ranked, passes=passes)
    named = {*verdict.tried, *(each.tensor for each in verdict.culprits)}
    masked = [
        each.tensor
        for each in ranked
        if each.tensor not in named and ratio_db(1.0, each.own.ratio) <= min(limit, _RUINED_DB)
    ]
    return replace(verdict, masked=tuple(masked))


def _orders(ranked: Sequence[Contribution], outstanding: Sequence[Contribution]) -> list[list[Contribution]]:
    """Units by their estimated shares, then by what they add themselves: the estimate may be wrong."""
    worst_first = sorted(outstanding, key=lambda each: each.badness_db)
    return [list(ranked), worst_first] if worst_first else [list(ranked)]


def _verdict(fine: LayerVerdict, proof: Proof, ranked: Sequence[Contribution], *, passes: bool) -> LayerVerdict:
    """The verdict after a proof was tried."""
    measured = replace(fine, before=proof.before.found, after=proof.after.found, tried=proof.tried)
    if not proof.holds:
        return fine if passes else replace(measured, kind="distributed")
    by_tensor = {each.tensor: each for each in ranked}
    culprits = tuple(by_tensor[tensor].culprit(role) for tensor, role in proof.roles.items())
    return replace(measured, kind="local", culprits=culprits)


def judge_outputs(rows: Sequence[LayerRow], thresholds: ThresholdSet) -> tuple[tuple[str, ...], bool | None]:
    """The outputs, worst first, and whether all keep the thresholds; None when nothing says so."""
    scored = [(row.tensor, row.accumulated) for row in rows if row.output and row.accumulated is not None]
    scored.sort(key=lambda pair: _db(pair[1]))
    judged = [score for _, score in scored if not _without_numbers(score)]
    agrees = all(_keeps(score, thresholds) for score in judged) if judged else None
    return tuple(name for name, _ in scored), agrees


def _without_numbers(score: LayerScore) -> bool:
    """Whether there is nothing to judge: text, a sequence, no element, or none that is finite."""
    return score.status == "unreadable" or (score.status != "shape" and score.sqnr_db is None)


def _keeps(score: LayerScore, thresholds: ThresholdSet) -> bool:
    if score.sqnr_db is None or score.cosine is None or score.status == "nonfinite":
        return False
    relative = 0.0 if score.sqnr_db == math.inf else 10 ** (-score.sqnr_db / 20)
    values = {"cosine": score.cosine, "sqnr_db": score.sqnr_db, "relative_euclidean": relative}
    return thresholds.holds(values)


def _db(score: LayerScore) -> float:
    if _without_numbers(score):
        return math.inf
    return -math.inf if score.sqnr_db is None else score.sqnr_db


def _worst_output_db(rows: Sequence[LayerRow]) -> float:
    return min((_db(row.accumulated) for row in rows if row.output and row.accumulated), default=math.inf)


def _usual(contributions: Sequence[Contribution]) -> float:
    """The level of the median unit."""
    levels = [each.badness_db for each in contributions if math.isfinite(each.badness_db)]
    return statistics.median(levels) if len(levels) >= _FEWEST_UNITS else _USUAL_DB


# Tensors that are only passed on: what they have of an error came with what they were made of.

# Every value of the result is a value of an input, so that what is on a grid stays on it.
_MOVING = frozenset(
    {
        "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "GlobalMaxPool", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip


def forwarded_tensors(quantized: QuantizedModel, written: Mapping[str, Quantizer]) -> dict[str, tuple[str, ...]]:
    """Tensors whose quantizer changes nothing: the values that are moved into them are on its grid already.

    Args:
        quantized: The float network and its quantizers.
        written: The quantizer by which each tensor is written.

    Returns:
        For each of them the tensors its values come from.
    """
    graph = quantized.float_model.proto.graph
    edges = Edges(quantized.float_model, quantized.quantizers)
    constant = constants(graph)
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.node:
        sources = _sources(node, edges, constant)
        for tensor in node.output:
            quantizer = written.get(tensor)
            if sources and quantizer is not None and all(_same_grid(each, quantizer) for each in sources.values()):
                found[tensor] = tuple(sources)
    return found


def _sources(node: Any, edges: Edges, constant: frozenset[str]) -> dict[str, Quantizer]:
    """What a node moves, with the quantizers it reads it by; nothing where it reads some of it in float."""
    if node.op_type not in _MOVING:
        return {}
    moved = node.input if node.op_type == "Concat" else node.input[:1]
    read = {name: edges.read_by(node.name, at) for at, name in enumerate(moved) if name not in constant}
    known = {name: quantizer for name, quantizer in read.items() if quantizer is not None}
    return known if len(known) == len(read) else {}


def _same_grid(left: Quantizer, right: Quantizer) -> bool:
    one_scale = left.params.scale.size == right.params.scale.size == 1
    if not one_scale or left.spec.dtype != right.spec.dtype or left.spec.narrow != right.spec.narrow:
        return False
    return bool(
        np.array_equal(left.params.scale.reshape(()), right.params.scale.reshape(()))
        and np.array_equal(left.params.zero_point.reshape(()), right.params.zero_point.reshape(()))
    )
