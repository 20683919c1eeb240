"""What the error looks like: a gain, an offset, saturation, dead values, one bad channel."""

import numpy as np

from roundoff.core.moments import PairMoments, SideMoments
from roundoff.metrics.error import ratio_db
from roundoff.metrics.registry import metric

__all__ = ["linear_fit"]

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
