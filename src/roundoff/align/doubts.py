"""Names that have moved: pairs of equal name whose values belong to other tensors.

Compilers fold an activation into the layer before it and keep only one of the two names; Caffe overwrites the
values of a layer with those of its in-place successor. The name is then on both sides, but on different tensors.
"""

from collections.abc import Sequence

from roundoff.align.confidence import SURE
from roundoff.align.layout import correlation
from roundoff.align.match import Match
from roundoff.align.sampling import positions, take
from roundoff.align.values import Side, match_by_value
from roundoff.core.progress import Progress

__all__ = ["match_rest_by_value"]

_AGREEING = 0.99
"""Names are taken at their word when the values correlate as well as this."""

_LOOKED_AT = 2048
_FEWEST = 16
"""Smaller tensors say too little."""


def match_rest_by_value(found: Sequence[Match], ours: Side, theirs: Side, *, progress: Progress) -> list[Match]:
    """All matches: those found by name, less those that values contradict, and those found by value.

    A name is given up only where values show for certain which tensor bears it wrongly.
    """
    doubted = [match for match in found if _is_doubtful(match, ours, theirs)]
    trusted = [match for match in found if match not in doubted]
    by_value = match_by_value(ours, theirs, known=trusted, progress=progress)
    named = {match.reference: match.candidate for match in doubted}
    bearers = set(named.values())
    kept = [
        match
        for match in by_value
        if (match.confidence >= SURE or (match.reference not in named and match.candidate not in bearers))
        and named.get(match.reference) != match.candidate
    ]
    taken = {match.reference for match in kept}, {match.candidate for match in kept}
    restored = [m for m in doubted if m.reference not in taken[0] and m.candidate not in taken[1]]
    return [*trusted, *kept, *restored]


def _is_doubtful(match: Match, ours: Side, theirs: Side) -> bool:
    if match.how in ("alias", "origin") or match.layout is not None:
        return False
    left, right = ours.read(match.reference), theirs.read(match.candidate)
    if left is None or right is None or left.shape != right.shape or left.size < _FEWEST:
        return False
    at = positions(left.size, _LOOKED_AT)
    ours_seen, theirs_seen = take(left, at), take(right, at)
    return ours_seen is not None and theirs_seen is not None and correlation(ours_seen, theirs_seen) < _AGREEING
