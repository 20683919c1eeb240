"""Statistics of tensors, gathered in one pass over cache-sized blocks and mergeable afterwards."""

import math
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["TensorStats"]

# Elements per block: its float64 copy stays in the cache, and the cost of the calls is small against it.
BLOCK = 1 << 16
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
    # float32 is the common type, and comparing it as it is takes half the time.
    compared = block if block.dtype == np.float32 else values
    low, high = float(np.minimum.reduce(compared)), float(np.maximum.reduce(compared))
    if not (math.isfinite(low) and math.isfinite(high)):
        return _of_damaged(values)
    zeros = np.count_nonzero(compared == 0) if low <= 0 <= high else 0
    total = float(np.add.reduce(values))
    mean = total / block.size
    # Not a dot product: BLAS would start threads of its own, which fight with the caller's.
    square = float(np.add.reduce(np.square(values, out=values)))
    squares = square - total * mean
    if not squares > _CANCELLATION * square:
        mean, squares = _of_distances(block, values, low=low, high=high)
    return TensorStats(block.size, 0, 0, int(zeros), low, high, mean, squares)


def _of_damaged(values: Array) -> TensorStats:
    """Statistics of a block in which not all values are finite."""
    kept = values[np.isfinite(values)]
    nans = int(np.count_nonzero(np.isnan(values)))
    rest = _of_block(kept, np.empty(kept.size)) if kept.size else TensorStats()
    return replace(rest, count=values.size, nans=nans, infs=values.size - kept.size - nans)


def _of_distances(block: Array, scratch: Array, *, low: float, high: float) -> tuple[float, float]:
    """Mean and squares by way of distances from the mean: a second pass, for values that lie close together or
    whose sums overflow."""
    if low == high:
        return low, 0.0
    np.divide(block, block.size, out=scratch, casting="unsafe", dtype=np.float64)
    mean = float(np.add.reduce(scratch))
    np.subtract(block, mean, out=scratch, casting="unsafe", dtype=np.float64)
    return mean, float(np.add.reduce(np.square(scratch, out=scratch)))


def summarize_tensors(
    source: TensorSource, *, threads: int = 1, progress: Progress = SILENT
) -> tuple[TensorSummary, ...]:
    """Statistics of every tensor of a source over all samples, in the source's order.

    Tensors that cannot be read are left out; the source says why (`TensorInfo.problem`).

    Args:
        source: The tensors; read sample by sample.
        threads: How many tensors are summed up at a time, next to reading.
        progress: Told of every sample.
    """
    readable = [info for info in source.tensors if not info.problem]
    totals = {info.name: TensorStats() for info in readable}
    with ThreadPoolExecutor(threads) as pool, _reported(progress, len(source.samples)):
        for sample in source.samples:
            waiting: deque[tuple[str, Future[TensorStats]]] = deque()
            for info in readable:
                # Only so many at a time: every waiting array is held in memory.
                if len(waiting) > threads:
                    _collect(waiting, totals)
                waiting.append((info.name, pool.submit(TensorStats.of, source.read(info.name, sample))))
            while waiting:
                _collect(waiting, totals)
            progress.advance()
    return tuple(TensorSummary(info, len(source.samples), totals[info.name]) for info in readable)
