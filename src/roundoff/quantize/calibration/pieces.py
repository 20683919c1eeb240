"""The distribution of elements of which only a histogram is known."""

import math
from collections.abc import Iterator

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.distribution import BLOCK, Levels, Ranged, sum_in_blocks
from roundoff.quantize.calibration.float_grid import FloatHistogram

__all__ = ["FIRST_LOOK_BITS", "Pieces", "split_pieces"]

FIRST_LOOK_BITS = 5
"""Bins to a doubling, as a power of two, that are enough for a first look."""


class Pieces(Ranged):
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

    def magnitudes(self) -> "Pieces":
        """The distribution of the absolute values."""
        counts = self._histogram.counts.sum(axis=1, keepdims=True)
        folded = FloatHistogram(self._histogram.grid, self._histogram.exponent, counts)
        return Pieces(folded, np.zeros_like(self._low), np.maximum(self._high, -self._low))

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

    def row(self, index: int) -> "Pieces":
        """One of the rows alone."""
        if len(self._low) == 1:
            return self
        whole, only = self._histogram, slice(index, index + 1)
        histogram = FloatHistogram(whole.grid, whole.exponent[only], whole.counts[only])
        return Pieces(histogram, self._low[only], self._high[only])

    def histogram(self) -> FloatHistogram:
        """The elements counted on a grid; large, so that of one row at a time."""
        return self._histogram

    def coarser(self) -> "Pieces":
        """The same with wider bins, which cost less time."""
        return Pieces(self._histogram.coarser(FIRST_LOOK_BITS), self._low, self._high)

    def _error_of_single_values(self, counts: Array, levels: Levels) -> Array:
        """Squared error of elements in bins without width: they all have the same value."""
        total = np.zeros(levels.step.shape)
        shift = 0.0 if levels.floor else 0.5
        for row, bin_ in zip(*np.nonzero(counts), strict=True):
            distance = self._edges[row, bin_] / levels.step[row]
            nearest = np.clip(np.floor(distance + shift), levels.first[row], levels.last[row])
            total[row] += counts[row, bin_] * ((distance - nearest) * levels.step[row]) ** 2
        return total


def split_pieces(histogram: FloatHistogram, low: Array, high: Array) -> Iterator[Pieces]:
    """A histogram of many rows, some rows at a time."""
    at_once = max(1, (4 * BLOCK) // math.prod(histogram.counts.shape[1:]))
    for start in range(0, len(low), at_once):
        part = slice(start, start + at_once)
        some = FloatHistogram(histogram.grid, histogram.exponent[part], histogram.counts[part])
        yield Pieces(some, low[part], high[part])


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
