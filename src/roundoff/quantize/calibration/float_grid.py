"""Histograms on the grid of floating-point numbers itself: bins as fine as the values are small.

A bin holds the numbers that begin with the same sign, exponent and leading bits of the fraction, so each doubling
of the magnitude has the same number of bins. Whatever the range, an element belongs to one bin that is known
without looking at any other element: counts add up exactly in any order, and a few huge values do not make the
bins of all others coarse. Only elements far below the largest magnitude share one bin around zero.
"""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["FRACTION_BITS", "TENSOR_GRID", "FloatHistogram", "Grid", "channel_grid", "exponents_of"]

FRACTION_BITS = 23
"""Of a float32, next to a sign and 8 bits of exponent."""

_BEYOND_FLOAT32 = 2.0**128
# Counts that the channels of one tensor may take together.
_CHANNEL_COUNTS = 1 << 17


@dataclass(frozen=True, slots=True)
class Grid:
    """How fine the bins are.

    Attributes:
        bits: Each doubling of the magnitude has ``2**bits`` bins.
        doublings: How far below the largest magnitude the bins go; one bin around zero holds the rest.
    """

    bits: int
    doublings: int

    @property
    def bins(self) -> int:
        """Bins of one side, that around zero included."""
        return (self.doublings << self.bits) + 1

    def first(self, exponent: Array) -> Array:
        """Leading bits of the smallest magnitude that has a bin of its own.

        Args:
            exponent: Exponent of the largest magnitude, as float32 stores it.
        """
        return np.asarray(np.maximum(1, (exponent + 1 - self.doublings) << self.bits))

    def edges(self, exponent: Array) -> Array:
        """Borders of the bins of the positive side, [rows, bins]; the bin around zero ends at the first."""
        leading = self.first(exponent)[:, None] + np.arange(self.bins)
        bits = (leading << (FRACTION_BITS - self.bits)).astype(np.uint32)
        values = bits.view(np.float32).astype(np.float64)
        return np.where(np.isfinite(values), values, _BEYOND_FLOAT32)


# 256 bins in the upper half of a range of 256 levels are two to a level, and four where levels are shared by both
# signs. The bin around zero ends below 2**-39 of the largest magnitude, so that a range of values is resolved even
# next to some that are a billion times as large.
TENSOR_GRID = Grid(bits=8, doublings=40)


def channel_grid(channels: int) -> Grid:
    """The grid for one histogram per channel: the more channels, the coarser, so that memory stays bounded."""
    doublings = 16
    per_doubling = max(1, _CHANNEL_COUNTS // (2 * doublings * max(1, channels)))
    return Grid(bits=min(TENSOR_GRID.bits, max(3, per_doubling.bit_length() - 1)), doublings=doublings)


def exponents_of(magnitudes: Array) -> Array:
    """Exponents of numbers that are not negative, as float32 stores them."""
    bits = np.minimum(magnitudes, np.finfo(np.float32).max).astype(np.float32).view(np.uint32)
    return (bits >> FRACTION_BITS).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class FloatHistogram:
    """Counts of elements, in one or more rows.

    Attributes:
        grid: How fine the bins are.
        exponent: Exponent of the largest magnitude of each row, as float32 stores it; [rows].
        counts: Of positive and, where there are any, of negative values, by growing magnitude;
            [rows, 1 or 2, bins]. What is in the bin around zero counts as positive.
    """

    grid: Grid
    exponent: Array
    counts: Array

    @classmethod
    def of_counts(cls, grid: Grid, exponent: Array, counts: Array) -> "FloatHistogram":
        """A histogram that depends on the elements alone, from counts that may have empty sides and signed zeros.

        Args:
            grid: How fine the bins are.
            exponent: As in the histogram.
            counts: As in the histogram, but the bin around zero may have counts on both sides.
        """
        counts = counts.astype(np.int64)
        if counts.shape[1] > 1:
            counts[:, 0, 0] += counts[:, 1, 0]
            counts[:, 1, 0] = 0
            if not counts[:, 1].any():
                counts = counts[:, :1].copy()
        return cls(grid, exponent, counts)

    def merge(self, other: "FloatHistogram") -> "FloatHistogram":
        """The histogram of both sets of elements, on the coarser of both grids."""
        both = (self, other)
        grid = Grid(min(each.grid.bits for each in both), min(each.grid.doublings for each in both))
        exponent = np.maximum(self.exponent, other.exponent)
        sides = max(each.counts.shape[1] for each in both)
        counts = np.zeros((exponent.size, sides, grid.bins), np.int64)
        for each in both:
            counts[:, : each.counts.shape[1]] += each.on(grid, exponent)
        return FloatHistogram.of_counts(grid, exponent, counts)

    def on(self, grid: Grid, exponent: Array | None = None) -> Array:
        """Its counts on a grid that is as coarse or coarser, [rows, 1 or 2, bins].

        Args:
            grid: The grid.
            exponent: Exponent of the largest magnitude of each row on that grid, at least its own.
        """
        exponent = self.exponent if exponent is None else exponent
        rows, sides, bins = self.counts.shape
        leading = self.grid.first(self.exponent)[:, None] - 1 + np.arange(bins)
        place = (leading >> (self.grid.bits - grid.bits)) - grid.first(exponent)[:, None] + 1
        place[:, 0] = 0
        counts = np.zeros((rows, sides, grid.bins), np.int64)
        starts = np.arange(rows * sides).reshape(rows, sides, 1) * grid.bins
        indices = starts + np.maximum(place, 0)[:, None]
        np.add.at(counts.reshape(-1), indices.reshape(-1), self.counts.reshape(-1))
        return counts

    def coarser(self, bits: int) -> "FloatHistogram":
        """The same with at most ``2**bits`` bins to a doubling."""
        if bits >= self.grid.bits:
            return self
        grid = Grid(bits, self.grid.doublings)
        joined = 1 << (self.grid.bits - bits)
        if np.any(self.grid.first(self.exponent) % joined):
            return FloatHistogram.of_counts(grid, self.exponent, self.on(grid))
        # The same, faster, where bins are joined in groups of one size: everywhere but at the smallest numbers.
        own = self.counts[:, :, 1:].reshape(*self.counts.shape[:2], grid.bins - 1, joined).sum(axis=3)
        return FloatHistogram(grid, self.exponent, np.concatenate([self.counts[:, :, :1], own], axis=2))

    def collapsed(self) -> "FloatHistogram":
        """All rows together as one."""
        top = np.full_like(self.exponent, self.exponent.max(initial=0))
        exponent = np.array([top.max(initial=0)])
        return FloatHistogram.of_counts(self.grid, exponent, self.on(self.grid, top).sum(axis=0, keepdims=True))

    def ascending(self) -> tuple[Array, Array]:
        """Borders [rows, n + 1] and counts [rows, n] of all bins from the most negative to the largest."""
        edges = self.grid.edges(self.exponent)
        positive = self.counts[:, 0]
        if self.counts.shape[1] == 1:
            return np.concatenate([-edges[:, :1], edges], axis=1), positive
        negative = self.counts[:, 1, :0:-1]
        return np.concatenate([-edges[:, ::-1], edges], axis=1), np.concatenate([negative, positive], axis=1)
