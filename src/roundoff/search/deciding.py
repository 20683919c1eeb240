"""When enough samples were run to know whether a candidate meets its goal.

Samples come in random order out of a finite set, and each is compared with the float model on the same sample.
Where values have known limits, a bet against the claim that the goal is met (and one against the opposite) is
carried on from sample to sample: under a true claim its wealth grows twentyfold with a probability of at most
5 %, however often one looks (Ville's inequality; Waudby-Smith and Ramdas, "Confidence sequences for sampling
without replacement", 2020). When what is left could not change the outcome any more, the bet is won for certain.
Without known limits it is Student's t, with the error probability shared among all looks.

A trial that is given up stays so, and that is what the proof is for. One that seems to meet the goal only goes on
to the next step, and before it is delivered all samples are run: it passes as soon as that is likely.
"""

import math

import numpy as np

from roundoff.core.student import two_sided_quantile
from roundoff.core.tensors import Array

__all__ = ["ERROR_PROBABILITY", "decide", "look_sizes"]

ERROR_PROBABILITY = 0.05
"""How probable it may be that a trial is given up although it would meet the goal."""

_FIRST_LOOK = 32
# A trial passes for the time being when its mean lies so many standard errors above what is needed, after so many.
_LIKELY, _FEWEST_TO_PASS = 1.0, 128
# A bet of more than this share of all one has loses it to a single surprise.
_LARGEST_STAKE = 0.75
# As if so many samples of this variance had been seen before the first.
_PRIOR_VARIANCE = 0.05


def look_sizes(total: int) -> tuple[int, ...]:
    """After how many samples a trial is looked at: 32, 64, 96, then half or a third as many more; at last all."""
    sizes = []
    size, step = _FIRST_LOOK, _FIRST_LOOK
    while size < total:
        sizes.append(size)
        if size == 4 * step:
            step *= 2
        size += step
    return (*sizes, total)


def decide(
    gains: Array, *, needed: float, total: int, limits: tuple[float, float] | None, looks: int
) -> bool | None:
    """Whether the mean gain over all samples is at least what is needed; None while that is open.

    Args:
        gains: By how much each sample run so far is better than in float, in random order, of shape (n,).
        needed: The mean gain over all samples that meets the goal; mostly negative.
        total: How many samples there are.
        limits: Smallest and largest gain that a sample can have; None when that is not known.
        looks: How often this is asked for one candidate.
    """
    if gains.size >= total:
        return bool(gains.mean() >= needed) if gains.size else None
    if not np.isfinite(gains).all():
        return None
    if gains.size >= _FEWEST_TO_PASS and _distance(gains, needed, total) >= _LIKELY:
        return True
    if limits is None:
        return _by_students_t(gains, needed=needed, total=total, looks=looks)
    return _by_betting(gains, needed=needed, total=total, limits=limits)


def _by_betting(gains: Array, *, needed: float, total: int, limits: tuple[float, float]) -> bool | None:
    low, high = limits
    if not low < high:
        return None
    values, claim = (gains - low) / (high - low), (needed - low) / (high - low)
    if _refuted(values, claim, total):
        return False
    # The same bet on the other side: that what is missing from 1 is more than is allowed.
    return True if _refuted(1 - values, 1 - claim, total) else None


def _refuted(values: Array, claim: float, total: int) -> bool:
    """Whether values between 0 and 1 refute that the mean of all is at least the claim."""
    wealth, seen, squares = 0.0, 0.0, 0.0
    for count, value in enumerate(values.tolist()):
        # What the mean of the rest has to be if the claim is true.
        rest = (total * claim - seen) / (total - count)
        if rest > 1:
            return True
        if rest <= 0:
            return False
        mean = (seen + 0.5) / (count + 1)
        variance = (squares + _PRIOR_VARIANCE) / (count + 1)
        edge = rest - mean
        stake = min(max(edge / (variance + edge * edge), 0.0), _LARGEST_STAKE / max(1 - rest, 1e-9))
        wealth += math.log1p(-stake * (value - rest))
        if wealth >= -math.log(ERROR_PROBABILITY):
            return True
        seen += value
        squares += (value - mean) ** 2
    return (total * claim - seen) / (total - values.size) > 1 if values.size < total else seen / total < claim


def _by_students_t(gains: Array, *, needed: float, total: int, looks: int) -> bool | None:
    if gains.size < 2:
        return None
    distance = _distance(gains, needed, total)
    reach = two_sided_quantile(gains.size - 1, 1 - 2 * ERROR_PROBABILITY / looks)
    return None if abs(distance) <= reach else distance > 0


def _distance(gains: Array, needed: float, total: int) -> float:
    """How many standard errors the mean lies above what is needed; 0 where all gains are the same."""
    spread = float(gains.std(ddof=1))
    # Drawn without replacement: the more of the set was seen, the less is open.
    error = spread / math.sqrt(gains.size) * math.sqrt(1 - gains.size / total)
    return (float(gains.mean()) - needed) / error if error > 0 else 0.0
