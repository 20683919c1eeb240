"""Where the error at a network's outputs comes from, estimated from what each unit adds.

Independent errors add up in energy. So of the error of a tensor in the running quantized network, the share
``own / accumulated`` was added by the unit that writes it, and the rest came with its inputs. From the outputs
backwards that splits the error among all units without running the network once for each of them.

A wrecked tensor cannot get worse, and its last wrecker would seem to have done it all. What keeps adding up is the
logarithm of what is left: two stages that each keep half of a signal keep a quarter together. That is the `loss`
here; for small errors it equals the energy of the error over that of the tensor.
"""

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.coverage import Judgement
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import NodeInfo, Topology
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import topology
from roundoff.graph.nodes import constants
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import units
from roundoff.measure.light_pairs import ErrorTotals
from roundoff.measure.metrics import ratio_db
from roundoff.measure.verdicts import ThresholdSet, may_say
from roundoff.run.bench import spread_over
from roundoff.run.variants import FUSED, LayerTensor, written_quantizers
from roundoff.studies.layers.experiments import Proof, Role, UnitParts, UnitQuantizers
from roundoff.studies.layers.measurement import LayerBench, Tally
from roundoff.studies.layers.result import Cause, Culprit, Introduced, LayerRow, LayerScore, LayerVerdict

# Operations whose result takes over the errors of its inputs as they are; elsewhere relative errors add up.
_ADDITIVE = frozenset({"Add", "Concat", "Max", "Mean", "Min", "Sub", "Sum", "Where"})
# An error beyond measure, such as NaN, counts as this many times the tensor's energy.
_ENDLESS = 1e6
# A cosine below this is nothing in common; it cannot be told from chance.
_LEAST_COMMON = 0.01
# Mean squared error of rounding, in squared steps.
_ROUNDING, _FLOOR = 1 / 12, 1 / 3
# Channels with less of the mean channel's energy than this carry no signal to lose.
_QUIET_CHANNEL = 1e-6
# An error of more than half of a channel's energy, 3 dB, leaves nothing of it.
_LOST = 0.5


@dataclass(frozen=True, slots=True)
class OwnError:
    """What a unit adds to the tensor it writes, its inputs being exact.

    Attributes:
        ratio: Energy of the error over that of the tensor.
        loss: The same on the scale on which losses add up.
        channel_ratio: The same in the median channel.
        cause: What makes most of it.
        clipped: Share of the float values that are cut off.
        used_levels: Distinct codes that occur.
        channels: What the channels lose; None without any.
        quantizer_cause: What makes most of what the quantizer of the tensor alone adds.
    """

    ratio: float
    loss: float
    channel_ratio: float
    cause: Cause
    clipped: float | None
    used_levels: int | None
    channels: "ChannelLoss | None" = None
    quantizer_cause: Cause = "rounding"


@dataclass(frozen=True, slots=True)
class ChannelLoss:
    """What the channels of a tensor lose; silent ones do not count.

    Attributes:
        worst: The one with the largest error over its own energy.
        worst_ratio: That ratio.
        lost: How many have an error of more than half of their energy.
        count: How many there are.
        median_ratio: That of the median channel.
        mean_loss: What they lose on average, on the scale on which losses add up.
    """

    worst: int
    worst_ratio: float
    lost: int
    count: int
    median_ratio: float
    mean_loss: float


def own_error(tally: Tally, *, has_weights: bool) -> OwnError:
    """What a unit adds, from the variants ``own`` and ``coded`` of the tensor it writes.

    Args:
        tally: The tensor; an input of the network has the variant ``coded`` only.
        has_weights: Whether the unit has weights or biases that are quantized.
    """
    coded = tally.variants["coded"]
    part = tally.variants.get("own", coded)
    ratio, channels = _ratio(part.totals), _channel_loss(part.totals)
    by_quantizer = _quantizer_cause(tally)
    cause = "weights" if has_weights and _costs_more(part.totals, coded.totals) else by_quantizer
    quantized = tally.tensor.quantizer is not None and tally.count > 0
    return OwnError(
        ratio=ratio,
        loss=loss_of(part.totals),
        channel_ratio=ratio if channels is None else channels.median_ratio,
        cause=cause,
        clipped=tally.clipped / tally.count if quantized else None,
        used_levels=None if part.levels is None else part.levels.used,
        channels=channels,
        quantizer_cause=by_quantizer,
    )


def _costs_more(whole: ErrorTotals, rounding: ErrorTotals) -> bool:
    """Whether more is lost by the weights than by the quantizer of the result, in the average channel.

    By energy alone a large channel would decide, and small ones could be wiped out without a word.
    """
    with_weights, alone = _channel_loss(whole), _channel_loss(rounding)
    if with_weights is None or alone is None:
        return _ratio(whole) > 2 * _ratio(rounding)
    return with_weights.mean_loss > 2 * alone.mean_loss


def _quantizer_cause(tally: Tally) -> Cause:
    """Whether most of the error of a quantizer is more than rounding explains."""
    sums, quantizer = tally.variants["coded"].totals, tally.tensor.quantizer
    if quantizer is None or not tally.clipped:
        return "rounding"
    if _made_finite(sums):
        return "clipping"
    squared_steps = float(np.square(quantizer.params.scale.astype(np.float64)).mean())
    rounding = sums.count * squared_steps * (_FLOOR if quantizer.spec.rounding == "floor" else _ROUNDING)
    return "clipping" if sums.error > 2 * rounding else "rounding"


def _channel_loss(sums: ErrorTotals) -> ChannelLoss | None:
    channels = sums.channels
    if channels is None:
        return None
    loud = np.flatnonzero(channels.reference > _QUIET_CHANNEL * channels.reference.mean())
    if not loud.size:
        return None
    ratios = np.minimum(channels.error[loud] / channels.reference[loud], _ENDLESS)
    worst = int(ratios.argmax())
    return ChannelLoss(
        worst=int(loud[worst]),
        worst_ratio=float(ratios[worst]),
        lost=int(np.count_nonzero(ratios > _LOST)),
        count=int(loud.size),
        median_ratio=float(np.median(ratios)),
        mean_loss=float(np.log1p(ratios).mean()),
    )


def output_shares(
    topology: Topology,
    own: Mapping[str, OwnError],
    accumulated: Mapping[str, ErrorTotals],
    *,
    inside: Collection[str],
) -> dict[str, float]:
    """Split the error at the outputs among the tensors at which it was added; the shares sum up to 1.

    Args:
        topology: The float network.
        own: What was added at each tensor, inputs of the network included.
        accumulated: The error of each tensor in the running quantized network, likewise.
        inside: Tensors that never leave their units; what is added there is counted at the unit's end.
    """
    losses = {name: loss_of(sums) for name, sums in accumulated.items()}
    lost = {name: losses.get(name, 0.0) for name in topology.outputs}
    total = math.fsum(lost.values())
    blame = {name: loss / total for name, loss in lost.items() if loss}
    shares: dict[str, float] = {}
    ends: dict[str, str] = {}
    for node in reversed(topology.nodes):
        for tensor in node.outputs:
            part = blame.pop(tensor, 0.0)
            if not part:
                continue
            added = 0.0 if tensor in inside or tensor not in own else own[tensor].loss
            fraction = min(1.0, added / losses[tensor]) if losses.get(tensor) else 1.0
            sources = _sources(node, tensor, losses, accumulated)
            if not sources:
                fraction = 1.0
            end = ends.get(tensor, tensor)
            shares[end] = shares.get(end, 0.0) + part * fraction
            ends |= {name: end for name in sources if name in inside}
            for name, weight in sources.items():
                blame[name] = blame.get(name, 0.0) + part * (1 - fraction) * weight
    for name, part in blame.items():  # what is left has come to the inputs of the network
        shares[name] = shares.get(name, 0.0) + part
    return {name: share for name, share in shares.items() if share > 0}


def _sources(
    node: NodeInfo, tensor: str, losses: Mapping[str, float], accumulated: Mapping[str, ErrorTotals]
) -> dict[str, float]:
    """In which parts the error that a node inherits comes from each of its inputs."""
    if node.op_type in _ADDITIVE:
        size = accumulated[tensor].count if tensor in accumulated else 0
        weights = {
            name: _spread_energy(accumulated[name], size, node) for name in node.inputs if name in accumulated
        }
    else:
        weights = {name: losses[name] for name in node.inputs if name in losses}
    total = math.fsum(weights.values())
    return {name: weight / total for name, weight in weights.items() if weight} if total else {}


def _spread_energy(sums: ErrorTotals, size: int, node: NodeInfo) -> float:
    """The energy of an input's error in the result, where a smaller input may be broadcast."""
    repeats = size / sums.count if node.op_type != "Concat" and sums.count else 1.0
    energy = sums.error * max(1.0, repeats)
    return min(energy, _ENDLESS * max(sums.reference, 1.0))


def loss_of(sums: ErrorTotals) -> float:
    """How much of a tensor an error destroys, on a scale on which independent losses add up."""
    ratio, energy = _ratio(sums), sums.reference * sums.candidate
    if ratio == 0:
        return 0.0
    # The error of a tensor that has nothing in common with the right one is no larger than both together, so the
    # energy of the error alone would not show it.
    common = sums.product / math.sqrt(energy) if energy > 0 else 1.0
    return max(math.log1p(ratio), -2 * math.log(min(1.0, max(_LEAST_COMMON, common))))


def _ratio(sums: ErrorTotals) -> float:
    """Energy of the error over that of the tensor; an infinite value that has become a finite one is lost."""
    return min(max(sums.noise_ratio, _made_finite(sums)), _ENDLESS)


def _made_finite(sums: ErrorTotals) -> float:
    """Share of elements that were infinite and are so no more, as the limits of a mask behind a quantizer."""
    more = sums.nonfinite[0] - sums.nonfinite[1]
    return more / (sums.count + sums.excluded) if more > 0 else 0.0


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
        sources = _moved_tensors(node, edges, constant)
        for tensor in node.output:
            quantizer = written.get(tensor)
            if sources and quantizer is not None and all(_same_grid(each, quantizer) for each in sources.values()):
                found[tensor] = tuple(sources)
    return found


def _moved_tensors(node: Any, edges: Edges, constant: frozenset[str]) -> dict[str, Quantizer]:
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


# What each unit contributes.


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
    own: OwnError
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


ATTRIBUTION_SAMPLES = 4
"""What units add themselves is measured on so many samples, evenly spaced."""


def find_contributions(
    layers: LayerBench, tallies: Mapping[str, Tally], indices: Sequence[int]
) -> list[Contribution]:
    """Find out what units add themselves, and estimate what of it arrives at the outputs.

    Args:
        layers: The network and the samples.
        tallies: What was measured of each tensor, accumulated among it.
        indices: The samples it was measured on.
    """
    quantized = layers.quantized
    edges = Edges(quantized.float_model, quantized.quantizers)
    forwarded = forwarded_tensors(quantized, written_quantizers(quantized.float_model, edges))
    known = _Known(_weighted_nodes(quantized), UnitParts(quantized, forwarded))
    added = layers.reference(("own", "coded"), spread_over(indices, ATTRIBUTION_SAMPLES), fused=False)
    own = {
        name: _with_integers(own_error(tally, has_weights=tally.tensor.unit in known.weighted), tallies.get(name))
        for name, tally in added.items()
        if name not in forwarded
    }
    inside = {tensor.name for tensor in layers.tensors if tensor.quantized == FUSED}
    shares = output_shares(topology(quantized.float_model), own, _accumulated(tallies, added), inside=inside)
    return [
        known.contribution(tensor, own[tensor.name], shares.get(tensor.name, 0.0))
        for tensor in layers.tensors
        if tensor.name in own and tensor.name not in inside and own[tensor.name].ratio
    ]


def _accumulated(tallies: Mapping[str, Tally], added: Mapping[str, Tally]) -> dict[str, ErrorTotals]:
    """The accumulated error of each tensor; that of the network's inputs is what their quantizers add."""
    found = {name: tally.variants["coded"].totals for name, tally in added.items() if name not in tallies}
    return found | {name: tally.variants["accumulated"].totals for name, tally in tallies.items()}


def _with_integers(own: OwnError, tally: Tally | None) -> OwnError:
    """Add what integer arithmetic costs beyond fake quantization, where it was measured and is the larger part."""
    if tally is None or "reference" not in tally.variants:
        return own
    integer, reference = (tally.variants[variant].totals for variant in ("local", "reference"))
    excess = integer.noise_ratio - reference.noise_ratio
    if not excess > own.ratio:
        return own
    ratio = own.ratio + excess
    return replace(own, ratio=ratio, loss=own.loss + excess, channel_ratio=ratio, cause="integer arithmetic")


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of all units: the first node with weights in each, and the quantizers of each."""

    weighted: Mapping[str, tuple[str, str]]
    parts: UnitParts

    def contribution(self, tensor: LayerTensor, own: OwnError, share: float) -> Contribution:
        writer = tensor.value.node, tensor.value.op_type
        return Contribution(
            writer=writer,
            weighted=self.weighted.get(tensor.unit, writer),
            tensor=tensor.name,
            own=own,
            share=share,
            levels=tensor.levels,
            parts=self.parts.of(tensor.name, tensor.unit),
        )


def _weighted_nodes(quantized: QuantizedModel) -> dict[str, tuple[str, str]]:
    """Name and operation of the first node with quantized weights in each unit that has one."""
    weighted = {
        consumer.node
        for quantizer in quantized.quantizers
        if quantizer.kind != "activation"
        for consumer in quantizer.consumers
    }
    unit_of = units(quantized.float_model, quantized.quantizers).unit_of
    found: dict[str, tuple[str, str]] = {}
    for node in quantized.float_model.proto.graph.node:
        if node.name in weighted:
            found.setdefault(unit_of.get(node.name, node.name), (node.name, node.op_type))
    return found


# Whether a loss is local or accumulates, and who is to blame.


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


_AGREES = {"fine": True, "lossy": False}

Prover = Callable[[Sequence[Sequence[Contribution]], int], Proof]
"""Tries units in some orders, at most so many of each, and says what came of it."""


def judge(
    rows: Sequence[LayerRow],
    contributions: Sequence[Contribution],
    thresholds: ThresholdSet,
    prove: Prover,
    *,
    judgement: Judgement | None = None,
) -> LayerVerdict:
    """Decide whether the loss is local or distributed; whether there is one at all is the judge's word.

    Args:
        rows: All rows, with accumulated scores.
        contributions: Of all units that add an error.
        thresholds: What the outputs must keep.
        prove: Called when something is lost, to find out what takes it away.
        judgement: What the one judge says of the outputs; they are judged by the rows alone without it.
    """
    outputs, agrees = judge_outputs(rows, thresholds)
    kept, limits = agrees, thresholds.describe()
    if judgement is not None and judgement.grade in _AGREES:
        agrees = _AGREES[judgement.grade]
        # What the judge misses may be another limit than those of tensors.
        limits = judgement.limits or limits if kept and not agrees else limits
    damaged = any(row.output and row.accumulated and row.accumulated.status == "nonfinite" for row in rows)
    if damaged or (outputs and agrees is None):
        return LayerVerdict("open", outputs, agrees, limits)
    ranked = sorted(contributions, key=lambda each: each.share, reverse=True)
    limit = _usual(ranked) - (_STANDS_FAR_OUT_DB if agrees else _STANDS_OUT_DB)
    worst = min((_db(row.accumulated) for row in rows if row.output and row.accumulated), default=math.inf)
    outstanding = [each for each in ranked if each.badness_db <= limit]
    fine = LayerVerdict("fine", outputs, agrees, limits, contributors=len(ranked))
    passes = bool(agrees) and worst >= _LITTLE_LOST_DB
    worth = [each for each in outstanding if each.share >= _WORTH_TRYING]
    proof = None
    if ranked and not (passes and (worst >= _NOTHING_LOST_DB or not worth)):
        # Where the outputs agree, only units that are known to be bad are accused of what little is lost.
        # Elsewhere units are tried by their estimated shares, then by what they add: the estimate may be wrong.
        worst_first = sorted(outstanding, key=lambda each: each.badness_db)
        spoilt = [ranked, worst_first] if worst_first else [ranked]
        orders = [worth] if passes else [ranked] if agrees else spoilt
        proof = prove(orders, min(_MOST_NAMED, math.ceil(_FEW * len(ranked))))
    verdict = fine if proof is None else _verdict(fine, proof, ranked, passes=passes)
    if judgement is not None and not may_say("layers", verdict.kind, judgement):
        # Where the outputs are fine, what adds up over many units is what the arithmetic costs.
        # What few units would give back is worth a word, and no verdict.
        told = replace(verdict, kind="fine") if verdict.kind == "local" else fine
        verdict = told if judgement.good else replace(verdict, kind="open")
    named = {*verdict.tried, *(each.tensor for each in verdict.culprits)}
    masked = [
        each.tensor
        for each in ranked
        if each.tensor not in named and ratio_db(1.0, each.own.ratio) <= min(limit, _RUINED_DB)
    ]
    return replace(verdict, masked=tuple(masked))


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
    agrees = all(thresholds.holds(score_values(score)) for score in judged) if judged else None
    return tuple(name for name, _ in scored), agrees


def _without_numbers(score: LayerScore) -> bool:
    """Whether there is nothing to judge: text, a sequence, no element, or none that is finite."""
    return score.status == "unreadable" or (score.status != "shape" and score.sqnr_db is None)


def score_values(score: LayerScore) -> dict[str, float]:
    """What thresholds ask of a score; nothing where it has NaN or no numbers, so that none holds."""
    if score.sqnr_db is None or score.cosine is None or score.status == "nonfinite":
        return {}
    relative = 0.0 if score.sqnr_db == math.inf else 10 ** (-score.sqnr_db / 20)
    return {"cosine": score.cosine, "sqnr_db": score.sqnr_db, "relative_euclidean": relative}


def _db(score: LayerScore) -> float:
    if _without_numbers(score):
        return math.inf
    return -math.inf if score.sqnr_db is None else score.sqnr_db


def _usual(contributions: Sequence[Contribution]) -> float:
    """The level of the median unit."""
    levels = [each.badness_db for each in contributions if math.isfinite(each.badness_db)]
    return statistics.median(levels) if len(levels) >= _FEWEST_UNITS else _USUAL_DB
