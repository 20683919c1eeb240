"""A closer look at the matches that were chosen and at those that came near."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from roundoff.align.assignment import Choice
from roundoff.align.evidence import LEAST_CORRELATION, SAME_VALUE, Evidence
from roundoff.align.layout import correlation, only_padding
from roundoff.align.sampling import positions, seen_through, take
from roundoff.core.tensors import Array

__all__ = ["verified"]

_SAMPLES = 16_384
"""Elements that the chosen matches and their rivals are judged by in the end."""

_CONTESTED = 4.0
"""A residual within this factor of the chosen one makes a rival..."""

_CONTESTED_FLOOR = 1e-5
"""...and so does a difference that float32 products hardly show."""

_ROUNDING = 1e-12
"""Unexplained variance below this is the rounding of float64 sums."""

Reader = Callable[[int], Array | None]


def verified(
    evidence: Sequence[Evidence], chosen: Choice, *, reference: Reader, candidate: Reader
) -> list[Evidence]:
    """Measure anew, with more elements and in float64, what was chosen and what rivals it.

    Evidence that does not hold, or that would crop away more than padding, is dropped.

    Args:
        evidence: Everything found, at most one item per pair.
        chosen: The choice so far.
        reference: Reads a tensor of the reference by index.
        candidate: Reads a tensor of the candidate by index.
    """
    doubtful = defaultdict(list)
    for item in _doubtful(evidence, chosen):
        doubtful[item.reference].append(item)
    settled = {item.key: item for item in evidence}
    for index, items in doubtful.items():
        array = reference(index)
        for item in items:
            other = candidate(item.candidate)
            anew = None if array is None or other is None else _measured(item, array, other)
            if anew is None:
                del settled[item.key]
            else:
                settled[item.key] = anew
    return list(settled.values())


def _doubtful(evidence: Sequence[Evidence], chosen: Choice) -> list[Evidence]:
    """What was chosen, and what comes near it for either tensor."""
    by_candidate = {item.candidate: item for item in chosen.values()}
    found = []
    for item in evidence:
        rivalled = [chosen.get(item.reference), by_candidate.get(item.candidate)]
        limits = [_CONTESTED * other.residual + _CONTESTED_FLOOR for other in rivalled if other]
        if limits and item.residual <= max(limits):
            found.append(item)
    return found


def _measured(item: Evidence, reference: Array, candidate: Array) -> Evidence | None:
    if item.layout and not only_padding(item.layout, candidate):
        return None
    left = take(reference, positions(reference.size, _SAMPLES))
    right = take(candidate, seen_through(item.layout, reference.shape, candidate.shape, count=_SAMPLES))
    if left is None or right is None:
        return None
    scale = float(np.abs(left).max()) or 1.0  # so that no square over- or underflows
    left, right = left / scale, right / scale
    squared = float(np.mean((left - right) ** 2))
    if item.constant:
        gap = max(squared / (float(np.mean(left**2)) or 1.0), _ROUNDING)
        return replace(item, residual=gap, difference=gap) if gap <= SAME_VALUE else None
    agreement = correlation(left, right)
    if agreement < LEAST_CORRELATION:
        return None
    residual = max(1 - agreement**2, _ROUNDING)
    return replace(item, residual=residual, difference=max(squared / float(left.var()), _ROUNDING))
