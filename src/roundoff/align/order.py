"""Using the order of tensors to tell apart those that their values cannot."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from roundoff.align.evidence import Evidence

__all__ = ["order_prior"]

_LEAST_ANCHORS = 8
_AGREEMENT = 0.9
"""Share of neighbouring sure pairs that must come in the same order on both sides."""

_FARTHEST = 5.0
"""Distance beyond which being out of place counts no more."""


def order_prior(anchors: Sequence[tuple[int, int]]) -> Callable[[Evidence], float]:
    """Log-prior of a match from its place among sure pairs (reference index, candidate index).

    Zero for all unless both sides evidently list their tensors in the same order. Both then begin together.
    """
    if len(anchors) < _LEAST_ANCHORS:
        return lambda _: 0.0
    known = sorted((candidate, reference) for reference, candidate in anchors)
    candidates, references = np.array([(-1, -1), *known], dtype=np.float64).T
    if np.mean(np.diff(references) > 0) < _AGREEMENT:
        return lambda _: 0.0

    def prior(item: Evidence) -> float:
        beyond = max(item.candidate - candidates[-1], 0.0)
        expected = float(np.interp(item.candidate, candidates, references)) + beyond
        return -math.log1p(min(abs(item.reference - expected), _FARTHEST))

    return prior
