"""The distribution of elements that are all known."""

from collections.abc import Iterator

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.counting import histogram_of
from roundoff.quantize.calibration.distribution import BLOCK, Levels, Ranged, sum_in_blocks
from roundoff.quantize.calibration.float_grid import TENSOR_GRID, FloatHistogram, Grid

__all__ = ["Points", "split_points"]


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
