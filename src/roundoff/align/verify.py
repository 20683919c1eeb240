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

_SAMPLES = 8192
"""Elements that the chosen matches and their rivals are judged by in the end. From 10,000 on BLAS would put
more time into waking threads than into the product."""

_CONTESTED = 4.0
"""A residual within this factor of the chosen one makes a rival..."""

_CONTESTED_FLOOR = 1e-5
"""...and so does a difference that float32 products hardly show."""

_CLEAR_ELEMENTS = 512
_CLEAR_RESIDUAL = 0.05
"""A match without rivals needs no closer look when so many independent elements of its fingerprint leave no
more unexplained than this."""

_ROUNDING = 1e-12
"""Unexplained variance below this is the rounding of float64 sums."""

Reader = Callable[[int], Array | None]


def verified(
    evidence: Sequence[Evidence], chosen: Choice, *, reference: Reader, candidate: Reader
) -> list[Evidence]:
    """Measure anew, with more elements and in float64, what was chosen and what rivals it, where in doubt.

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
    """What comes near a choice for either tensor, what it is near to, and what is not clear by itself."""
    by_candidate = {item.candidate: item for item in chosen.values()}
    doubtful = {item.key for item in chosen.values() if not _clear(item)}
    for item in evidence:
        for other in (chosen.get(item.reference), by_candidate.get(item.candidate)):
            near = other and item.residual <= _CONTESTED * other.residual + _CONTESTED_FLOOR
            if other and near and other.key != item.key:
                doubtful |= {item.key, other.key}
    return [item for item in evidence if item.key in doubtful]


def _clear(item: Evidence) -> bool:
    """Whether the fingerprint says all: many elements agree closely, and nothing is cropped."""
    cropped = item.layout is not None and item.layout.crop is not None
    return item.effective >= _CLEAR_ELEMENTS and item.residual <= _CLEAR_RESIDUAL and not cropped


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
