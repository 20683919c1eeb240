"""Reading a distribution off what was observed: shares, quantiles, bins of a histogram, and certain peaks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.observer import Observation
from roundoff.studies.distribution.result import Bins

# Reading a distribution off what was observed: shares, quantiles and equal bins, of one row at a time.


class Spread(Protocol):
    """How the finite values of a tensor, or of one of its channels, are spread."""

    @property
    def count(self) -> int:
        """Finite values."""
        ...

    @property
    def low(self) -> float:
        """Smallest; 0 when there is none."""
        ...

    @property
    def high(self) -> float:
        """Largest; 0 when there is none."""
        ...

    def below(self, positions: Array) -> Array:
        """How many values are smaller than each of these positions."""
        ...

    def quantiles(self, shares: Array) -> Array:
        """Values that these shares of all values do not exceed; interpolated as by `numpy.quantile`."""
        ...

    def distinct(self, most: int) -> tuple[Array, Array] | None:
        """The distinct values, ascending, and how often each occurs; None when there are more than so many."""
        ...


def spreads(observation: Observation) -> Iterator[Spread]:
    """The spread of each row.

    Args:
        observation: Must have a distribution.
    """
    if observation.elements is not None:
        for row in observation.elements:
            yield _Elements(row[: int(np.count_nonzero(~np.isnan(row)))].astype(np.float64))
        return
    if observation.histogram is None:
        raise ValueError("only ranges were observed")
    edges, counts = observation.histogram.ascending()
    for row in range(observation.rows):
        yield _Bins(edges[row], counts[row], float(observation.low[row]), float(observation.high[row]))


def resolution(observation: Observation) -> float:
    """Width of the bins values were counted in, as a share of the values; 0 when every value is known."""
    if observation.elements is not None or observation.histogram is None:
        return 0.0
    return float(2.0**-observation.histogram.grid.bits)


class _Elements:
    """Every value is known."""

    def __init__(self, ascending: Array) -> None:
        self._values = ascending
        self.count = int(ascending.size)
        self.low, self.high = (float(ascending[0]), float(ascending[-1])) if self.count else (0.0, 0.0)

    def below(self, positions: Array) -> Array:
        return np.searchsorted(self._values, positions, side="left").astype(np.float64)

    def quantiles(self, shares: Array) -> Array:
        if not self.count:
            return np.zeros(len(shares))
        places = shares * (self.count - 1)
        before = np.floor(places).astype(np.int64)
        after = np.minimum(before + 1, self.count - 1)
        part = places - before
        # Weighted, because the difference of two large values may be infinite.
        return np.asarray(self._values[before] * (1 - part) + self._values[after] * part)

    def distinct(self, most: int) -> tuple[Array, Array] | None:
        values, counts = np.unique(self._values, return_counts=True)
        return (values, counts) if values.size <= most else None


class _Bins:
    """Values are known by their bins, and taken to lie evenly in them; the outermost ones are known exactly."""

    def __init__(self, edges: Array, counts: Array, low: float, high: float) -> None:
        self.count = int(counts.sum())
        self.low, self.high = (low, high) if self.count else (0.0, 0.0)
        # What is in the bin around zero is far smaller than anything else, and mostly zero.
        self._zero = int(np.searchsorted(edges, 0.0, side="right")) - 1
        edges = edges.copy()
        edges[self._zero : self._zero + 2] = 0.0
        self._edges = np.clip(edges, self.low, self.high)
        self._running = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])

    def below(self, positions: Array) -> Array:
        found = np.interp(positions, self._edges, self._running)
        found = np.where(positions == 0, self._running[self._zero], found)
        return np.where(positions <= self.low, 0.0, np.where(positions > self.high, self.count, found))

    def quantiles(self, shares: Array) -> Array:
        if not self.count:
            return np.zeros(len(shares))
        wanted = shares * self.count
        # The bin in which so many are reached; empty ones reach nothing.
        bins = np.searchsorted(self._running[1:], wanted, side="left")
        bins = np.where(wanted > 0, bins, int(np.flatnonzero(self._running[1:])[0]))
        held = self._running[bins + 1] - self._running[bins]
        part = (wanted - self._running[bins]) / held
        return np.asarray(self._edges[bins] * (1 - part) + self._edges[bins + 1] * part)

    def distinct(self, most: int) -> tuple[Array, Array] | None:
        counts = np.diff(self._running)
        held = np.flatnonzero(counts)
        if held.size > most:
            return None
        # Bins are so narrow that values which share one count as the same.
        return (self._edges[held] + self._edges[held + 1]) / 2, counts[held]


# Where the bins of a histogram are: so that each holds the same number of levels of a quantizer.
#
# With any other bins some would hold two levels and their neighbours one, and the picture of a smooth distribution
# would be a comb.

_FEWEST_BINS, _MOST_BINS = 16, 200

# Rounding must not turn a whole number of steps into the next one.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class BinLayout:
    """Equal bins.

    Attributes:
        start: Lower border of the first.
        width: Of each.
        bins: How many.
    """

    start: float
    width: float
    bins: int


def automatic_bins(count: int) -> int:
    """Bins for so many values: few enough that they are not mostly empty."""
    return min(_MOST_BINS, max(_FEWEST_BINS, 2 * math.isqrt(count)))


def lay_out(parts: Iterable[Spread], most: int, *, step: float | None = None) -> BinLayout | None:
    """Bins that hold all values of one or more sets.

    Args:
        parts: The sets.
        most: How many bins at most; with a step it may be two more.
        step: Distance between the levels of a quantizer; None when there are none.

    Returns:
        None when there are no values.
    """
    held = [part for part in parts if part.count]
    if not held:
        return None
    low, high = min(part.low for part in held), max(part.high for part in held)
    span = high / 2 - low / 2  # halves: the whole may be infinite
    if span <= 0:
        width = abs(low) / most or 1.0
        return BinLayout(low - width / 2, width, 1)
    if step is None or not math.isfinite(low / step) or not math.isfinite(high / step):
        return BinLayout(low, 2 * (span / most), most)
    wanted = 2 * (span / most)
    pieces = math.floor(step / wanted)
    # An odd number of bins to a step, or whole steps to a bin: then no border is on a level.
    unit = step if pieces < 1 else step / (pieces if pieces % 2 else pieces - 1)
    width = unit * max(1, math.ceil(wanted / unit - _SLACK))
    start = (math.floor(low / unit + 0.5) - 0.5) * unit
    return BinLayout(start, width, math.floor((high - start) / width) + 1)


def counted_in(spread: Spread, layout: BinLayout) -> Bins:
    """How many values each bin holds."""
    edges = layout.start + layout.width * np.arange(layout.bins + 1)
    below = spread.below(edges)
    # Rounding of the borders must not lose the outermost values.
    below[0], below[-1] = 0, spread.count
    return Bins(layout.start, layout.width, tuple(np.diff(below).tolist()))


# How many peaks a distribution has for certain.
#
# Of all distributions whose cumulative function stays within a given distance of the one observed, the taut string
# has the fewest peaks: a string pulled tight between the two ends, inside a tube around the cumulative function
# (Davies and Kovac, *Densities, spectral densities and modality*, 2004). So no peak is counted that noise of that
# size, the width of a bin, or the gaps between the values of a quantized tensor could have made.

SMALLEST_RADIUS = 0.01
"""Whatever less than about 4 % of the values do is no peak."""

# Times 1 / sqrt(n) it is the distance from the true cumulative function that n independent values stay within in
# 95 of 100 cases (Kolmogorov).
_KOLMOGOROV = 1.358


def tube_radius(count: int) -> float:
    """How far the cumulative function of so many values may be from the true one."""
    return max(SMALLEST_RADIUS, _KOLMOGOROV / math.sqrt(max(1, count)))


def certain_peaks(
    edges: Sequence[float], counts: Sequence[float], *, radius: float | None = None
) -> tuple[float, ...]:
    """Where the peaks are that cannot be explained away.

    Args:
        edges: Borders of bins, strictly ascending, one more than counts.
        counts: Values in each bin, not negative.
        radius: Largest distance between cumulative functions that means nothing; by default what so many
            independent values can be off by, and at least one per cent.

    Returns:
        The middle of each peak in ascending order; one for a distribution that could have a single peak, or be
        flat; none when there are no values.
    """
    total = sum(counts)
    if total <= 0:
        return ()
    running, cumulative = 0.0, [0.0]
    for count in counts:
        running += count
        cumulative.append(running / total)
    knots = _taut_string(edges, cumulative, tube_radius(round(total)) if radius is None else radius)
    return _maxima(edges, knots)


def _taut_string(x: Sequence[float], y: Sequence[float], radius: float) -> list[tuple[int, float]]:
    """The shortest path from the first to the last point that stays within a distance above and below all others.

    Returns:
        Where it bends: position in x, and height there.
    """
    last = len(x) - 1
    floor = [y[0], *(each - radius for each in y[1:last]), y[last]]
    ceiling = [y[0], *(each + radius for each in y[1:last]), y[last]]
    bends, at, height = [(0, y[0])], 0, y[0]
    while at < last:
        # The steepest line that has to be taken, and the flattest; both begin at the last bend.
        steepest_floor, flattest_ceiling = -math.inf, math.inf
        floor_at = ceiling_at = at
        for here in range(at + 1, last + 1):
            distance = x[here] - x[at]
            to_floor, to_ceiling = (floor[here] - height) / distance, (ceiling[here] - height) / distance
            if to_floor > flattest_ceiling:
                at, height = ceiling_at, ceiling[ceiling_at]
                break
            if to_ceiling < steepest_floor:
                at, height = floor_at, floor[floor_at]
                break
            if to_floor >= steepest_floor:
                steepest_floor, floor_at = to_floor, here
            if to_ceiling <= flattest_ceiling:
                flattest_ceiling, ceiling_at = to_ceiling, here
        else:
            at, height = last, y[last]
        bends.append((at, height))
    return bends


def _maxima(x: Sequence[float], bends: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Middles of the stretches that are steeper than both neighbours."""
    slopes: list[tuple[float, float, float]] = []
    for (left, low), (right, high) in pairwise(bends):
        slope = (high - low) / (x[right] - x[left])
        if slopes and math.isclose(slope, slopes[-1][0], rel_tol=1e-9, abs_tol=1e-300):
            slopes[-1] = (slope, slopes[-1][1], x[right])
        else:
            slopes.append((slope, x[left], x[right]))
    found = []
    for index, (slope, start, end) in enumerate(slopes):
        before = slopes[index - 1][0] if index else -math.inf
        after = slopes[index + 1][0] if index + 1 < len(slopes) else -math.inf
        if slope > before and slope > after:
            found.append((start + end) / 2)
    return tuple(found)
