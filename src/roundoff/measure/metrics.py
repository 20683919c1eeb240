"""What a metric is, and the table of all of them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from roundoff.errors import BadInput, nearest
from roundoff.measure.pairs import PairMoments, SideMoments

__all__ = [
    "Direction",
    "Metric",
    "OutputAgreement",
    "Status",
    "TensorScore",
    "accumulated_relative_error",
    "all_metrics",
    "chebyshev",
    "cosine",
    "get_metric",
    "kl_divergence",
    "linear_fit",
    "mae",
    "max_abs_error",
    "max_relative_error",
    "mean_relative_error",
    "metric",
    "mse",
    "norm_error",
    "relative_euclidean",
    "rmse",
    "sample_sqnr_db",
    "score",
    "sqnr_db",
    "status_of",
    "within_1e3",
    "within_5e3",
]


Direction = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that says how alike two tensors are.

    Attributes:
        name: As users write it.
        unit: ``""`` for a plain number, ``dB``, ``share`` (0 to 1) or ``value`` (the tensor's own unit).
        direction: Which way is better; ``none`` for numbers that describe rather than judge.
        perfect: Its value for equal tensors; None where that depends on the tensor.
        summary: What it tells, in one sentence.
        compute: Its value from the moments of a pair that is not empty.
    """

    name: str
    unit: str
    direction: Direction
    perfect: float | None
    summary: str
    compute: Callable[[PairMoments], float]


_METRICS: dict[str, Metric] = {}


def metric(
    name: str, *, unit: str = "", direction: Direction, perfect: float | None
) -> Callable[[Callable[[PairMoments], float]], Callable[[PairMoments], float]]:
    """Register a function of the moments as a metric; its docstring's first line is the summary."""

    def register(compute: Callable[[PairMoments], float]) -> Callable[[PairMoments], float]:
        if name in _METRICS:
            raise ValueError(f"metric {name!r} is registered twice")
        summary = (compute.__doc__ or "").strip().splitlines()[0]
        _METRICS[name] = Metric(name, unit, direction, perfect, summary, compute)
        return compute

    return register


def all_metrics() -> Iterator[Metric]:
    """Every metric, in the order of the tables."""
    yield from _METRICS.values()


def get_metric(name: str) -> Metric:
    """Look a metric up by name."""
    if name not in _METRICS:
        raise BadInput(f"There is no metric {name!r}.", fix=nearest(name, _METRICS))
    return _METRICS[name]


# The scores of one tensor, as data.

Status = Literal["ok", "nonfinite", "degenerate", "shape", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class TensorScore:
    """How one tensor of the candidate agrees with the reference.

    Attributes:
        status: ``ok``; ``nonfinite``: some elements were NaN or infinite and left out; ``degenerate``: one side or
            both are all zero, or the tensor is empty; ``shape``, ``missing``, ``unreadable``: there is no score.
        values: Metric name to value; empty when there is no score.
        detail: Why there is no score, or what was left out; empty when all is well.
    """

    status: Status
    values: dict[str, float] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """How one output of two models agrees over the samples both were fed.

    Attributes:
        output: Its name.
        samples: How many samples that is.
        score: All metrics; without values when the shapes differ or nothing is a number.
        same_top1: Share of rows whose largest element is at the same place; None for outputs that are
            no vector of scores.
    """

    output: str
    samples: int
    score: TensorScore
    same_top1: float | None


# Direction and distribution: are the two tensors the same up to size?

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


# Size of the error, absolute and against the size of the reference.


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


# Errors against each element of the reference; elements whose reference is zero have none.


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


# What the error looks like: a gain, an offset, saturation, dead values, one bad channel.

# Channels with less than this share of the mean channel's energy carry no signal to lose.
_QUIET_CHANNEL = 1e-6


def linear_fit(moments: PairMoments) -> tuple[float, float]:
    """Slope and offset of the line through (reference, candidate) with the least squared error."""
    n = moments.count
    mean_x, mean_y = moments.reference.total / n, moments.candidate.total / n
    variance = moments.reference.square / n - mean_x * mean_x
    # A constant reference fixes no slope; what is left of its variance is rounding.
    if variance <= 1e-12 * moments.reference.square / n:
        return 1.0, mean_y - mean_x
    slope = (moments.product / n - mean_x * mean_y) / variance
    return slope, mean_y - slope * mean_x


@metric("fit_slope", direction="none", perfect=1.0)
def fit_slope(moments: PairMoments) -> float:
    """Gain of the candidate: slope of the best line through it."""
    return 1.0 if moments.square_error == 0 else linear_fit(moments)[0]


@metric("fit_offset", unit="value", direction="none", perfect=0.0)
def fit_offset(moments: PairMoments) -> float:
    """Shift of the candidate: offset of the best line through it."""
    return 0.0 if moments.square_error == 0 else linear_fit(moments)[1]


@metric("saturated", unit="share", direction="none", perfect=None)
def saturated(moments: PairMoments) -> float:
    """Share of the candidate's elements that sit exactly at its largest or smallest value, zeros aside."""
    return saturated_share(moments.candidate, moments.count)


@metric("reference_saturated", unit="share", direction="none", perfect=None)
def reference_saturated(moments: PairMoments) -> float:
    """The same share in the reference: what saturation is meant to be there (ReLU6, sigmoid)."""
    return saturated_share(moments.reference, moments.count)


@metric("zeros", unit="share", direction="none", perfect=None)
def zeros(moments: PairMoments) -> float:
    """Share of the candidate's elements that are zero."""
    return moments.candidate.zeros / moments.count


@metric("reference_zeros", unit="share", direction="none", perfect=None)
def reference_zeros(moments: PairMoments) -> float:
    """Share of the reference's elements that are zero."""
    return moments.reference.zeros / moments.count


@metric("worst_channel", direction="none", perfect=None)
def worst_channel(moments: PairMoments) -> float:
    """Index of the channel with the lowest SQNR; -1 where there are no channels or no error."""
    return float(_worst_channel(moments)[0])


@metric("worst_channel_sqnr_db", unit="dB", direction="higher", perfect=float("inf"))
def worst_channel_sqnr_db(moments: PairMoments) -> float:
    """SQNR of the worst channel; the whole tensor's where there are no channels."""
    return _worst_channel(moments)[1]


def saturated_share(side: SideMoments, count: int) -> float:
    """Share of elements at the extremes; a single element at an extreme is just the extreme."""
    extremes = ((side.low, side.at_low), (side.high, side.at_high))
    if side.low == side.high:
        return 0.0
    return sum(hits for value, hits in extremes if value != 0 and hits > 1) / count


def _worst_channel(moments: PairMoments) -> tuple[int, float]:
    whole = ratio_db(moments.reference.square, moments.square_error)
    channels = moments.channels
    if channels is None or moments.square_error == 0:
        return -1, whole
    loud = channels.reference > _QUIET_CHANNEL * channels.reference.mean()
    noisy = channels.error > 0
    # A channel that should be silent and is loud is as bad as can be.
    invented = ~loud & (channels.error > _QUIET_CHANNEL * channels.reference.mean())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(noisy & (loud | invented), channels.error / channels.reference, 0.0)
    index = int(np.argmax(ratio))
    if ratio[index] == 0:
        return -1, whole
    return index, ratio_db(float(channels.reference[index]), float(channels.error[index]))


# From moments to scores, with one policy for values that are not numbers, zero or absent.


def score(moments: PairMoments) -> TensorScore:
    """All metrics of one pair.

    Non-finite elements are left out and counted; both sides zero, or an empty tensor, is perfect; one side zero is
    the worst a metric can say. The status tells when one of these applies.
    """
    status, detail = status_of(moments)
    if moments.count == 0 and moments.excluded:
        return TensorScore(status, {}, detail)
    if moments.count == 0:
        perfect = {m.name: m.perfect for m in all_metrics() if m.perfect is not None}
        return TensorScore(status, perfect, detail)
    return TensorScore(status, {m.name: m.compute(moments) for m in all_metrics()}, detail)


def status_of(moments: PairMoments) -> tuple[Status, str]:
    """The status of a pair, and in words what was left out or is not there."""
    if moments.excluded:
        total = moments.count + moments.excluded
        sides = f"{moments.reference.nonfinite} in the reference, {moments.candidate.nonfinite} in the candidate"
        return "nonfinite", f"{moments.excluded} of {total} elements are NaN or infinite ({sides})"
    if moments.count == 0:
        return "degenerate", "the tensor is empty"
    zero = (moments.reference.is_zero, moments.candidate.is_zero)
    if all(zero):
        return "degenerate", "both sides are all zero"
    if any(zero):
        return "degenerate", f"the {'reference' if zero[0] else 'candidate'} is all zero"
    return "ok", ""
