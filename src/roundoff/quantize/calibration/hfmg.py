"""A search over a histogram that gives up sparse ends first, of one vendor's toolchain ("histogram ... range")."""

import math
from bisect import bisect_left, bisect_right

import numpy as np

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.distribution import Distribution
from roundoff.quantize.calibration.registry import Option, Options, method

__all__ = ["hfmg"]

# As the vendor has it: one step gives up this part of all elements, and a quarter of the bins is always kept.
_STEP_PART = 100_000
_KEPT_PART = 4
# Candidates looked at before looking closer; up to twice as many are all looked at.
_LOOKED_AT = 256


@method("hfmg", num_of_bins=Option(4096, 16, 65536, "the number of bins of the histogram"))
def hfmg(distribution: Distribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The best by squared error of ever narrower ranges, each giving up the more sparsely populated end.

    As the vendor defines it, the error is that of as many equal cells as there are codes between both ends,
    whether zero is a level or not. The bins are those of all samples together: their order does not matter.
    """
    bins = int(options["num_of_bins"])
    ranges = [_row(distribution, row, bins, 2**spec.bits) for row in range(distribution.low.size)]
    low, high = np.array(ranges, dtype=np.float64).reshape(-1, 2).T
    return low, high


def _row(distribution: Distribution, row: int, bins: int, codes: int) -> tuple[float, float]:
    low, high = float(distribution.low[row]), float(distribution.high[row])
    if low == high:
        return low, high
    counts = distribution.binned(row, bins)
    first, last = _best(_Histogram(counts), _candidates(counts), codes)
    width = (high - low) / bins
    # From both ends, so that an end that was not moved stays exactly what it is.
    return low + first * width, high - (bins - 1 - last) * width


def _candidates(counts: Array) -> list[tuple[int, int]]:
    """First and last bin of ever narrower ranges; the whole range is not among them."""
    below = np.concatenate([[0.0], np.cumsum(counts)]).tolist()
    step = max(1, math.ceil(below[-1] / _STEP_PART))
    first, last = 0, counts.size - 1
    found = []
    while last - first > math.ceil(counts.size / _KEPT_PART):
        after = min(last, bisect_left(below, below[first] + step))
        before = max(after, min(last, bisect_right(below, below[last + 1] - step) - 2))
        if after - first > last - before:
            first = after
        else:
            last = before
        found.append((first, last))
    return found


def _best(histogram: "_Histogram", candidates: list[tuple[int, int]], codes: int) -> tuple[int, int]:
    """The candidate with the smallest loss: among many, the best of every few and then of its neighbours."""
    stride = max(1, len(candidates) // _LOOKED_AT)
    best, chosen = math.inf, 0
    for index in range(0, len(candidates), stride):
        if histogram.least_loss(*candidates[index]) > best:
            break  # the ranges that follow lie within this one, and lose at least as much
        loss = histogram.loss(*candidates[index], codes)
        if loss < best:
            best, chosen = loss, index
    for index in range(max(0, chosen - stride + 1), min(len(candidates), chosen + stride)):
        loss = histogram.loss(*candidates[index], codes) if index != chosen else math.inf
        if loss < best or (loss == best and index < chosen):
            best, chosen = loss, index
    return candidates[chosen]


class _Histogram:
    """Equal bins, in whose width all positions are measured."""

    def __init__(self, counts: Array) -> None:
        used = np.flatnonzero(counts)
        self._counts = counts[used]
        self._begins = used.astype(np.float64)
        places = np.arange(counts.size)
        self._sums = [np.concatenate([[0.0], np.cumsum(counts * places**power)]).tolist() for power in range(3)]

    def least_loss(self, first: int, last: int) -> float:
        """What elements outside a range lose at least: their squared distance from it."""
        zeroth, once, twice = (sums[first] for sums in self._sums)
        left = (first - 1) ** 2 * zeroth - 2 * (first - 1) * once + twice
        zeroth, once, twice = (sums[-1] - sums[last + 1] for sums in self._sums)
        right = twice - 2 * (last + 1) * once + (last + 1) ** 2 * zeroth
        return float(left + right)

    def loss(self, first: int, last: int, codes: int) -> float:
        """Sum of squared distances from the centres of equal cells between the ends of a range."""
        cell = (last - first + 1) / codes
        begins = (self._begins - first) / cell
        growth = _integral(begins + 1 / cell, codes) - _integral(begins, codes)
        return float(np.add.reduce(self._counts * growth)) * cell**3


def _integral(positions: Array, cells: int) -> Array:
    """Integral of the squared distance from the centre of a position's cell, in units of cells."""
    cell = np.clip(np.floor(positions), 0, cells - 1)
    return np.asarray(cell / 12 + (positions - cell - 0.5) ** 3 / 3)
