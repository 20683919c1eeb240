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

    Zero for all unless both sides evidently list their tensors in the same order.
    """
    by_candidate = sorted(anchors, key=lambda pair: pair[1])
    references = np.array([pair[0] for pair in by_candidate], dtype=np.float64)
    candidates = np.array([pair[1] for pair in by_candidate], dtype=np.float64)
    if len(by_candidate) < _LEAST_ANCHORS or np.mean(np.diff(references) > 0) < _AGREEMENT:
        return lambda _: 0.0

    def prior(item: Evidence) -> float:
        expected = float(np.interp(item.candidate, candidates, references))
        return -math.log1p(min(abs(item.reference - expected), _FARTHEST))

    return prior
