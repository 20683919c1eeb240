"""Counting elements as they come, fast: the index of a bin is made of the bits of a float32 as they are stored."""

import math
import mmap
import threading

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.float_grid import FRACTION_BITS, TENSOR_GRID, FloatHistogram, Grid, exponents_of

__all__ = ["ChannelCounter", "TensorCounter", "histogram_of"]

_MAGNITUDE_BITS = 31
_INFINITE_EXPONENT = 255
# Elements counted at a time: the indices stay in the cache, and the cost of the calls is small against them.
_BLOCK = 1 << 16
_MOST_COUNTED = (1 << 32) - 1


class _Scratch(threading.local):
    """Memory for the indices of a block, kept by each thread: fresh memory would cost more than the counting."""

    def __init__(self) -> None:
        self.bins = np.empty(_BLOCK, np.uint32)
        self.signs = np.empty(_BLOCK, np.uint32)
        self.indices = np.empty(_BLOCK, np.int64)


_SCRATCH = _Scratch()


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
