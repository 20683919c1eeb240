"""A histogram whose grid does not depend on the order or the batches in which values arrive.

Bins are ``2**exponent`` wide and anchored at zero, so growing the range merges neighbouring bins exactly:
adding values in any order, in any blocks, or merging two histograms gives the same counts.
"""

import math
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["BINS_PER_SIDE", "EMPTY_HISTOGRAM", "Histogram", "histogram_of"]

# Coarser than the 256 levels of an 8-bit quantizer, so that a quantized tensor does not leave empty bins
# between its levels; between 32 and 64 bins cover the larger side.
BINS_PER_SIDE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts of values on a grid of equal bins around zero.

    Attributes:
        exponent: A bin is ``2**exponent`` wide; None while only zeros (or nothing) were seen.
        counts: ``2 * BINS_PER_SIDE`` counts; bin i holds ``floor(value / width) == i - BINS_PER_SIDE``.
    """

    exponent: int | None
    counts: Array

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    def merge(self, other: "Histogram") -> "Histogram":
        """The histogram of both sets of values."""
        exponents = [e for e in (self.exponent, other.exponent) if e is not None]
        exponent = max(exponents, default=None)
        return Histogram(exponent, self.at(exponent) + other.at(exponent))

    def at(self, exponent: int | None) -> Array:
        """The counts on a grid as coarse as or coarser than its own."""
        if exponent is None or self.exponent is None or exponent == self.exponent:
            return self.counts
        # floor(v / 2**(e+k)) == floor(v / 2**e) >> k holds for negative values too.
        bins = np.arange(-BINS_PER_SIDE, BINS_PER_SIDE) >> min(exponent - self.exponent, 62)
        weights = self.counts.astype(np.float64)
        merged = np.bincount(bins + BINS_PER_SIDE, weights=weights, minlength=2 * BINS_PER_SIDE)
        return merged.astype(np.int64)


EMPTY_HISTOGRAM = Histogram(None, np.zeros(2 * BINS_PER_SIDE, dtype=np.int64))


def histogram_of(values: Array) -> Histogram:
    """Count finite values.

    Args:
        values: Float array of any shape, all finite.
    """
    if values.size == 0:
        return EMPTY_HISTOGRAM
    values = values.astype(np.float64, copy=False).ravel()
    largest = max(float(values.max()), -float(values.min()))
    # frexp: largest == m * 2**e with 0.5 <= m < 1, so |value| < 2**e and |value| / width < BINS_PER_SIDE.
    exponent = math.frexp(largest)[1] - (BINS_PER_SIDE.bit_length() - 1) if largest > 0 else None
    if exponent is None:
        bins = np.zeros(values.size, dtype=np.int64)
    else:
        # Two factors, because one would overflow for subnormal values; both are exact.
        half = -exponent // 2
        bins = np.floor(values * 2.0**half * 2.0 ** (-exponent - half)).astype(np.int64)
    counts = np.bincount(bins + BINS_PER_SIDE, minlength=2 * BINS_PER_SIDE)
    return Histogram(exponent, counts.astype(np.int64, copy=False))
