"""Statistics of tensors, gathered in one pass over cache-sized blocks and mergeable afterwards."""

import math
import threading
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["TensorStats"]

# Elements per block: its float64 copy stays in the cache, and the cost of the calls is small against it.
BLOCK = 1 << 17
# Dot products are taken in rows: from 10,000 elements on, BLAS starts threads, which fight with the caller's.
_ROW = 1 << 13
_NARROW = frozenset(map(np.dtype, ("float32", "int8", "uint8", "int16", "uint16", "int32", "uint32", "bool")))
# Below this share of the mean square, the variance computed from sums has lost too many digits.
_CANCELLATION = 1e-4


@dataclass(frozen=True, slots=True)
class TensorStats:
    """Statistics of the elements of one tensor. NaN and infinite elements are counted, and left out of the rest.

    Attributes:
        count: All elements.
        nans: NaN elements.
        infs: Infinite elements.
        zeros: Elements that are zero.
        minimum: Smallest finite value; +inf when there is none.
        maximum: Largest finite value; -inf when there is none.
        mean: Mean of the finite values; 0 when there is none.
        squares: Sum of squared distances of finite values from their mean.
    """

    count: int = 0
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0

    @property
    def finite(self) -> int:
        """Elements that are neither NaN nor infinite."""
        return self.count - self.nans - self.infs

    @property
    def std(self) -> float:
        """Standard deviation of the finite values (of the population, as numpy has it); 0 when there is none."""
        return math.sqrt(self.squares / self.finite) if self.finite else 0.0

    @property
    def abs_max(self) -> float:
        """Largest magnitude of the finite values; 0 when there is none."""
        return max(abs(self.minimum), abs(self.maximum)) if self.finite else 0.0

    @classmethod
    def of(cls, array: Array, *, block: int = BLOCK) -> "TensorStats":
        """Statistics of an array of real numbers or truth values, of any shape.

        Args:
            array: The values.
            block: Elements looked at together, at most `BLOCK`. Only rounding depends on it.
        """
        flat = array.reshape(-1)
        if flat.size == 0:
            return cls()
        with np.errstate(over="ignore", invalid="ignore"):
            parts = (_of_block(flat[start : start + block]) for start in range(0, flat.size, block))
            return reduce(cls.merge, parts)

    def merge(self, other: "TensorStats") -> "TensorStats":
        """Statistics of both sets of elements together."""
        finite = self.finite + other.finite
        share = other.finite / finite if finite else 0.0
        apart = other.mean - self.mean
        return TensorStats(
            count=self.count + other.count,
            nans=self.nans + other.nans,
            infs=self.infs + other.infs,
            zeros=self.zeros + other.zeros,
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            mean=self.mean + apart * share,
            squares=self.squares + other.squares + share * self.finite * apart * apart,
        )


class _Scratch(threading.local):
    """Memory for the float64 copy of a block, kept by each thread: fresh memory would cost more than the sums."""

    def __init__(self) -> None:
        self.values = np.empty(BLOCK)
        self.flags = np.empty(BLOCK, dtype=np.bool_)


_SCRATCH = _Scratch()


def _of_block(block: Array) -> TensorStats:
    values = _SCRATCH.values[: block.size]
    np.copyto(values, block, casting="unsafe")
    # Comparing narrow types as they are is faster, unless the processor does not have them.
    compared = block if block.dtype in _NARROW else values
    low, high = float(np.minimum.reduce(compared)), float(np.maximum.reduce(compared))
    if not (math.isfinite(low) and math.isfinite(high)):
        return _of_damaged(values)
    zeros = 0
    if low <= 0 <= high:
        zeros = int(np.count_nonzero(np.equal(compared, 0, out=_SCRATCH.flags[: block.size])))
    total = float(np.add.reduce(values))
    mean = total / block.size
    square = _sum_of_squares(values)
    squares = square - total * mean
    if not squares > _CANCELLATION * square:
        mean, squares = _of_distances(values, low=low, high=high)
    return TensorStats(block.size, 0, 0, zeros, low, high, mean, squares)


def _of_damaged(values: Array) -> TensorStats:
    """Statistics of a block in which not all values are finite."""
    kept = values[np.isfinite(values)]
    nans = int(np.count_nonzero(np.isnan(values)))
    rest = _of_block(kept) if kept.size else TensorStats()
    return replace(rest, count=values.size, nans=nans, infs=values.size - kept.size - nans)


def _of_distances(values: Array, *, low: float, high: float) -> tuple[float, float]:
    """Mean and squares in two passes, for values that lie close together or whose sums overflow."""
    if low == high:
        return low, 0.0
    mean = float(np.add.reduce(values / values.size))
    return mean, _sum_of_squares(values - mean)


def _sum_of_squares(values: Array) -> float:
    whole = values.size - values.size % _ROW
    rows, rest = values[:whole].reshape(-1, _ROW), values[whole:]
    return float(np.add.reduce(np.vecdot(rows, rows))) + float(rest @ rest)
