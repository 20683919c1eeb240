"""Recording one set of values, and summing it up."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import CentralMoments, TensorStats
from roundoff.quantize.calibration.observer import Observation, Observer
from roundoff.studies.distribution.result import Bins, ValueSummary

__all__ = [
    "QUANTILES",
    "Layout",
    "Spread",
    "ValueRecord",
    "automatic_bins",
    "certain_peaks",
    "counted_in",
    "lay_out",
    "resolution",
    "spreads",
    "tube_radius",
]


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
class Layout:
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


def lay_out(parts: Iterable[Spread], most: int, *, step: float | None = None) -> Layout | None:
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
        return Layout(low - width / 2, width, 1)
    if step is None or not math.isfinite(low / step) or not math.isfinite(high / step):
        return Layout(low, 2 * (span / most), most)
    wanted = 2 * (span / most)
    pieces = math.floor(step / wanted)
    # An odd number of bins to a step, or whole steps to a bin: then no border is on a level.
    unit = step if pieces < 1 else step / (pieces if pieces % 2 else pieces - 1)
    width = unit * max(1, math.ceil(wanted / unit - _SLACK))
    start = (math.floor(low / unit + 0.5) - 0.5) * unit
    return Layout(start, width, math.floor((high - start) / width) + 1)


def counted_in(spread: Spread, layout: Layout) -> Bins:
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


QUANTILES = (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999)
# The middle of the values, for how much of the range they take.
_MIDDLE = (0.0005, 0.9995)
# Of the range, at each end.
_EDGE = 0.01
# Peaks are looked for between these quantiles; what is beyond is far less than a peak.
_BULK, _BULK_BINS = (0.005, 0.995), 254
# So few distinct values are taken one by one.
_FEW_VALUES = 256


class ValueRecord:
    """All that is remembered of values seen so far; its size does not depend on how many there were."""

    def __init__(self) -> None:
        self._observer = Observer()
        self._stats = TensorStats()
        self._moments = CentralMoments()
        self._spread: Spread | None = None

    def add(self, values: Array) -> None:
        """See values of any real type."""
        self._spread = None
        self._observer.add(values)
        self._stats = self._stats.merge(TensorStats.of(values))
        self._moments = self._moments.merge(CentralMoments.of(values))

    @property
    def spread(self) -> Spread:
        """How they are spread."""
        if self._spread is None:
            self._spread = next(iter(spreads(self._observer.observation())))
        return self._spread

    @property
    def resolution(self) -> float:
        """Width of the bins they are known by, as a share of the value; 0 when each is known."""
        return resolution(self._observer.observation())

    def summary(self, layout: Layout | None) -> ValueSummary:
        """Sum them up.

        Args:
            layout: Where the bins of the histogram are; None for no histogram.
        """
        stats, spread = self._stats, self.spread
        known = stats.finite > 0
        span = stats.maximum - stats.minimum if known else 0.0
        edge_share = central_range = None
        if span > 0:
            borders = np.array([stats.minimum + _EDGE * span, stats.maximum - _EDGE * span])
            below = spread.below(np.array([np.nextafter(borders[0], np.inf), borders[1]])) / spread.count
            edge_share = float(below[0] + 1 - below[1])
            first, last = spread.quantiles(np.array(_MIDDLE))
            central_range = float((last - first) / span)
        return ValueSummary(
            count=stats.count,
            nonfinite=stats.nans + stats.infs,
            zeros=stats.zeros,
            minimum=stats.minimum if known else None,
            maximum=stats.maximum if known else None,
            mean=stats.mean if known else None,
            std=stats.std if known else None,
            skewness=self._moments.skewness,
            excess_kurtosis=self._moments.excess_kurtosis,
            quantiles=self._quantiles() if known else {},
            edge_share=edge_share,
            central_range=central_range,
            bins=None if layout is None or not known else counted_in(spread, layout),
        )

    def _quantiles(self) -> dict[str, float]:
        found = self.spread.quantiles(np.array(QUANTILES))
        return {f"{share:g}": float(value) for share, value in zip(QUANTILES, found, strict=True)}

    def peaks(self) -> tuple[float, ...]:
        """Where the peaks are that are there for certain."""
        spread = self.spread
        if not spread.count:
            return ()
        if spread.low == spread.high:
            return (spread.low,)
        few = spread.distinct(_FEW_VALUES)
        if few is not None:
            values, counts = few
            return certain_peaks(_between(values).tolist(), counts.tolist())
        first, last = spread.quantiles(np.array(_BULK))
        edges = np.unique(np.concatenate([[spread.low], np.linspace(first, last, _BULK_BINS), [spread.high]]))
        below = spread.below(edges)
        below[0], below[-1] = 0, spread.count
        return certain_peaks(edges.tolist(), np.diff(below).tolist())


def _between(values: Array) -> Array:
    """Borders half-way between values; the gaps between the values of an image are no valleys."""
    middles = values[:-1] / 2 + values[1:] / 2
    return np.concatenate([[2 * values[0] - middles[0]], middles, [2 * values[-1] - middles[-1]]])
