"""Whether a loss is local or accumulates, and who is to blame."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roundoff.analysis.layers.attribution import OwnError
from roundoff.core.layer_scores import Culprit, Introduced, LayerRow, LayerScore, LayerVerdict, VerdictKind
from roundoff.core.thresholds import ThresholdSet
from roundoff.metrics.error import ratio_db

__all__ = ["Contribution", "judge", "judge_outputs"]

# A unit stands out when what it adds is this much worse than what the median unit adds: where the outputs are
# spoilt and somebody must have done it, and where they are not.
_STANDS_OUT_DB, _STANDS_FAR_OUT_DB = 6.0, 10.0
# With fewer units there is no median to speak of; a healthy unit of 8 bits is at about this level.
_FEWEST_UNITS, _USUAL_DB = 4, 35.0
# Culprits explain at least this share of the outputs' error together; each at least this share of it all, and this
# part of what the first of them explains unless it is bad by any standard.
_MOST_OF_IT, _WORTH_NAMING, _BESIDE_THE_FIRST = 0.5, 0.05, 0.2
_BAD_DB = 20.0
# A tensor that is this bad is worth a word even if it hardly shows at the outputs: another fault may hide it.
_RUINED_DB = 15.0
# Outputs that agree this well have nothing to explain, even if what little is lost comes from one place; and this
# well, even if they keep the thresholds, something is lost that is worth a word.
_NOTHING_LOST_DB, _LITTLE_LOST_DB = 30.0, 20.0
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one unit adds, and what of it arrives at the outputs.

    Attributes:
        node: The node to look at; empty for an input of the network.
        op_type: Its operation.
        tensor: What the unit writes.
        own: What it adds.
        share: Share of the error at the outputs.
        levels: Codes the tensor has.
    """

    node: str
    op_type: str
    tensor: str
    own: OwnError
    share: float
    levels: int | None

    @property
    def badness_db(self) -> float:
        """How good the unit is on its own, by the whole tensor or its median channel, whichever is worse."""
        return ratio_db(1.0, max(self.own.ratio, self.own.channel_ratio))

    def introduced(self) -> Introduced:
        """The same, for the row."""
        own = self.own
        return Introduced(ratio_db(1.0, own.ratio), ratio_db(1.0, own.channel_ratio), self.share, own.cause)

    def culprit(self) -> Culprit:
        """The same, for the verdict."""
        return Culprit(
            node=self.node,
            op_type=self.op_type,
            tensor=self.tensor,
            introduced=self.introduced(),
            clipped=self.own.clipped,
            used_levels=self.own.used_levels,
            levels=self.levels,
        )


def judge(
    rows: Sequence[LayerRow], contributions: Sequence[Contribution], thresholds: ThresholdSet
) -> LayerVerdict:
    """Decide whether the loss is local or distributed.

    Args:
        rows: All rows, with accumulated scores.
        contributions: Of all units that add an error.
        thresholds: What the outputs must keep.
    """
    outputs, agrees = judge_outputs(rows, thresholds)
    ranked = sorted(contributions, key=lambda each: each.share, reverse=True)
    limit = _usual(ranked) - (_STANDS_FAR_OUT_DB if agrees else _STANDS_OUT_DB)
    worst = _worst_output_db(rows)
    named = [each for each in ranked if each.badness_db <= limit and _matters(each, ranked[0])]
    if not named and not agrees and ranked and ranked[0].share >= _MOST_OF_IT:
        named = ranked[:1]
    explained = math.fsum(each.share for each in named)
    local = explained >= _MOST_OF_IT and (not agrees or worst < _NOTHING_LOST_DB)
    fine = agrees and worst >= _LITTLE_LOST_DB
    kind: VerdictKind = "local" if local else "fine" if fine else "distributed"
    listed = named[:_MOST_NAMED] if local else []
    masked = [
        each.tensor
        for each in ranked
        if each not in named and ratio_db(1.0, each.own.ratio) <= min(limit, _RUINED_DB)
    ]
    return LayerVerdict(
        kind=kind,
        outputs=outputs,
        agrees=agrees,
        thresholds=thresholds.describe(),
        culprits=tuple(each.culprit() for each in listed),
        masked=tuple(masked),
        share=math.fsum(each.share for each in listed) if local else ranked[0].share if ranked else None,
        contributors=len(ranked),
        half=_half(ranked),
    )


def judge_outputs(rows: Sequence[LayerRow], thresholds: ThresholdSet) -> tuple[tuple[str, ...], bool | None]:
    """The outputs, worst first, and whether all keep the thresholds; None when nothing says so."""
    scored = [(row.tensor, row.accumulated) for row in rows if row.output and row.accumulated is not None]
    scored.sort(key=lambda pair: _db(pair[1]))
    agrees = all(_keeps(score, thresholds) for _, score in scored) if scored else None
    return tuple(name for name, _ in scored), agrees


def _keeps(score: LayerScore, thresholds: ThresholdSet) -> bool:
    if score.sqnr_db is None or score.cosine is None or score.status == "nonfinite":
        return False
    relative = 0.0 if score.sqnr_db == math.inf else 10 ** (-score.sqnr_db / 20)
    values = {"cosine": score.cosine, "sqnr_db": score.sqnr_db, "relative_euclidean": relative}
    return thresholds.holds(values)


def _db(score: LayerScore) -> float:
    return -math.inf if score.sqnr_db is None or score.status == "nonfinite" else score.sqnr_db


def _worst_output_db(rows: Sequence[LayerRow]) -> float:
    return min((_db(row.accumulated) for row in rows if row.output and row.accumulated), default=math.inf)


def _matters(each: Contribution, first: Contribution) -> bool:
    beside = each.share >= _BESIDE_THE_FIRST * first.share or each.badness_db <= _BAD_DB
    return each.share >= _WORTH_NAMING and beside


def _usual(contributions: Sequence[Contribution]) -> float:
    """The level of the median unit."""
    levels = [each.badness_db for each in contributions if math.isfinite(each.badness_db)]
    return statistics.median(levels) if len(levels) >= _FEWEST_UNITS else _USUAL_DB


def _half(ranked: Sequence[Contribution]) -> int:
    reached = 0.0
    for count, each in enumerate(ranked, 1):
        reached += each.share
        if reached >= 0.5:
            return count
    return len(ranked)
