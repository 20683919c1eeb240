"""Statistics of tensors, gathered in one pass over cache-sized blocks and mergeable afterwards."""

import math
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["TensorStats"]

# Elements per block: with its float64 copy it stays in the second-level cache, and calls cost little against it.
BLOCK = 1 << 15
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
        """Statistics of an array of numbers or truth values of any shape."""
        flat = array.reshape(-1)
        scratch = np.empty(min(block, flat.size))
        total = cls()
        for start in range(0, flat.size, block):
            total = total.merge(_of_block(flat[start : start + block], scratch))
        return total

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
            squares=self.squares + other.squares + apart * apart * share * self.finite,
        )


def _of_block(block: Array, scratch: Array) -> TensorStats:
    values = scratch[: block.size]
    np.copyto(values, block, casting="unsafe")
    # float32 is the common type, and its own minimum is twice as fast; others are compared as float64.
    compared = block if block.dtype == np.float32 else values
    low, high = float(compared.min()), float(compared.max())
    if math.isfinite(low) and math.isfinite(high):
        return _of_finite(values, low=low, high=high, zeros=_zeros(compared, low, high))
    finite = values[np.isfinite(values)]
    nans = int(np.count_nonzero(np.isnan(values)))
    rest = _of_finite(...)
