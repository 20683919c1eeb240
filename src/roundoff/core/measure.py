"""Measuring a pair of arrays in one pass, in blocks that stay in cache.

Precision: all sums are float64. Where both dtypes fit float32 without loss the difference is taken in float32:
it is exact while the two values are within a factor of two of each other, and otherwise off by at most 2**-24
of itself. Other dtypes are compared in float64 throughout.
"""

import math

import numpy as np

from roundoff.core.blocks import Block, release_pages, split_blocks
from roundoff.core.histogram import Histogram, histogram_of
from roundoff.core.moments import ChannelEnergies, PairMoments, SideMoments
from roundoff.core.tensors import Array
from roundoff.errors import BadInput

__all__ = ["BLOCK", "channel_axis_of", "measure_pair"]

# Elements per block: large enough to hide numpy's cost per call, small enough for the second-level cache.
BLOCK = 1 << 16
# Distributions are estimated from about this many elements per array, evenly spaced.
_HISTOGRAM_SAMPLE = 1 << 15
# Mapped pages are given back each time so many elements have been read.
_RELEASE_EVERY = 1 << 22
# More "channels" than this are not channels.
_MAX_CHANNELS = 1 << 16
# Relative errors below these are counted; users know the shares as one and five thousandth ratio.
_NEAR, _FAIR = 1e-3, 5e-3


def measure_pair(
    reference: Array, candidate: Array, *, channel_axis: int | None = None, block: int = BLOCK
) -> PairMoments:
    """Gather the moments of two arrays of equal shape.

    Args:
        reference: Any real, integer, bool or complex dtype (complex counts as two reals).
        candidate: Likewise; the dtypes may differ.
        channel_axis: Axis on which energies are kept apart; None for none.
        block: Elements per step; changes speed, not results (beyond the last bits).
    """
    reference, candidate = _real(reference), _real(candidate)
    if reference.shape != candidate.shape:
        raise ValueError(f"shapes differ: {reference.shape} and {candidate.shape}")
    narrow = all(np.can_cast(side.dtype, np.float32) for side in (reference, candidate))
    meter = _Meter(min(reference.size, block), np.float32 if narrow else np.float64)
    channels = _Channels.of(reference.shape, channel_axis)
    stride = max(1, reference.size // _HISTOGRAM_SAMPLE)
    unreleased = 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for part in split_blocks(reference.shape, block):
            block_reference, block_error = meter.add(reference[part.index], candidate[part.index])
            meter.sample(slice(-part.start % stride, None, stride))
            if channels is not None:
                channels.add(part, block_reference, block_error)
            unreleased += part.size
            if unreleased >= _RELEASE_EVERY:
                release_pages(reference)
                release_pages(candidate)
                unreleased = 0
    return meter.moments(None if channels is None else channels.energies)


def channel_axis_of(shape: tuple[int, ...]) -> int | None:
    """Where the channels usually are: last in sequences (rank 3), second otherwise."""
    if len(shape) < 2:
        return None
    return 2 if len(shape) == 3 else 1


def _real(array: Array) -> Array:
    array = np.asarray(array)
    if np.iscomplexobj(array):
        return np.ascontiguousarray(array)[..., np.newaxis].view(array.real.dtype)
    if array.dtype.kind in "OSUMm" or array.dtype.fields is not None:
        raise BadInput(f"Values of type {array.dtype} are not numbers.", fix="leave this tensor out")
    return array


class _Side:
    """Running sums of one side."""

    def __init__(self) -> None:
        self.total = self.square = 0.0
        self.low, self.high = math.inf, -math.inf
        self.at_low = self.at_high = self.zeros = self.nonfinite = 0
        self.sampled: list[Array] = []

    def add_range(self, values: Array, flags: Array) -> None:
        """Take in the range and zeros of one block of finite values; `flags` is scratch of the same size."""
        if values.size == 0:
            return
        # argmin and argmax cost less per call than the reductions.
        low, high = values[values.argmin()], values[values.argmax()]
        if low < self.low:
            self.low, self.at_low = float(low), 0
        if high > self.high:
            self.high, self.at_high = float(high), 0
        # Blocks that stay inside the range seen so far need no counting.
        if low == self.low:
            self.at_low += int(np.count_nonzero(np.equal(values, low, out=flags)))
        if high == self.high:
            self.at_high += int(np.count_nonzero(np.equal(values, high, out=flags)))
        if low <= 0 <= high:
            self.zeros += int(np.count_nonzero(np.equal(values, 0, out=flags)))

    def moments(self) -> SideMoments:
        """The sums as a value."""
        histogram: Histogram = histogram_of(np.concatenate(self.sampled or [np.empty(0)]))
        return SideMoments(
            total=self.total,
            square=self.square,
            low=self.low,
            high=self.high,
            at_low=self.at_low,
            at_high=self.at_high,
            zeros=self.zeros,
            nonfinite=self.nonfinite,
            histogram=histogram,
        )


# Rows of the float64 workspace.
_REFERENCE, _CANDIDATE, _LAST, _ONES = range(4)


class _WideRows:
    """float64 copies of blocks, and the sums of their products, which BLAS adds up faster than numpy does.

    The rows are cut into pieces that BLAS does not spread over threads: waking them costs more than it gains, and
    on a busy machine a hundred times more.
    """

    _PIECE = 8192

    def __init__(self, size: int) -> None:
        self._piece = max(1, min(size, self._PIECE))
        self._rows = np.ones((4, -(-size // self._piece), self._piece))
        self._used = 0

    def load(self, row: int, values: Array) -> None:
        """Copy a block to a row, with zeros up to the end of its last piece."""
        self._used = -(-values.size // self._piece)
        flat = self._rows[row].reshape(-1)
        flat[: values.size] = values
        flat[values.size : self._used * self._piece] = 0

    def dot(self, left: int, right: int) -> float:
        """Sum of the products of two rows."""
        return float(np.vecdot(self._rows[left, : self._used], self._rows[right, : self._used]).sum())


class _Meter:
    """The buffers and running sums of one measurement."""

    def __init__(self, size: int, work: type[np.floating]) -> None:
        self._left, self._right, self._error, self._scratch = (np.empty(size, work) for _ in range(4))
        self._flags = np.empty(size, np.bool_)
        self._wide = _WideRows(size)
        self._keep: Array | None = None
        self._block = (self._left, self._right)
        self._reference, self._candidate = _Side(), _Side()
        self._count = self._excluded = self._relative_count = self._near = self._fair = 0
        self._product = self._abs = self._square = self._max_abs = 0.0
        self._relative = self._max_relative = 0.0

    def add(self, reference: Array, candidate: Array) -> tuple[Array, Array]:
        """Measure one block; return the reference and the absolute error as flat arrays."""
        x, y = _flat(reference, self._left), _flat(candidate, self._right)
        self._keep = None
        products = self._products(x, y)
        if not math.isfinite(sum(products)):
            x, y, self._keep = self._without_nonfinite(x, y)
            products = self._products(x, y)
        self._block = (x, y)
        excluded = 0 if self._keep is None else x.size - int(np.count_nonzero(self._keep))
        self._count += x.size - excluded
        self._excluded += excluded
        total_x, square_x, product, total_y, square_y = products
        self._product += product
        zeros = self._add_side(self._reference, x, total_x, square_x) + excluded
        self._add_side(self._candidate, y, total_y, square_y)
        error = self._add_errors(x, y)
        self._add_relative(x, error, zeros=zeros, excluded=excluded)
        return x, error

    def sample(self, positions: slice) -> None:
        """Keep some elements of the last block for the distributions."""
        for side, values in zip((self._reference, self._candidate), self._block, strict=True):
            chosen = values[positions]
            side.sampled.append(chosen.copy() if self._keep is None else chosen[self._keep[positions]])

    def moments(self, channels: ChannelEnergies | None) -> PairMoments:
        """What was measured, as a value."""
        return PairMoments(
            count=self._count,
            excluded=self._excluded,
            reference=self._reference.moments(),
            candidate=self._candidate.moments(),
            product=self._product,
            abs_error=self._abs,
            square_error=self._square,
            max_abs_error=self._max_abs,
            relative_count=self._relative_count,
            relative_error=self._relative,
            max_relative_error=self._max_relative,
            within_1e3=self._near,
            within_5e3=self._fair,
            channels=channels,
        )

    def _products(self, x: Array, y: Array) -> tuple[float, float, float, float, float]:
        """Sum and square of the reference, product, sum and square of the candidate."""
        wide = self._wide
        wide.load(_REFERENCE, x)
        wide.load(_CANDIDATE, y)
        pairs = ((_REFERENCE, _ONES), (_REFERENCE, _REFERENCE), (_REFERENCE, _CANDIDATE),
                 (_CANDIDATE, _ONES), (_CANDIDATE, _CANDIDATE))  # fmt: skip
        total_x, square_x, product, total_y, square_y = (wide.dot(left, right) for left, right in pairs)
        return total_x, square_x, product, total_y, square_y

    def _without_nonfinite(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Both blocks with zeros where either is not finite, and which elements are left."""
        finite_x, finite_y = np.isfinite(x), np.isfinite(y)
        self._reference.nonfinite += int(x.size - np.count_nonzero(finite_x))
        self._candidate.nonfinite += int(y.size - np.count_nonzero(finite_y))
        keep = finite_x & finite_y
        return np.where(keep, x, x.dtype.type(0)), np.where(keep, y, y.dtype.type(0)), keep

    def _add_side(self, side: _Side, values: Array, total: float, square: float) -> int:
        """Take in one side of the block; return how many of its finite elements are zero."""
        side.total += total
        side.square += square
        finite = values if self._keep is None else values[self._keep]
        before = side.zeros
        side.add_range(finite, self._flags[: finite.size])
        return side.zeros - before

    def _add_errors(self, x: Array, y: Array) -> Array:
        """Sum the absolute errors and return them, in the work dtype unless that overflows."""
        error = np.subtract(x, y, out=self._error[: x.size])
        np.abs(error, out=error)
        largest = float(error[error.argmax()])
        if not math.isfinite(largest):
            error = np.abs(x.astype(np.float64) - y)
            largest = float(error[error.argmax()])
        self._max_abs = max(self._max_abs, largest)
        self._wide.load(_LAST, error)
        self._abs += self._wide.dot(_LAST, _ONES)
        self._square += self._wide.dot(_LAST, _LAST)
        return error

    def _add_relative(self, x: Array, error: Array, *, zeros: int, excluded: int) -> None:
        """Sum the relative errors where the reference is not zero; excluded elements are zeros here."""
        magnitude = np.abs(x, out=self._scratch[: x.size])
        flags = self._flags[: x.size]
        invented = 0
        if zeros:
            zero = np.equal(magnitude, 0, out=flags)
            invented = int(np.count_nonzero(error[zero]))
            # Nothing over one leaves these elements out of the sum and the maximum.
            magnitude[zero] = 1
            error = np.where(zero, error.dtype.type(0), error)
        relative = error / magnitude if error.dtype != x.dtype else np.divide(error, magnitude, out=magnitude)
        largest = float(relative[relative.argmax()])
        if not math.isfinite(largest) and relative.dtype != np.float64:
            relative = error / np.where(x == 0, 1, np.abs(x).astype(np.float64))
            largest = float(relative[relative.argmax()])
        self._relative_count += x.size - zeros
        self._wide.load(_LAST, relative)
        self._relative += self._wide.dot(_LAST, _ONES)
        self._max_relative = max(self._max_relative, largest)
        self._near += _count_below(relative, _NEAR, largest, flags) - invented - excluded
        self._fair += _count_below(relative, _FAIR, largest, flags) - invented - excluded


class _Channels:
    """Running energies per channel."""

    def __init__(self, axis: int, count: int) -> None:
        self._axis = axis
        self.energies = ChannelEnergies(np.zeros(count), np.zeros(count))

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int | None) -> "_Channels | None":
        """Start summing; None where there are no channels to keep apart."""
        if axis is None or len(shape) <= axis or not 1 < shape[axis] <= _MAX_CHANNELS:
            return None
        return cls(axis, shape[axis])

    def add(self, part: Block, reference: Array, error: Array) -> None:
        """Take in one block, given as flat arrays."""
        extents = part.shape
        outer, inner = math.prod(extents[: self._axis]), math.prod(extents[self._axis + 1 :])
        first = part.index[self._axis].start if self._axis < len(part.index) else 0
        channels = slice(first, first + extents[self._axis])
        for energies, values in ((self.energies.reference, reference), (self.energies.error, error)):
            rows = values.reshape(outer, extents[self._axis], inner)
            squares = np.vecdot(rows, rows)
            energies[channels] += squares.sum(axis=0, dtype=np.float64)


def _count_below(values: Array, limit: float, largest: float, flags: Array) -> int:
    if largest < limit:
        return values.size
    return int(np.count_nonzero(np.less(values, limit, out=flags)))


def _flat(values: Array, buffer: Array) -> Array:
    """The values in one row of the buffer's dtype, copied only when they are not so already."""
    if values.dtype == buffer.dtype and values.flags.c_contiguous:
        return values.reshape(-1)
    out = buffer[: values.size]
    np.copyto(out.reshape(values.shape), values, casting="unsafe")
    return out
