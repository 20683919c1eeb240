"""Size of the error, absolute and against the size of the reference."""

import math

from roundoff.core.moments import PairMoments
from roundoff.metrics.registry import metric

__all__ = [
    "chebyshev",
    "mae",
    "max_abs_error",
    "mse",
    "norm_error",
    "relative_euclidean",
    "rmse",
    "sample_sqnr_db",
    "sqnr_db",
]


@metric("sqnr_db", unit="dB", direction="higher", perfect=math.inf)
def sqnr_db(moments: PairMoments) -> float:
    """Energy of the reference over energy of the error, in decibels."""
    return ratio_db(moments.reference.square, moments.square_error)


@metric("relative_euclidean", direction="lower", perfect=0.0)
def relative_euclidean(moments: PairMoments) -> float:
    """Length of the error over length of the reference."""
    if moments.square_error == 0:
        return 0.0
    if moments.reference.square == 0:
        return math.inf
    return math.sqrt(moments.square_error / moments.reference.square)


@metric("norm_error", direction="lower", perfect=0.0)
def norm_error(moments: PairMoments) -> float:
    """Share by which the candidate's length differs from the reference's; sees the gain that cosine misses."""
    if moments.square_error == 0:
        return 0.0
    if moments.reference.square == 0:
        return math.inf
    return abs(math.sqrt(moments.candidate.square / moments.reference.square) - 1)


@metric("mse", unit="value", direction="lower", perfect=0.0)
def mse(moments: PairMoments) -> float:
    """Mean of the squared errors."""
    return moments.square_error / moments.count


@metric("rmse", unit="value", direction="lower", perfect=0.0)
def rmse(moments: PairMoments) -> float:
    """Root of the mean squared error; far above mae when few elements carry the error."""
    return math.sqrt(mse(moments))


@metric("mae", unit="value", direction="lower", perfect=0.0)
def mae(moments: PairMoments) -> float:
    """Mean of the absolute errors."""
    return moments.abs_error / moments.count


@metric("max_abs_error", unit="value", direction="lower", perfect=0.0)
def max_abs_error(moments: PairMoments) -> float:
    """Largest absolute error."""
    return moments.max_abs_error


@metric("chebyshev", unit="value", direction="lower", perfect=0.0)
def chebyshev(moments: PairMoments) -> float:
    """Largest absolute error, under the name some tools give it."""
    return moments.max_abs_error


def sample_sqnr_db(moments: PairMoments) -> float:
    """SQNR of one sample: NaN where the reference is silent, -inf where only the candidate is not finite."""
    if moments.reference.square == 0:
        return math.nan
    return -math.inf if moments.candidate.nonfinite > moments.reference.nonfinite else sqnr_db(moments)


def ratio_db(signal: float, noise: float) -> float:
    """Ratio of two energies in decibels: +inf without noise, -inf without signal."""
    if noise == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    return 10 * (math.log10(signal) - math.log10(noise))
