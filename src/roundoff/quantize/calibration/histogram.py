"""Histograms on the grid of floating-point numbers itself: bins as fine as the values are small.

A bin holds the numbers that begin with the same sign, exponent and leading bits of the fraction, so each doubling
of the magnitude has the same number of bins. Whatever the range, an element belongs to one bin that is known
without looking at any other element: counts add up exactly in any order, and a few huge values do not make the
bins of all others coarse. Only elements far below the largest magnitude share one bin around zero.
"""

import math
import mmap
import threading
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

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
        # The leading bits of a float32, read as an integer, count through exponent and fraction without a gap:
        # bins are runs of these integers, even within a doubling, and one is found by a shift, not a logarithm.
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


# Counting elements as they come, fast: the index of a bin is made of the bits of a float32 as they are stored.

_MAGNITUDE_BITS = 31
_INFINITE_EXPONENT = 255
# Elements counted at a time: the indices stay in the cache, and the cost of the calls is small against them.
_BLOCK = 1 << 16
_MOST_COUNTED = (1 << 32) - 1


class _CountScratch(threading.local):
    """Memory for the indices of a block, kept by each thread: fresh memory would cost more than the counting."""

    def __init__(self) -> None:
        self.bins = np.empty(_BLOCK, np.uint32)
        self.signs = np.empty(_BLOCK, np.uint32)
        self.indices = np.empty(_BLOCK, np.int64)


_SCRATCH = _CountScratch()


class TensorCounter:
    """Counts the elements of a tensor.

    There is a bin for all leading bits a float32 can have. Of the memory only what numbers fall into is ever
    touched: some thirty pages.
    """

    def __init__(self) -> None:
        self._shift = FRACTION_BITS - TENSOR_GRID.bits
        self._counts = self._fresh()
        self._counted = 0
        self._before: Array | None = None

    def add(self, values: Array) -> None:
        """Count elements.

        Args:
            values: float32, one axis, contiguous. What is not finite is left out.
        """
        if self._counted + values.size > _MOST_COUNTED:
            self._before = self._all().astype(np.int64)
            self._counts, self._counted = self._fresh(), 0
        self._counted += values.size
        stored = values.view(np.uint32)
        for start in range(0, stored.size, _BLOCK):
            part = stored[start : start + _BLOCK]
            indices = _SCRATCH.indices[: part.size]
            np.right_shift(part, self._shift, out=indices)
            np.add.at(self._counts, indices, np.uint32(1))

    def histogram(self, low: float = -math.inf, high: float = math.inf) -> FloatHistogram:
        """What was counted so far; elements beyond limits count as these."""
        finite = _limited(self._all().reshape(2, -1)[:, : _INFINITE_EXPONENT << TENSOR_GRID.bits], low, high)
        used = np.flatnonzero(finite.any(axis=0))
        exponent = np.array([used[-1] >> TENSOR_GRID.bits if used.size else 0])
        first = int(TENSOR_GRID.first(exponent)[0])
        counts = np.zeros((1, 2, TENSOR_GRID.bins), np.int64)
        counts[0, :, 0] = finite[:, :first].sum(axis=1, dtype=np.int64)
        own = finite[:, first : first + TENSOR_GRID.bins - 1]
        counts[0, :, 1 : 1 + own.shape[1]] = own
        return FloatHistogram.of_counts(TENSOR_GRID, exponent, counts)

    def _all(self) -> Array:
        return self._counts if self._before is None else self._before + self._counts

    def _fresh(self) -> Array:
        # Straight from the system, which gives pages only as they are touched; recycled memory is touched at once.
        bins = 1 << (32 - self._shift)
        return np.frombuffer(mmap.mmap(-1, bins * np.dtype(np.uint32).itemsize), np.uint32)


class ChannelCounter:
    """Counts the elements of each channel of a tensor.

    Args:
        grid: How fine the bins are.
        rows: Number of channels.
    """

    def __init__(self, grid: Grid, rows: int) -> None:
        self._grid = grid
        self._exponent = np.zeros(rows, np.int64)
        self._counts = np.zeros((rows, 2, grid.bins), np.int64)

    def add(self, values: Array) -> None:
        """Count elements.

        Args:
            values: float32 of shape [outer, rows, inner]. What is not finite is left out.
        """
        magnitudes = np.abs(values)
        bad = ~np.isfinite(magnitudes)
        excluded = np.count_nonzero(bad, axis=(0, 2))
        if excluded.any():
            values = np.where(bad, np.float32(0), values)
            magnitudes = np.abs(values)
        self._make_room(exponents_of(magnitudes.max(axis=(0, 2), initial=0)))
        outer, rows, inner = values.shape
        inner_step = max(1, min(inner, _BLOCK))
        row_step = max(1, min(rows, _BLOCK // inner_step))
        outer_step = max(1, _BLOCK // (row_step * inner_step))
        for row in range(0, rows, row_step):
            for first in range(0, outer, outer_step):
                for start in range(0, inner, inner_step):
                    part = values[first : first + outer_step, row : row + row_step, start : start + inner_step]
                    self._count(part, row)
        self._counts[:, 0, 0] -= excluded  # they were counted as zeros

    def histogram(self) -> FloatHistogram:
        """What was counted so far."""
        return FloatHistogram.of_counts(self._grid, self._exponent.copy(), self._counts)

    def _make_room(self, exponent: Array) -> None:
        if np.any(exponent > self._exponent):
            grown = np.maximum(exponent, self._exponent)
            self._counts = FloatHistogram(self._grid, self._exponent, self._counts).on(self._grid, grown)
            self._exponent = grown

    def _count(self, block: Array, row: int) -> None:
        """Count a block of shape [outer, rows, inner] whose first row is this one."""
        rows = block.shape[1]
        last_shared = (self._grid.first(self._exponent[row : row + rows]) - 1)[:, None]
        places = (np.arange(row, row + rows) * (2 * self._grid.bins))[:, None]
        stored = block.view(np.uint32)
        found, signs = (each[: block.size].reshape(block.shape) for each in (_SCRATCH.bins, _SCRATCH.signs))
        np.right_shift(stored, FRACTION_BITS - self._grid.bits, out=found)
        np.bitwise_and(found, (1 << (_MAGNITUDE_BITS - FRACTION_BITS + self._grid.bits)) - 1, out=found)
        np.maximum(found, last_shared.astype(np.uint32), out=found)
        np.right_shift(stored, _MAGNITUDE_BITS, out=signs)
        np.multiply(signs, self._grid.bins, out=signs)
        np.add(found, signs, out=found)
        indices = _SCRATCH.indices[: block.size]
        np.subtract(found, last_shared - places, out=indices.reshape(block.shape))
        np.add.at(self._counts.reshape(-1), indices, 1)


def _limited(counts: Array, low: float, high: float) -> Array:
    """Counts by sign and leading bits, [2, n], after moving what is beyond limits to these.

    A limit moves nothing out of its own bin, and everything beyond it into that, wherever in the bin it is.
    """
    if (low, high) == (-math.inf, math.inf):
        return counts
    ascending = np.concatenate([counts[1, ::-1], counts[0]]).astype(np.int64)
    first, last = (_place(end, counts.shape[1]) for end in (low, high))
    ascending[first] += ascending[:first].sum()
    ascending[:first] = 0
    ascending[last] += ascending[last + 1 :].sum()
    ascending[last + 1 :] = 0
    negative, positive = np.split(ascending, 2)
    return np.stack([positive, negative[::-1]])


def _place(value: float, bins: int) -> int:
    """Which bin a value is in, of all from the most negative to the largest."""
    largest = np.finfo(np.float32).max
    stored = int(np.float32(np.clip(value, -largest, largest)).view(np.uint32))
    magnitude = (stored & ((1 << _MAGNITUDE_BITS) - 1)) >> (FRACTION_BITS - TENSOR_GRID.bits)
    return bins - 1 - magnitude if stored >> _MAGNITUDE_BITS else bins + magnitude


def histogram_of(elements: Array, grid: Grid) -> FloatHistogram:
    """Count elements of shape [rows, n]; what is not finite is left out."""
    counter = ChannelCounter(grid, len(elements))
    counter.add(elements[None])
    return counter.histogram()
