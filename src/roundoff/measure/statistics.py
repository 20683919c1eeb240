"""Statistics of tensors, gathered in one pass over cache-sized blocks and mergeable afterwards; those blocks."""

import itertools
import math
import mmap
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array, TensorInfo, TensorSource


@dataclass(frozen=True, slots=True)
class ArrayBlock:
    """A part of an array, contiguous in C order.

    Attributes:
        index: What to index the array with.
        start: Position of its first element in the flattened array.
        shape: Its shape, of the array's rank.
        size: Number of elements.
    """

    index: tuple[slice, ...]
    start: int
    shape: tuple[int, ...]
    size: int


def split_blocks(shape: tuple[int, ...], limit: int) -> Iterator[ArrayBlock]:
    """Cut an array into consecutive blocks of at most `limit` elements, in C order.

    Every block is contiguous in a C-ordered array. Blocks are balanced, so that none is much smaller than
    the others.
    """
    if math.prod(shape) == 0:
        return
    axis, inner = _split_axis(shape, limit)
    parts = math.ceil(shape[axis] / max(1, limit // inner)) if shape else 1
    lead = shape[:axis]
    edges = [shape[axis] * part // parts for part in range(parts + 1)] if shape else [0, 1]
    start = 0
    for position in np.ndindex(*lead):
        fixed = tuple(slice(i, i + 1) for i in position)
        for low, high in itertools.pairwise(edges):
            index = (*fixed, slice(low, high)) if shape else ()
            extents = (*(1 for _ in lead), high - low, *shape[axis + 1 :]) if shape else ()
            size = (high - low) * inner
            yield ArrayBlock(index, start, extents, size)
            start += size


def _split_axis(shape: tuple[int, ...], limit: int) -> tuple[int, int]:
    """The axis to cut, and how many elements one step along it holds."""
    inner = 1
    for axis in range(len(shape) - 1, -1, -1):
        if axis == 0 or inner * shape[axis] > limit:
            return axis, inner
        inner *= shape[axis]
    return 0, 1


def release_pages(array: Array) -> None:
    """Give back the memory of a memory-mapped array; its pages are read again when touched.

    Without this a mapped file counts as resident once it has been read, whatever its size.
    """
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


_HALF_BITS = np.int32(-1_879_056_384)
"""Where sign, exponent and fraction of a half are in a float32, 112 less in the exponent: 0x8fffe000."""

_HALF_FACTOR = np.float32(2.0**112)
_HALF_SIGN = 0x8000
_HALF_ENDS = (0x7C00, 0xFC00)
"""The bits of infinity, of both signs; above them are those of NaN."""


def to_float32(values: Array, out: Array, *, finite: bool = False) -> None:
    """Copy numbers of any type into a float32 array; halves in a sixth of the time that numpy takes.

    Args:
        values: The numbers.
        out: Where to.
        finite: Halves are known to be numbers, neither infinite nor NaN.
    """
    bits = out.view(np.int32)
    if values.dtype != np.float16 or not (values.flags.c_contiguous and values.size):
        np.copyto(out, values, casting="unsafe")
    elif not finite and half_ends(values) is None:
        np.copyto(out, values)
    else:
        # The sign is extended to the left, then sign and number are moved to where a float32 has them; a product
        # with a power of two is exact and makes normal numbers of subnormal ones.
        np.copyto(bits, values.view(np.int16))
        np.left_shift(bits, 13, out=bits)
        np.bitwise_and(bits, _HALF_BITS, out=bits)
        np.multiply(out, _HALF_FACTOR, out=out)


def half_ends(values: Array) -> tuple[np.float32, np.float32] | None:
    """The smallest and the largest of contiguous halves, in a fifth of the time; None where one is no number.

    Bits of halves grow with numbers above zero, and with the size of those below it.
    """
    if not values.size:
        return None
    whole, bits = values.view(np.int16), values.view(np.uint16)
    top, bottom = np.maximum.reduce(whole), np.maximum.reduce(bits)
    if top >= _HALF_ENDS[0] or bottom >= _HALF_ENDS[1]:
        return None
    high = top if top >= 0 else np.minimum.reduce(bits)
    low = bottom if bottom >= _HALF_SIGN else np.minimum.reduce(whole)
    found = np.array([low, high]).astype(np.uint16).view(np.float16).astype(np.float32)
    return found[0], found[1]


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


class _StatisticsScratch(threading.local):
    """Memory for the float64 copy of a block, kept by each thread: fresh memory would cost more than the sums."""

    def __init__(self) -> None:
        self.values = np.empty(BLOCK)
        self.flags = np.empty(BLOCK, dtype=np.bool_)


_SCRATCH = _StatisticsScratch()


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


# A histogram whose grid does not depend on the order or the batches in which values arrive.
#
# Bins are ``2**exponent`` wide and anchored at zero, so growing the range merges neighbouring bins exactly:
# adding values in any order, in any blocks, or merging two histograms gives the same counts.

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


# Skewness and kurtosis of values that come block by block.

# Elements per block: its float64 copies stay in the cache.
_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True)
class CentralMoments:
    """Sums of powers of the distance from the mean; what is not finite is left out.

    Attributes:
        count: Finite values.
        mean: Their mean.
        second: Sum of squared distances from it.
        third: Sum of cubed distances.
        fourth: Sum of fourth powers.
    """

    count: int = 0
    mean: float = 0.0
    second: float = 0.0
    third: float = 0.0
    fourth: float = 0.0

    @property
    def skewness(self) -> float | None:
        """Of the population: 0 for what is symmetric, above 0 with a tail to the right; None without spread."""
        return self._standardized(self.third, 3)

    @property
    def excess_kurtosis(self) -> float | None:
        """Of the population: 0 for a normal distribution, above 0 with heavy tails; None without spread."""
        fourth = self._standardized(self.fourth, 4)
        return None if fourth is None else fourth - 3.0

    @classmethod
    def of(cls, array: Array) -> "CentralMoments":
        """Moments of an array of real numbers of any shape."""
        flat = array.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = (
                _of_block_central_moments(flat[start : start + _BLOCK]) for start in range(0, flat.size, _BLOCK)
            )
            return reduce(cls.merge, parts, cls())

    def merge(self, other: "CentralMoments") -> "CentralMoments":
        """Moments of both sets of values together."""
        if not self.count or not other.count:
            return self if self.count else other
        n, a, b = self.count + other.count, self.count, other.count
        d = other.mean - self.mean
        # Each sum moved from the mean of its part to the common one (binomial theorem).
        second = self.second + other.second + d * d * a * b / n
        third = self.third + other.third + d**3 * a * b * (a - b) / n**2
        third += 3 * d * (a * other.second - b * self.second) / n
        fourth = self.fourth + other.fourth + d**4 * a * b * (a * a - a * b + b * b) / n**3
        fourth += 6 * d * d * (a * a * other.second + b * b * self.second) / n**2
        fourth += 4 * d * (a * other.third - b * self.third) / n
        return CentralMoments(n, self.mean + d * b / n, second, third, fourth)

    def _standardized(self, power_sum: float, power: int) -> float | None:
        if not self.count or not self.second > 0:
            return None
        scale = math.sqrt(self.second / self.count)
        # One factor at a time: the fourth power of a very small spread would vanish.
        value = power_sum / self.count
        for _ in range(power):
            value /= scale
        return value if math.isfinite(value) else None


def _of_block_central_moments(block: Array) -> CentralMoments:
    values = block.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        values = values[finite]
    if not values.size:
        return CentralMoments()
    # Halved where the sum could overflow, which changes nothing else.
    mean = float(np.add.reduce(values / values.size))
    distance = np.subtract(values, mean, out=values)
    square = distance * distance
    sums = [float(np.add.reduce(power)) for power in (square, square * distance, square * square)]
    return CentralMoments(values.size, mean, *sums)


# Statistics of every tensor of a source, over all its samples, without keeping any of them.

# Elements handed to a thread at a time: enough that handing over costs little.
_BATCH = 1 << 20

_Batch = list[tuple[str, Array]]
_Stats = list[tuple[str, TensorStats]]


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """One tensor over all samples."""

    info: TensorInfo
    samples: int
    stats: TensorStats


def summarize_tensors(
    source: TensorSource, *, threads: int = 1, progress: Progress = SILENT
) -> tuple[TensorSummary, ...]:
    """Statistics of every tensor of a source over all samples, in the source's order.

    Tensors with a problem are left out; the source lists them.

    Args:
        source: The tensors; read sample by sample.
        threads: How many tensors are summed up at a time. Results do not depend on it.
        progress: Told of every sample.
    """
    readable = [info for info in source.tensors if not info.problem]
    totals = {info.name: TensorStats() for info in readable}
    progress.start("summing up", len(source.samples))
    try:
        with ThreadPoolExecutor(threads) as pool:
            for sample in source.samples:
                batches = _batches(source, [info.name for info in readable], sample)
                for name, stats in _computed(batches, pool, threads):
                    totals[name] = totals[name].merge(stats)
                progress.advance()
    finally:
        progress.finish()
    return tuple(TensorSummary(info, len(source.samples), totals[info.name]) for info in readable)


def _batches(source: TensorSource, names: list[str], sample: str) -> Iterator[_Batch]:
    batch: _Batch = []
    for name in names:
        batch.append((name, source.read(name, sample)))
        if sum(array.size for _, array in batch) >= _BATCH:
            yield batch
            batch = []
    yield batch


def _computed(
    batches: Iterator[_Batch], pool: ThreadPoolExecutor, threads: int
) -> Iterator[tuple[str, TensorStats]]:
    """Statistics in the order of the batches; only so many wait, because each keeps its arrays in memory."""
    waiting: deque[Future[_Stats]] = deque()
    for batch in batches:
        if threads == 1:
            yield from _stats_of(batch)  # handing it over would gain nothing
            continue
        waiting.append(pool.submit(_stats_of, batch))
        if len(waiting) > threads:
            yield from waiting.popleft().result()
    for future in waiting:
        yield from future.result()


def _stats_of(batch: _Batch) -> _Stats:
    return [(name, TensorStats.of(array)) for name, array in batch]
