"""Errors against each element of the reference; elements whose reference is zero have none."""

import math

from roundoff.core.moments import PairMoments
from roundoff.metrics.registry import metric

__all__ = [
    "accumulated_relative_error",
    "max_relative_error",
    "mean_relative_error",
    "within_1e3",
    "within_5e3",
]


@metric("mean_relative_error", direction="lower", perfect=0.0)
def mean_relative_error(moments: PairMoments) -> float:
    """Mean of |error| / |reference| where the reference is not zero."""
    if moments.relative_count == 0:
        return _without_reference(moments)
    return moments.relative_error / moments.relative_count


@metric("max_relative_error", direction="lower", perfect=0.0)
def max_relative_error(moments: PairMoments) -> float:
    """Largest |error| / |reference| where the reference is not zero."""
    return moments.max_relative_error if moments.relative_count else _without_reference(moments)


@metric("accumulated_relative_error", direction="lower", perfect=0.0)
def accumulated_relative_error(moments: PairMoments) -> float:
    """Sum of |error| / |reference| where the reference is not zero; grows with the size of the tensor."""
    return moments.relative_error if moments.relative_count else _without_reference(moments)


@metric("within_1e3", unit="share", direction="higher", perfect=1.0)
def within_1e3(moments: PairMoments) -> float:
    """Share of elements whose relative error is below 1e-3 (zero for zero counts)."""
    return moments.within_1e3 / moments.count


@metric("within_5e3", unit="share", direction="higher", perfect=1.0)
def within_5e3(moments: PairMoments) -> float:
    """Share of elements whose relative error is below 5e-3 (zero for zero counts)."""
    return moments.within_5e3 / moments.count


def _without_reference(moments: PairMoments) -> float:
    """Relative to nothing: no error is perfect, any error is worst."""
    return 0.0 if moments.square_error == 0 else math.inf
