"""How far a mean, a share or a pooled ratio of few samples can be off, and whether a difference can be chance."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from statistics import NormalDist

import numpy as np

from roundoff.core.tensors import Array

_CONFIDENCE = 0.95
_STEPS = 300
_TINY = 1e-300
# So little against the mean is rounding alone.
_NO_SPREAD = 1e-12
# A shape this small is Gumbel's.
_STRAIGHT = 1e-6


def mean_interval(values: Array, confidence: float = _CONFIDENCE) -> tuple[float, float] | None:
    """Where the mean lies that many more values like these would have.

    Args:
        values: Independent values, of shape (n,).
        confidence: How sure to be.

    Returns:
        The ends of the interval; None for fewer than two values or values that are not finite.
    """
    if values.size < 2 or not np.isfinite(values).all():
        return None
    mean = float(values.mean())
    spread = float(values.std(ddof=1)) / math.sqrt(values.size)
    half = two_sided_quantile(values.size - 1, confidence) * spread
    return mean - half, mean + half


# One decibel is so much of the natural logarithm of a ratio of energies.
_DB = 10 / math.log(10)
# As if so many samples more had changed in either direction: Agresti and Min, 2005.
_PSEUDO = 0.5


# Euler's constant, the mean of the standard Gumbel distribution.
_EULER = 0.5772156649015329
# Of few values the shape of a tail is known badly: half of what they show is believed, and no lighter tail than
# Gumbel's.
_BELIEVED, _HEAVIEST = 0.5, 0.3


@dataclass(frozen=True, slots=True)
class ExtremeValues:
    """How large the largest value of a sample is: the generalized extreme value distribution.

    Attributes:
        location: Where most of them are.
        scale: How far they spread.
        shape: How heavy their tail is: 0 for Gumbel's, negative for a heavier one.
    """

    location: float
    scale: float
    shape: float

    def level(self, period: Array) -> Array:
        """What one sample in so many reaches."""
        rare = -np.log1p(-1 / period)
        if self.shape > -_STRAIGHT:
            return np.asarray(self.location - self.scale * np.log(rare))
        return np.asarray(self.location + self.scale / self.shape * (1 - np.power(rare, self.shape)))


def fit_extremes(maxima: Array) -> ExtremeValues | None:
    """The distribution of the largest values of samples, by those of a few of them.

    Fitted by probability-weighted moments (Hosking, Wallis and Wood, Technometrics 27, 1985), its shape drawn
    towards that of Gumbel.

    Args:
        maxima: Largest value of each sample, of shape (n,).

    Returns:
        The distribution; None where they are fewer than three or all alike.
    """
    values, count = np.sort(maxima.astype(np.float64)), maxima.size
    if count < 3:
        return None
    rank = np.arange(count)
    first = float(values.mean())
    second = 2 * float((rank / (count - 1) * values).mean()) - first
    if second <= _NO_SPREAD * abs(first):
        return None
    weighted = float((rank * (rank - 1) / ((count - 1) * (count - 2)) * values).mean())
    skewness = (6 * weighted - 3 * (second + first) + first) / second
    shift = 2 / (3 + skewness) - math.log(2) / math.log(3)
    shape = -min(_HEAVIEST, _BELIEVED * max(0.0, -(7.8590 * shift + 2.9554 * shift**2)))
    if shape > -_STRAIGHT:
        scale = second / math.log(2)
        return ExtremeValues(first - _EULER * scale, scale, 0.0)
    scale = second * shape / ((1 - 2**-shape) * math.gamma(1 + shape))
    return ExtremeValues(first + scale / shape * (math.gamma(1 + shape) - 1), scale, shape)


# Ends are looked for as far as one sample in so many reaches; what lies beyond is added up as far as the second.
_FURTHEST_PERIOD, _RAREST = 20_000.0, 1e6
_PERIODS = 400


def safe_end(maxima: Array, *, other: float, rounding: float, weight: float) -> float:
    """Where a range has to end for samples that it does not know: where rounding and clipping cost least together.

    A range that is wider rounds every value of every sample more coarsely; one that is narrower clips the largest
    value of some samples, which is one large error. How far those reach is known by extrapolation only, so that
    clipping counts more than once.

    Args:
        maxima: How far each of a few samples reaches, of shape (n,).
        other: How far the range reaches on the other side of zero.
        rounding: Energy of rounding errors of a sample in a range of width 1.
        weight: How many times clipping counts.

    Returns:
        At least the largest of the given; that where they are fewer than three or all alike.
    """
    most, found = float(maxima.max(initial=0.0)), fit_extremes(maxima)
    if found is None:
        return most
    periods = np.geomspace(2.0, _RAREST, _PERIODS)
    ends = found.level(periods)
    # Of the energy beyond an end, E[(m - end)^2] is the integral of 2 (m - end) P(M > m): by sums from behind.
    middle, mass = (ends[1:] + ends[:-1]) / 2, np.diff(ends) * (1 / periods[1:] + 1 / periods[:-1]) / 2
    beyond = [np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (mass * middle, mass)]
    clipped = 2 * (beyond[0] - ends * beyond[1])
    cost = rounding * np.square(ends + other) + weight * clipped
    open_to = (ends >= most) & (periods <= _FURTHEST_PERIOD)
    return float(ends[open_to][cost[open_to].argmin()]) if open_to.any() else most


def share_interval(part: int, total: int, confidence: float = _CONFIDENCE) -> tuple[float, float] | None:
    """Where a share lies that many more samples like these would have: Wilson's interval, 1927.

    Args:
        part: How many of them have it.
        total: How many there are.
        confidence: How sure to be.

    Returns:
        The ends of the interval; None for no sample.
    """
    if total < 1:
        return None
    square = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    share = part / total
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = math.sqrt(square * (share * (1 - share) + square / (4 * total)) / total) / (1 + square / total)
    # At the ends rounding would leave something where nothing is.
    return (0.0 if part == 0 else middle - half), (1.0 if part == total else middle + half)


def agreement_interval(losses: Array, confidence: float = _CONFIDENCE) -> tuple[float, float] | None:
    """Where the mean lies that many more losses like these would have, each of them between -1 and 1.

    Right answers that become wrong, and wrong ones that become right, are counted as samples of either kind, and
    half a sample is added to both: none of 20 that changed does not prove that none ever will.

    Args:
        losses: Independent values of shape (n,): 1 where a sample is lost, -1 where one is gained.
        confidence: How sure to be.

    Returns:
        The ends of the interval; None for fewer than two values.
    """
    if losses.size < 2 or not np.isfinite(losses).all():
        return None
    lost, gained = float(losses[losses > 0].sum()) + _PSEUDO, float(-losses[losses < 0].sum()) + _PSEUDO
    total = losses.size + 4 * _PSEUDO
    spread = math.sqrt(max(lost + gained - (lost - gained) ** 2 / total, 0.0)) / total
    middle, half = (lost - gained) / total, two_sided_quantile(losses.size - 1, confidence) * spread
    return max(-1.0, middle - half), min(1.0, middle + half)


def energy_ratio_interval_db(
    signal: Array, noise: Array, confidence: float = _CONFIDENCE
) -> tuple[float, float] | None:
    """Where signal to noise lies that many more samples like these would have together.

    The pooled ratio is that of two sums, so that its error is that of the ratio estimator of survey sampling
    (Cochran, "Sampling Techniques", 6.4), on the scale of decibels and with Student's t.

    Args:
        signal: Energy of the signal of each sample, of shape (n,); (n, outputs) for the mean over several ratios.
        noise: Energy of its error.
        confidence: How sure to be.

    Returns:
        The ends in decibels; None for fewer than two samples, or where nothing but noise or none is there.
    """
    total, count = (noise.sum(axis=0), signal.sum(axis=0)), len(signal)
    if count < 2 or not all(np.isfinite(each).all() and (each > 0).all() for each in total):
        return None
    # What each sample changes in the logarithm of the ratio.
    influence = (noise / total[0] - signal / total[1]).reshape(count, -1).mean(axis=1)
    spread = _DB * math.sqrt(count / (count - 1) * float(np.square(influence).sum()))
    middle = _DB * float(np.mean(np.log(total[1] / total[0])))
    half = two_sided_quantile(count - 1, confidence) * spread
    return middle - half, middle + half


def crossed_widening(turns: int) -> float:
    """How many times as wide an interval is of samples that were left out in turns of what judges them.

    What was fitted to the others is nearly the same in each turn, so that samples err together: the corrected
    variance of Nadeau and Bengio (Machine Learning 52, 2003).

    Args:
        turns: In how many turns they were left out; one where nothing was fitted to any.
    """
    return math.sqrt(1 + turns / (turns - 1)) if turns > 1 else 1.0


def paired_energy_gain_db(
    before: Array, after: Array, confidence: float = _CONFIDENCE
) -> tuple[float, float] | None:
    """Where the gain in signal to noise lies that many more samples like these would have together.

    Args:
        before: Energy of the error of each sample, of shape (n,).
        after: The same of another network on the same samples.
        confidence: How sure to be.

    Returns:
        The ends in decibels; None for fewer than two samples, or where one of both has no finite error.
    """
    return energy_ratio_interval_db(before, after, confidence)


def paired_probability(left: Array, right: Array) -> float | None:
    """How probable a mean difference at least this large is when there is none.

    A t-test of the differences; a sign test where some of them are infinite.

    Args:
        left: Values of shape (n,); pairs with NaN are left out.
        right: Values of the same things.

    Returns:
        The two-sided probability; None for fewer than two pairs.
    """
    known = ~(np.isnan(left) | np.isnan(right))
    left, right = left[known], right[known]
    if left.size < 2:
        return None
    with np.errstate(invalid="ignore"):
        differences = np.where(left == right, 0.0, left - right)
    if not np.isfinite(differences).all():
        return _sign_probability(differences)
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    if spread <= _NO_SPREAD * abs(mean):
        return 1.0 if mean == 0 else 0.0
    return two_sided_probability(mean / spread * math.sqrt(differences.size), differences.size - 1)


def unpaired_interval(left: Array, right: Array) -> tuple[float, float] | None:
    """Where the difference of two means lies, left less right, by Welch's t; None for fewer than two values."""
    if min(left.size, right.size) < 2:
        return None
    difference, spread, freedom = _welch(left, right)
    half = two_sided_quantile(max(1, math.floor(freedom))) * spread
    return difference - half, difference + half


def unpaired_probability(left: Array, right: Array) -> float | None:
    """How probable means that differ at least this much are when both are draws of one population.

    Welch's t-test, which does not ask for equal spreads.

    Args:
        left: Finite values of shape (n,).
        right: Finite values of shape (m,).

    Returns:
        The two-sided probability; None for fewer than two values on one side.
    """
    if min(left.size, right.size) < 2:
        return None
    difference, spread, freedom = _welch(left, right)
    if spread <= _NO_SPREAD * abs(difference):
        return 1.0 if difference == 0 else 0.0
    return two_sided_probability(difference / spread, freedom)


def _welch(left: Array, right: Array) -> tuple[float, float, float]:
    """The difference of two means, its standard error, and the degrees of freedom of that."""
    difference = float(left.mean() - right.mean())
    shares = [float(side.var(ddof=1)) / side.size for side in (left, right)]
    spread = math.sqrt(sum(shares))
    if spread == 0:
        return difference, 0.0, 1.0
    parts = [share / spread**2 for share in shares]
    freedom = 1.0 / sum(part**2 / (side.size - 1) for part, side in zip(parts, (left, right), strict=True))
    return difference, spread, freedom


def false_discoveries(probabilities: Sequence[float]) -> tuple[float, ...]:
    """Probabilities of many tests corrected for their number, by the method of Benjamini and Hochberg.

    Of what is found at a level at most that share is false; and where nothing is to be found, at most that share
    of families finds anything.
    """
    order = sorted(range(len(probabilities)), key=lambda at: probabilities[at], reverse=True)
    corrected, lowest = [1.0] * len(probabilities), 1.0
    for rank, at in zip(range(len(order), 0, -1), order, strict=True):
        lowest = min(lowest, probabilities[at] * (len(order) / rank))
        corrected[at] = lowest
    return tuple(corrected)


def _sign_probability(differences: Array) -> float:
    higher, lower = int((differences > 0).sum()), int((differences < 0).sum())
    total = higher + lower
    tail = sum(math.comb(total, count) for count in range(min(higher, lower) + 1))
    return min(1.0, 2.0 * tail / 2.0**total) if total < 1000 else _normal_tail(higher - lower, total)


def _normal_tail(surplus: int, total: int) -> float:
    return math.erfc(abs(surplus) / math.sqrt(2.0 * total))


def two_sided_probability(t: float, freedom: float) -> float:
    """How probable a t at least this far from zero is."""
    return _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


@lru_cache(maxsize=1024)
def two_sided_quantile(freedom: int, confidence: float = _CONFIDENCE) -> float:
    """The t within which so large a share of all values lies."""
    low, high = 0.0, 1.0
    while two_sided_probability(high, freedom) > 1 - confidence:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if two_sided_probability(middle, freedom) > 1 - confidence else (low, middle)
    return (low + high) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_share(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # Evaluated from the front, as Lentz does: ratios of successive numerators and denominators.
    upper, lower = 1.0, 1.0 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction = lower
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1.0 / _nonzero(1 + term * lower)
            upper = _nonzero(1 + term / upper)
            change = lower * upper
            fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return front * fraction / a


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# Scores of single samples, as documents keep them: enough to tell a change from chance, and no more.

MOST_KEPT = 64
"""Of more samples the first ones are kept: a test gains little from more, and documents stay small."""

# A thousandth of a decibel is far below any change that matters.
_DECIMALS = 3


def keep_samples(decibels: Iterable[float]) -> tuple[float, ...]:
    """What a document keeps of a score in decibels, sample by sample in their order; NaN where there is none."""
    return tuple(round(value, _DECIMALS) for value in islice(decibels, MOST_KEPT))
