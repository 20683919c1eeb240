"""How ranges come about: how they grow with the number of samples, and which sample alone sets them.

Both follow from the smallest and the largest value of each tensor in each sample. What is kept of these does not
grow with the number of samples: for each of a few random orders the extremes between doublings, and for each
tensor the two outermost samples.
"""

import math

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["RangeRecord", "marks_of", "width"]

ORDERS = 16
"""Random orders over which growth is averaged."""


def marks_of(samples: int) -> tuple[int, ...]:
    """Numbers of samples at which ranges are looked at: all, half, a quarter ... down to one; ascending."""
    marks = [samples]
    while marks[-1] > 1:
        marks.append(math.ceil(marks[-1] / 2))
    return tuple(reversed(marks))


def width(low: Array, high: Array) -> Array:
    """Width of a range with the zero that codes must cover; 0 where nothing was seen."""
    return np.asarray(np.maximum(high, 0.0) - np.minimum(low, 0.0))


class RangeRecord:
    """The extremes of each tensor over samples.

    Args:
        tensors: How many tensors.
        samples: How many samples there will be.
        seed: Of the random orders.
    """

    def __init__(self, tensors: int, samples: int, *, seed: int) -> None:
        self.marks = marks_of(samples)
        random = np.random.default_rng(seed)
        ranks = np.stack([random.permutation(samples) for _ in range(ORDERS)])
        # Between which two marks each sample comes, in each order.
        self._steps = np.searchsorted(self.marks, ranks, side="right").astype(np.int32)
        shape = (ORDERS, len(self.marks), tensors)
        self._low, self._high = np.full(shape, np.inf), np.full(shape, -np.inf)
        # The two outermost of each side: value and sample. Of the lower side with the sign changed.
        self._outer = np.full((2, 2, tensors), -np.inf)
        self._owner = np.full((2, 2, tensors), -1, dtype=np.int64)

    def add(self, sample: int, low: Array, high: Array) -> None:
        """See one sample.

        Args:
            sample: Its number, below that of samples; each once.
            low: Smallest value of each tensor, float64 [tensors]; +inf where there is none.
            high: Largest value; -inf where there is none.
        """
        orders, steps = np.arange(ORDERS), self._steps[:, sample]
        self._low[orders, steps] = np.minimum(self._low[orders, steps], low)
        self._high[orders, steps] = np.maximum(self._high[orders, steps], high)
        for side, values in enumerate((-low, high)):
            self._insert(side, values, sample)

    def _insert(self, side: int, values: Array, sample: int) -> None:
        outer, owner = self._outer[side], self._owner[side]
        first, second = values > outer[0], values > outer[1]
        outer[1] = np.where(first, outer[0], np.where(second, values, outer[1]))
        owner[1] = np.where(first, owner[0], np.where(second, sample, owner[1]))
        outer[0] = np.where(first, values, outer[0])
        owner[0] = np.where(first, sample, owner[0])

    @property
    def low(self) -> Array:
        """Smallest value of each tensor in all samples."""
        return np.asarray(-self._outer[0, 0])

    @property
    def high(self) -> Array:
        """Largest value of each tensor in all samples."""
        return np.array(self._outer[1, 0])

    def shares(self) -> Array:
        """Width at each mark over that of all samples, [orders, marks, tensors]; 1 where there is no width."""
        low = np.minimum.accumulate(self._low, axis=1)
        high = np.maximum.accumulate(self._high, axis=1)
        widths = width(low, high)
        return np.asarray(np.divide(widths, widths[:, -1:], out=np.ones_like(widths), where=widths[:, -1:] > 0))

    def lone(self) -> tuple[Array, Array]:
        """Which sample alone sets the range of each tensor, and by which factor it widens it.

        Returns:
            Numbers of samples (-1 where there is none), and factors from 1 on; infinite where only one sample has
            any width.
        """
        whole = width(self.low, self.high)
        best, factors = np.full(whole.size, -1, dtype=np.int64), np.ones(whole.size)
        for sample in (self._owner[0, 0], self._owner[1, 0]):
            without = [
                np.where(self._owner[side, 0] == sample, self._outer[side, 1], self._outer[side, 0])
                for side in (0, 1)
            ]
            left = width(-without[0], without[1])
            factor = np.ones_like(whole)
            with np.errstate(over="ignore"):
                np.divide(whole, left, out=factor, where=left > 0)
            factor = np.where((left <= 0) & (whole > 0), np.inf, factor)
            better = factor > factors
            best, factors = np.where(better, sample, best), np.where(better, factor, factors)
        return best, factors
