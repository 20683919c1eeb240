"""Which conventions numbers speak for: all of the table are scored, none is taken because it came first.

What is known of an input is often little: the range it was calibrated for, two numbers. Several ways then fit, and
saying one of them would be a guess. So what comes out is a ranking, and `leading` gives those of it that the
numbers cannot tell apart.

Costs are in parts of the range that black and white span. A set that does not reach black or white costs what is
missing: pictures are like that. Values beyond black or white cost far more: no picture has them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.preprocessing.conventions import Convention, alike, preparations

FITS = 0.65
"""A convention that costs no more fits a range: half of what is between black and white may well be missing."""

_MARGIN = 0.15
"""Costs that are no further apart do not tell two ways apart.

Sets of a few pictures miss black or white by some hundredths of the range, at either end, and calibration methods
cut off as much.
"""

# What is beyond black and white counts so many times, but for what resizing and the grid of a quantizer go beyond.
_BEYOND, _SLACK = 6.0, 0.02
# A slip is less likely than what people do on purpose, and a rare way than a usual one; both only break ties.
_SLIP, _RARITY = 0.05, 0.02
# Values that are whole numbers once undone are pixels of bytes. By chance that hardly happens.
_WHOLE, _NEARLY_WHOLE, _NEARLY_ALL = 0.2, 0.02, 0.98
_MOST_PIXELS = 4096
# How far mean and std are apart counts less than ends: other pictures have others.
_MOMENTS = 0.25
# Ways that are no further apart than two codes of 8 bits are one way for every purpose.
_EQUAL = 0.008
_SMALLEST = 1e-30

Represent = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, eq=False)
class InputObservation:
    """What is known of the values of an input.

    Attributes:
        channels: How many it has.
        low: Smallest value of each channel, or one for all; float64.
        high: Largest, likewise.
        mean: Mean of each channel; None where it is not known.
        std: Standard deviation of each channel; None where it is not known.
        pixels: Some of the values, float64 [n, channels]; None where they are not known.
        represent: For the range of a quantizer: what it makes of the range of values, by its grid.
    """

    channels: int
    low: Array
    high: Array
    mean: Array | None = None
    std: Array | None = None
    pixels: Array | None = None
    represent: Represent | None = None

    @staticmethod
    def of(values: Array, axis: int) -> "InputObservation":
        """All that values say of themselves; the channels lie along an axis."""
        rows = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis]).astype(np.float64)
        some = rows[:: -(-len(rows) // _MOST_PIXELS)]
        return InputObservation(
            rows.shape[1], rows.min(axis=0), rows.max(axis=0), rows.mean(axis=0), rows.std(axis=0), some
        )

    @staticmethod
    def within(low: float, high: float, channels: int, represent: Represent | None = None) -> "InputObservation":
        """A range and nothing else."""
        return InputObservation(channels, np.array([low]), np.array([high]), represent=represent)


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """How one input was made, and how another of the same network.

    Attributes:
        given: How the one was made.
        wanted: How the other was.
        cost: How badly both fit what is known; the less the better.
    """

    given: Convention
    wanted: Convention
    cost: float

    @property
    def same(self) -> bool:
        """Whether both were made in one way, as far as ranges can show: they do not show the order of channels."""
        return self.given.formula == self.wanted.formula or alike(self.given, self.wanted, _EQUAL)

    def change(self, values: Array, axis: int) -> Array:
        """Make what the other way would have made of the same pixels."""
        return self.wanted.made(self.given.undone(values, axis), axis)


def rank(ours: InputObservation, theirs: InputObservation, most: float = FITS) -> tuple[Hypothesis, ...]:
    """Every pair of ways in which two inputs may have been made, the likeliest first.

    Args:
        ours: What is known of one.
        theirs: What is known of the other.
        most: Ways that fit either side worse than this are left out.
    """
    found = []
    theirs_fit = plausible(theirs, most)
    for given, cost in plausible(ours, most):
        for wanted, other_cost in theirs_fit:
            found.append(Hypothesis(given, wanted, cost + other_cost + _moved(ours, theirs, given, wanted)))
    return tuple(sorted(found, key=lambda each: each.cost))


def plausible(observed: InputObservation, most: float = FITS) -> list[tuple[Convention, float]]:
    """The ways in which an input may have been made, with what speaks against each; the likeliest first."""
    found = []
    for each in preparations(observed.channels):
        cost = _off_ends(observed, *each.ends())
        if cost <= most:
            found.append(
                (each, cost + _RARITY * each.cost + _SLIP * each.slip - _WHOLE * _is_whole(observed, each))
            )
    return sorted(found, key=lambda pair: pair[1])


def leading(ranked: Sequence[Hypothesis], margin: float = _MARGIN) -> tuple[Hypothesis, ...]:
    """The likeliest, and those not to be told apart from it; of ways that are all but equal the most usual."""
    groups: list[list[Hypothesis]] = []
    for each in ranked:
        if each.cost > ranked[0].cost + margin:
            break
        home = next((group for group in groups if _equal(each, group[0])), None)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    return tuple(min(group, key=lambda each: each.given.cost + each.wanted.cost) for group in groups)


def _equal(one: Hypothesis, other: Hypothesis) -> bool:
    return all(
        left.formula == right.formula or alike(left, right, _EQUAL)
        for left, right in ((one.given, other.given), (one.wanted, other.wanted))
    )


def _off_ends(observed: InputObservation, low: Array, high: Array) -> float:
    """How far ends are from those of black and white."""
    if observed.low.size == 1:
        bottom, top = float(low.min()), float(high.max())
        bottom, top = (bottom, top) if observed.represent is None else observed.represent(bottom, top)
        low, high = np.array([bottom]), np.array([top])
    span = np.maximum(high - low, _SMALLEST)
    missing = np.maximum(observed.low - low, 0) / span + np.maximum(high - observed.high, 0) / span
    beyond = np.maximum(low - observed.low, 0) / span + np.maximum(observed.high - high, 0) / span
    return float(missing.mean() + _BEYOND * max(0.0, float(beyond.max()) - _SLACK))


def _is_whole(observed: InputObservation, way: Convention) -> bool:
    if observed.pixels is None:
        return False
    pixels = way.undone(observed.pixels, 1)
    near = np.abs(pixels - np.rint(pixels)) <= _NEARLY_WHOLE
    # Whatever is nearly constant is nearly whole once it is made small enough.
    return float(near.mean()) >= _NEARLY_ALL and float(np.ptp(np.rint(pixels))) > 1


def _moved(ours: InputObservation, theirs: InputObservation, given: Convention, wanted: Convention) -> float:
    """How far one input, made anew in the other way, is from the other input."""
    low, high = (wanted.made(given.undone(end, 0), 0) for end in _wide(ours))
    if theirs.low.size == 1:
        bottom, top = float(low.min()), float(high.max())
        bottom, top = (bottom, top) if theirs.represent is None else theirs.represent(bottom, top)
        low, high = np.array([bottom]), np.array([top])
    width = np.maximum(theirs.high - theirs.low, _SMALLEST)
    # Both sets miss black and white by something, each by its own: what they differ by says little beyond that.
    off = float(np.mean(np.abs(low - theirs.low) / width + np.abs(high - theirs.high) / width))
    if ours.mean is None or ours.std is None or theirs.mean is None or theirs.std is None:
        return min(off, 1.0)
    mean = wanted.made(given.undone(ours.mean, 0), 0)
    std = np.abs(ours.std * _slope(given, wanted))
    return min(off, 1.0) + _MOMENTS * moment_distance((mean, std), (theirs.mean, theirs.std))


def _wide(observed: InputObservation) -> Iterable[Array]:
    return (np.broadcast_to(end, observed.channels).astype(np.float64) for end in (observed.low, observed.high))


def _slope(given: Convention, wanted: Convention) -> Array:
    return np.asarray(wanted.gain / given.gain)


def moment_distance(ours: tuple[Array, Array], theirs: tuple[Array, Array]) -> float:
    """How far two sets of means and stds are apart: shifts in stds, and logarithms of their ratios."""
    (mean, std), (other_mean, other_std) = ours, theirs
    shift = np.abs(mean - other_mean) / np.maximum(np.maximum(other_std, std), _SMALLEST)
    ratio = np.log(np.maximum(std, _SMALLEST) / np.maximum(other_std, _SMALLEST))
    return float(np.median(shift) + np.median(np.abs(ratio)))
