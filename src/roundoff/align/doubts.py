"""Names that have moved: pairs of equal name whose values belong to other tensors.

Compilers fold an activation into the layer before it and keep only one of the two names; Caffe overwrites the
values of a layer with those of its in-place successor. The name is then on both sides, but on different tensors.
"""

from collections.abc import Sequence

from roundoff.align.layout import correlation
from roundoff.align.match import Match
from roundoff.align.sampling import positions, take
from roundoff.align.values import Side, match_by_value
from roundoff.core.progress import Progress

__all__ = ["match_rest_by_value"]

_AGREEING = 0.99
"""Names are taken at their word when the values correlate as well as this."""

_CLEARLY = 10.0
"""Values overrule a name when they leave so many times less unexplained."""

_LOOKED_AT = 2048
_FEWEST = 16
"""Smaller tensors say too little."""


def match_rest_by_value(found: Sequence[Match], ours: Side, theirs: Side, *, progress: Progress) -> list[Match]:
    """All matches: those found by name, less those that values contradict, and those found by value.

    A name is given up only where another tensor's values agree clearly better.
    """
    agreement = {match: _agreement(match, ours, theirs) for match in found}
    doubted = [match for match, value in agreement.items() if value is not None and value < _AGREEING]
    trusted = [match for match in found if match not in doubted]
    by_value = match_by_value(ours, theirs, known=trusted, progress=progress)
    worst = {match.reference: agreement[match] for match in doubted} | {
        ~m.candidate: agreement[m] for m in doubted
    }
    kept = []
    for match in by_value:
        rivals = [value for end in (match.reference, ~match.candidate) if (value := worst.get(end)) is not None]
        if not rivals or _outdoes(_agreement(match, ours, theirs), rivals):
            kept.append(match)
    # Found by value under its own name, perhaps in another layout: the name stands, and the caller looks into it.
    named = {(match.reference, match.candidate) for match in doubted}
    kept = [match for match in kept if (match.reference, match.candidate) not in named]
    taken = {match.reference for match in kept}, {match.candidate for match in kept}
    restored = [m for m in doubted if m.reference not in taken[0] and m.candidate not in taken[1]]
    return [*trusted, *kept, *restored]


def _outdoes(agreement: float | None, rivals: Sequence[float]) -> bool:
    """Whether values agree so much better than names that the names must be wrong."""
    return agreement is not None and all(_CLEARLY * (1 - agreement) < 1 - rival for rival in rivals)


def _agreement(match: Match, ours: Side, theirs: Side) -> float | None:
    """Correlation of a pair on a few elements; None where it says nothing, or the user or a tool has spoken."""
    if match.how in ("alias", "origin") or match.layout is not None:
        return None
    left, right = ours.read(match.reference), theirs.read(match.candidate)
    if left is None or right is None or left.shape != right.shape or left.size < _FEWEST:
        return None
    at = positions(left.size, _LOOKED_AT)
    ours_seen, theirs_seen = take(left, at), take(right, at)
    return None if ours_seen is None or theirs_seen is None else correlation(ours_seen, theirs_seen)
