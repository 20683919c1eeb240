"""Direction and distribution: are the two tensors the same up to size?"""

import math

import numpy as np

from roundoff.core.moments import PairMoments
from roundoff.metrics.registry import metric

__all__ = ["cosine", "kl_divergence"]

# Counts are smoothed by this much, so that a bin the candidate never hits costs much, but not infinitely much.
_SMOOTHING = 0.5


@metric("cosine", direction="higher", perfect=1.0)
def cosine(moments: PairMoments) -> float:
    """Cosine of the angle between the tensors; blind to gain."""
    if moments.square_error == 0:
        return 1.0
    norms = math.sqrt(moments.reference.square) * math.sqrt(moments.candidate.square)
    if norms == 0:
        return 0.0
    return min(1.0, max(-1.0, moments.product / norms))


@metric("kl_divergence", direction="lower", perfect=0.0)
def kl_divergence(moments: PairMoments) -> float:
    """How far the candidate's distribution of values is from the reference's, in nats; blind to order."""
    merged = moments.reference.histogram.merge(moments.candidate.histogram)
    used = np.flatnonzero(merged.counts)
    sides = (moments.reference.histogram, moments.candidate.histogram)
    p, q = (side.at(merged.exponent)[used] + _SMOOTHING for side in sides)
    p, q = p / p.sum(), q / q.sum()
    return max(0.0, float(np.sum(p * np.log(p / q))))
