"""What calibration methods ask of the elements of a tensor, whether all are known or only a histogram of them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.histogram import TENSOR_GRID, FloatHistogram, Grid, histogram_of

BLOCK = 1 << 16
"""Values looked at together: the arrays of a step of the computation stay in the cache."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The values a quantizer can produce: ``step`` times the whole numbers from ``first`` to ``last``.

    Attributes:
        step: Distance of two levels; [rows, candidates], as the others.
        first: Smallest whole number, at most 0.
        last: Largest whole number, at least 0.
        floor: Values are rounded down instead of to the nearest.
    """

    step: Array
    first: Array
    last: Array
    floor: bool = False

    def some(self, part: slice | Array) -> "Levels":
        """Those of some candidates."""
        return Levels(self.step[..., part], self.first[..., part], self.last[..., part], self.floor)

    def of_row(self, row: int) -> "Levels":
        """Those of one row, of shape [candidates]."""
        return Levels(self.step[row], self.first[row], self.last[row], self.floor)


class ObservedDistribution(Protocol):
    """The elements of one or more rows; rows are independent of one another."""

    @property
    def low(self) -> Array:
        """Smallest value of each row; 0 where there is none."""
        ...

    @property
    def high(self) -> Array:
        """Largest value of each row; 0 where there is none."""
        ...

    @property
    def total(self) -> Array:
        """Elements of each row."""
        ...

    def squared_error(self, levels: Levels) -> Array:
        """Mean squared distance of the elements from the levels they are quantized to, [rows, candidates]."""
        ...

    def smallest(self, index: Array) -> Array:
        """The element of each row that has so many smaller ones; [rows]."""
        ...

    def magnitudes(self) -> "ObservedDistribution":
        """The distribution of the absolute values."""
        ...

    def typical(self) -> Array:
        """The magnitude that half of the elements other than zero exceed; [rows]."""
        ...

    def beyond(self, low: Array, high: Array) -> Array:
        """Elements of each row outside of a range; [rows]."""
        ...

    def binned(self, row: int, bins: int) -> Array:
        """Elements in each of so many equal bins from the smallest to the largest value of a row."""
        ...

    def row(self, index: int) -> "ObservedDistribution":
        """One of the rows alone."""
        ...

    def histogram(self) -> FloatHistogram:
        """The elements counted on a grid; large, so that of one row at a time."""
        ...

    def coarser(self) -> "ObservedDistribution":
        """The same with less detail where that saves time, for a first look."""
        ...


class Ranged:
    """What both kinds of distribution have.

    Args:
        low: Smallest value of each row; anything where there are no elements.
        high: Largest value of each row.
        total: Elements of each row.
    """

    def __init__(self, low: Array, high: Array, total: Array) -> None:
        known = total > 0
        self._low, self._high = np.where(known, low, 0.0), np.where(known, high, 0.0)
        self._total = total

    @property
    def low(self) -> Array:
        """Smallest value of each row; 0 where there is none."""
        return self._low

    @property
    def high(self) -> Array:
        """Largest value of each row; 0 where there is none."""
        return self._high

    @property
    def total(self) -> Array:
        """Elements of each row."""
        return self._total


def sum_in_blocks(sum_up: Callable[[slice], Array], levels: Levels, length: int) -> Array:
    """Sums for all candidates, some at a time."""
    rows, candidates = levels.step.shape
    at_once = max(1, BLOCK // max(1, rows * length))
    parts = [sum_up(slice(start, start + at_once)) for start in range(0, candidates, at_once)]
    return np.concatenate(parts, axis=1)


# The distribution of elements of which only a histogram is known.

FIRST_LOOK_BITS = 5
"""Bins to a doubling, as a power of two, that are enough for a first look."""


class HistogramPieces(Ranged):
    """Only a histogram is known; elements are taken to lie evenly in their bins.

    Args:
        histogram: The counts.
        low: Smallest value of each row.
        high: Largest value of each row.
    """

    def __init__(self, histogram: FloatHistogram, low: Array, high: Array) -> None:
        super().__init__(low, high, histogram.counts.sum(axis=(1, 2)))
        self._histogram = histogram
        edges, counts = histogram.ascending()
        used = np.flatnonzero(counts.any(axis=0))
        start, stop = (used[0], used[-1] + 1) if used.size else (0, 1)
        # The outermost elements are known exactly, so no bin reaches beyond them.
        self._edges = np.clip(edges[:, start : stop + 1], self._low[:, None], self._high[:, None])
        self._counts = counts[:, start:stop].astype(np.float64)

    def squared_error(self, levels: Levels) -> Array:
        """Mean squared distance of the elements from the levels they are quantized to, [rows, candidates]."""
        width = np.diff(self._edges, axis=1)
        density = np.divide(self._counts, width, out=np.zeros_like(width), where=width > 0)
        single = np.where(width > 0, 0.0, self._counts)

        def sum_up(part: slice) -> Array:
            chosen = levels.some(part)
            integral = _integral(self._edges, chosen)
            sums = np.einsum("rkn,rn->rk", integral[:, :, 1:] - integral[:, :, :-1], density)
            return np.asarray(sums * (chosen.step**3 / 3))

        total = sum_in_blocks(sum_up, levels, self._edges.shape[1])
        if single.any():
            total += self._error_of_single_values(single, levels)
        return total / np.maximum(self._total, 1)[:, None]

    def smallest(self, index: Array) -> Array:
        """The element of each row that has so many smaller ones, estimated within its bin; [rows]."""
        found = np.empty(len(self._counts))
        for row, place in enumerate(index):
            found[row] = np.interp(place + 0.5, _running(self._counts[row]), self._edges[row])
        found = np.where(index <= 0, self._low, found)
        return np.where(index >= self._total - 1, self._high, found)

    def magnitudes(self) -> "HistogramPieces":
        """The distribution of the absolute values."""
        counts = self._histogram.counts.sum(axis=1, keepdims=True)
        folded = FloatHistogram(self._histogram.grid, self._histogram.exponent, counts)
        return HistogramPieces(folded, np.zeros_like(self._low), np.maximum(self._high, -self._low))

    def typical(self) -> Array:
        """The magnitude that half of the elements other than zero exceed; [rows]."""
        counts = self._histogram.counts.sum(axis=1)
        counts[:, 0] = 0
        below = np.cumsum(counts, axis=1)
        middle = np.sum(below < below[:, -1:] / 2, axis=1)
        edges = self._histogram.grid.edges(self._histogram.exponent)
        found = np.take_along_axis(edges, middle[:, None], axis=1)[:, 0]
        return np.asarray(np.minimum(found, np.maximum(self._high, -self._low)))

    def beyond(self, low: Array, high: Array) -> Array:
        """Elements of each row outside of a range; [rows]."""
        found = np.zeros(len(self._counts))
        for row, ends in enumerate(np.stack([low, high], axis=1)):
            below = np.interp(ends, self._edges[row], _running(self._counts[row]), left=0, right=self._total[row])
            found[row] = below[0] + self._total[row] - below[1]
        return found

    def binned(self, row: int, bins: int) -> Array:
        """Elements in each of so many equal bins from the smallest to the largest value of a row."""
        borders = np.linspace(self._low[row], self._high[row], bins + 1)
        below = np.interp(borders, self._edges[row], _running(self._counts[row]))
        below[0], below[-1] = 0, self._total[row]
        return np.diff(below)

    def row(self, index: int) -> "HistogramPieces":
        """One of the rows alone."""
        if len(self._low) == 1:
            return self
        whole, only = self._histogram, slice(index, index + 1)
        histogram = FloatHistogram(whole.grid, whole.exponent[only], whole.counts[only])
        return HistogramPieces(histogram, self._low[only], self._high[only])

    def histogram(self) -> FloatHistogram:
        """The elements counted on a grid; large, so that of one row at a time."""
        return self._histogram

    def coarser(self) -> "HistogramPieces":
        """The same with wider bins, which cost less time."""
        return HistogramPieces(self._histogram.coarser(FIRST_LOOK_BITS), self._low, self._high)

    def _error_of_single_values(self, counts: Array, levels: Levels) -> Array:
        """Squared error of elements in bins without width: they all have the same value."""
        total = np.zeros(levels.step.shape)
        shift = 0.0 if levels.floor else 0.5
        for row, bin_ in zip(*np.nonzero(counts), strict=True):
            distance = self._edges[row, bin_] / levels.step[row]
            nearest = np.clip(np.floor(distance + shift), levels.first[row], levels.last[row])
            total[row] += counts[row, bin_] * ((distance - nearest) * levels.step[row]) ** 2
        return total


def split_pieces(histogram: FloatHistogram, low: Array, high: Array) -> Iterator[HistogramPieces]:
    """A histogram of many rows, some rows at a time."""
    at_once = max(1, (4 * BLOCK) // math.prod(histogram.counts.shape[1:]))
    for start in range(0, len(low), at_once):
        part = slice(start, start + at_once)
        some = FloatHistogram(histogram.grid, histogram.exponent[part], histogram.counts[part])
        yield HistogramPieces(some, low[part], high[part])


def _running(counts: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(counts)])


def _integral(positions: Array, levels: Levels) -> Array:
    """Three times the integral of the squared distance from the nearest level, in units of the step.

    With n the level of a position and e its distance from it: the whole cells below contribute a constant each,
    the part of its own cell a cube. Beyond the outermost level the cube simply goes on growing. Only differences
    between positions have a meaning.

    Returns:
        Of shape [rows, candidates, positions].
    """
    step, first, last = (each[:, :, None] for each in (levels.step, levels.first, levels.last))
    begin, whole_cell = (0.0, 1.0) if levels.floor else (-0.5, 1 / 4)
    error = positions[:, None, :] * (1 / step)
    level = error - begin
    np.floor(level, out=level)
    np.maximum(level, first, out=level)
    np.minimum(level, last, out=level)
    np.subtract(error, level, out=error)
    cube = error * error
    np.multiply(cube, error, out=cube)
    np.multiply(level, whole_cell, out=level)
    return np.add(level, cube, out=cube)


# The distribution of elements that are all known.


class Points(Ranged):
    """All elements are known.

    Args:
        elements: Ascending in each row, [rows, n]; NaN at the end for those that do not count.
    """

    def __init__(self, elements: Array) -> None:
        total = np.count_nonzero(~np.isnan(elements), axis=1)
        low = elements[:, 0] if elements.shape[1] else np.zeros(len(elements))
        last = np.maximum(total - 1, 0)[:, None]
        high = np.take_along_axis(elements, last, axis=1)[:, 0] if elements.shape[1] else low
        super().__init__(low.astype(np.float64), high.astype(np.float64), total)
        self._elements = elements

    def squared_error(self, levels: Levels) -> Array:
        """Mean squared distance of the elements from the levels they are quantized to, [rows, candidates]."""
        # Zero is a level, so elements that do not count may stand there and add nothing.
        values = np.nan_to_num(self._elements.astype(np.float64))[:, None, :]
        shift = 0.0 if levels.floor else 0.5

        def sum_up(part: slice) -> Array:
            some = levels.some(part)
            step, first, last = (each[:, :, None] for each in (some.step, some.first, some.last))
            distance = values / step
            nearest = np.floor(distance + shift)
            np.maximum(nearest, first, out=nearest)
            np.minimum(nearest, last, out=nearest)
            np.subtract(distance, nearest, out=distance)
            # Not by BLAS: it starts threads for long rows, which fight with the caller's.
            return np.asarray(np.einsum("rkn,rkn->rk", distance, distance) * step[:, :, 0] ** 2)

        return sum_in_blocks(sum_up, levels, self._elements.shape[1]) / np.maximum(self._total, 1)[:, None]

    def smallest(self, index: Array) -> Array:
        """The element of each row that has so many smaller ones; [rows]."""
        if self._elements.shape[1] == 0:
            return self._low
        inside = np.clip(index, 0, np.maximum(self._total - 1, 0)).astype(np.int64)
        found = np.take_along_axis(self._elements, inside[:, None], axis=1)[:, 0].astype(np.float64)
        return np.where(self._total > 0, found, 0.0)

    def magnitudes(self) -> "Points":
        """The distribution of the absolute values."""
        return Points(np.sort(np.abs(self._elements), axis=1))

    def typical(self) -> Array:
        """The magnitude that half of the elements other than zero exceed; [rows]."""
        if self._elements.shape[1] == 0:
            return self._low
        zeros = np.count_nonzero(self._elements == 0, axis=1)
        places = np.minimum((self._total + zeros) // 2, np.maximum(self._total - 1, 0))
        magnitudes = np.abs(self._elements)
        if len(places) == 1:
            magnitudes.partition(places[0], axis=1)
        else:
            magnitudes.sort(axis=1)
        found = np.take_along_axis(magnitudes, places[:, None], axis=1)[:, 0].astype(np.float64)
        return np.where(self._total > 0, found, 0.0)

    def beyond(self, low: Array, high: Array) -> Array:
        """Elements of each row outside of a range; [rows]."""
        outside = (self._elements < low[:, None]) | (self._elements > high[:, None])
        return np.asarray(np.count_nonzero(outside, axis=1), dtype=np.float64)

    def binned(self, row: int, bins: int) -> Array:
        """Elements in each of so many equal bins from the smallest to the largest value of a row."""
        known = self._elements[row, : self._total[row]].astype(np.float64)
        counts, _ = np.histogram(known, bins, (self._low[row], self._high[row]))
        return counts.astype(np.float64)

    def row(self, index: int) -> "Points":
        """One of the rows alone."""
        if len(self._elements) == 1:
            return self
        return Points(self._elements[[index]])

    def histogram(self) -> FloatHistogram:
        """The elements counted on a grid, finer for more elements; large, so that of one row at a time."""
        bits = self._elements.shape[1].bit_length() - 6
        return histogram_of(self._elements, Grid(min(max(bits, 3), TENSOR_GRID.bits), TENSOR_GRID.doublings))

    def coarser(self) -> "Points":
        """Itself: nothing is gained by leaving elements out."""
        return self


def split_points(elements: Array) -> Iterator[Points]:
    """Elements that are ascending in each row, some rows at a time."""
    at_once = max(1, BLOCK // max(1, elements.shape[1]))
    for start in range(0, len(elements), at_once):
        yield Points(elements[start : start + at_once])
