"""Reading a distribution off what was observed: shares, quantiles and equal bins, of one row at a time."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.observation import Observation

__all__ = ["Spread", "resolution", "spreads"]


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
