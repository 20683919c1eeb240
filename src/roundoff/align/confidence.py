"""How sure a match by value is."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.align.assignment import Choice, assign
from roundoff.align.evidence import LEAST_NOISE, Evidence
from roundoff.align.order import order_prior

__all__ = ["SURE", "settle"]

SURE = 0.9
"""Matches as sure as this are taken for granted when the others are judged."""

_NOISE_QUANTILE = 0.75
"""The residual that this share of the matches stays below is the usual noise between the two sides."""

_NOISE_SLACK = 3.0
"""So many times that noise is added to residuals before they are compared: less than it tells nothing."""

_CONSTANT_CEILING = 0.5
"""Equality of constants is never better than a guess."""

_CLOSENESS = (
    (0.5, 0.25),
    (0.7, 0.45),
    (0.8, 0.55),
    (0.9, 0.7),
    (0.95, 0.8),
    (0.98, 0.9),
    (0.99, 0.97),
    (0.994, 1.0),
)
"""How far a correlation is trusted: a tensor whose partner is missing may find its neighbour, at 0.9 or so."""

_SUSPICION = 0.85
"""What is left of the confidence of a match that is unlike the others, for it may be a neighbour's."""

_SUSPICIOUS_RESIDUAL = 10.0
"""Unlike the others: a residual so many times the usual noise,"""

_UNSUSPICIOUS = 1e-7
"""unless it is as small as this;"""

_UNUSUAL = 0.25
"""or a change of layout, or a gain, that fewer than this share of the matches have or lack."""

_MOST_LOG_ODDS = 50.0


def settle(evidence: Sequence[Evidence], anchors: Sequence[tuple[int, int]]) -> tuple[Choice, dict[int, float]]:
    """Choose partners and say how sure each choice is, by index of the reference tensor.

    Args:
        evidence: At most one item per pair; the order decides between equal ones.
        anchors: Pairs known to be right (reference index, candidate index).
    """
    weights = {item.key: item.strength(LEAST_NOISE) for item in evidence}
    chosen = assign(evidence, weights)
    usual = _Usual.of(chosen)
    sure = _confidence(evidence, chosen, usual=usual, prior=lambda _: 0.0)
    known = [item.key for row, item in chosen.items() if sure[row] >= SURE]
    prior = order_prior([*anchors, *known])
    chosen = assign(evidence, {item.key: weights[item.key] + prior(item) for item in evidence})
    return chosen, _confidence(evidence, chosen, usual=usual, prior=prior)


@dataclass(frozen=True, slots=True)
class _Usual:
    """What most matches between these two sides are like.

    Attributes:
        noise: Differences to be expected, as a residual.
        changed: Share of matches with a change of layout.
        plain: Share of matches that agree without gain and offset.
    """

    noise: float
    changed: float
    plain: float

    @classmethod
    def of(cls, chosen: Choice) -> "_Usual":
        items = [item for item in chosen.values() if not item.constant]
        if not items:
            return cls(LEAST_NOISE, 0.5, 0.5)
        noise = max(float(np.quantile([item.residual for item in items], _NOISE_QUANTILE)), LEAST_NOISE)
        changed = sum(item.layout is not None for item in items) / len(items)
        return cls(noise, changed, sum(item.agrees_plainly(noise) for item in items) / len(items))

    def suspects(self, item: Evidence) -> bool:
        """Whether a match is unlike the others."""
        changed = self.changed if item.layout else 1 - self.changed
        plain = self.plain if item.agrees_plainly(self.noise) else 1 - self.plain
        noisy = item.residual > max(_SUSPICIOUS_RESIDUAL * self.noise, _UNSUSPICIOUS)
        return noisy or min(changed, plain) < _UNUSUAL


def _confidence(
    evidence: Sequence[Evidence],
    chosen: Choice,
    *,
    usual: _Usual,
    prior: Callable[[Evidence], float],
) -> dict[int, float]:
    """How sure each choice is: its odds against all rivals, times how sure it would be without them."""
    strengths = {item.key: item.strength(_NOISE_SLACK * usual.noise) + prior(item) for item in evidence}
    rivals = _rivals(strengths, chosen)
    return {row: _alone(item, usual) / (1 + rivals[row]) for row, item in chosen.items()}


def _rivals(strengths: Mapping[tuple[int, int], float], chosen: Choice) -> Mapping[int, float]:
    """Odds of all other partners of either tensor against the chosen one, the greater of both sides."""
    by_candidate = {item.candidate: item for item in chosen.values()}
    odds: dict[tuple[int, str], float] = defaultdict(float)
    for key, strength in strengths.items():
        row, column = chosen.get(key[0]), by_candidate.get(key[1])
        if row is column:  # the choice itself; two tensors without partners have no evidence in common
            continue
        for side, mine, other in (("row", row, column), ("column", column, row)):
            if mine:
                # A rival that has a better partner of its own is less of one.
                lost = min(0.0, strength - strengths[other.key]) if other else 0.0
                log_odds = strength - strengths[mine.key] + lost
                odds[mine.reference, side] += math.exp(min(log_odds, _MOST_LOG_ODDS))
    return {row: max(odds[row, "row"], odds[row, "column"]) for row in chosen}


def _alone(item: Evidence, usual: _Usual) -> float:
    """Confidence of a match that has no rivals."""
    if item.constant:
        return _CONSTANT_CEILING * item.beyond_chance()
    points, values = zip(*_CLOSENESS, strict=True)
    sure = float(np.interp(math.sqrt(1 - item.residual), points, values)) * item.beyond_chance()
    return sure * _SUSPICION if usual.suspects(item) else sure
