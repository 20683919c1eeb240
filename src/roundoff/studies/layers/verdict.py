"""Whether a loss is local or accumulates, and who is to blame."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from roundoff.core.coverage import Judgement
from roundoff.measure.metrics import ratio_db
from roundoff.measure.thresholds import ThresholdSet
from roundoff.measure.verdicts import may_say
from roundoff.studies.layers.attribution import Contribution
from roundoff.studies.layers.experiments import Proof
from roundoff.studies.layers.result import LayerRow, LayerScore, LayerVerdict

__all__ = ["Prover", "judge", "judge_outputs", "score_values"]


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
    if judgement is not None and judgement.grade in _AGREES:
        agrees = _AGREES[judgement.grade]
    damaged = any(row.output and row.accumulated and row.accumulated.status == "nonfinite" for row in rows)
    if damaged or (outputs and agrees is None):
        return LayerVerdict("open", outputs, agrees, thresholds.describe())
    ranked = sorted(contributions, key=lambda each: each.share, reverse=True)
    limit = _usual(ranked) - (_STANDS_FAR_OUT_DB if agrees else _STANDS_OUT_DB)
    worst = min((_db(row.accumulated) for row in rows if row.output and row.accumulated), default=math.inf)
    outstanding = [each for each in ranked if each.badness_db <= limit]
    fine = LayerVerdict("fine", outputs, agrees, thresholds.describe(), contributors=len(ranked))
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
        verdict = fine if judgement.good else replace(verdict, kind="open")
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
