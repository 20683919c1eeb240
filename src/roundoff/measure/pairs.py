"""Measuring a pair of arrays in one pass, in blocks that stay in cache.

Precision: all sums are float64. Where both dtypes fit float32 without loss the difference is taken in float32:
it is exact while the two values are within a factor of two of each other, and otherwise off by at most 2**-24
of itself. Other dtypes are compared in float64 throughout.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure.statistics import (
    EMPTY_HISTOGRAM,
    ArrayBlock,
    Histogram,
    histogram_of,
    release_pages,
    split_blocks,
)
from roundoff.messages.message import english

# Everything the metrics need to know of a pair of tensors, as float64 sums gathered in one pass.
#
# `measure_pair` gathers all of them block by block; `PairSums.merge` joins what was measured apart (other samples,
# other parts), so that nothing ever needs all values at once. `roundoff.measure.rows` and
# `roundoff.measure.light_pairs` are faster at fewer of them. Whoever gathers declares which (`offers`), a metric
# declares which it needs, and `roundoff.measure.metrics.require` refuses what does not fit.

Field = Literal[
    "reference_energy",
    "candidate_energy",
    "error_energy",
    "product",
    "totals",
    "extremes",
    "zeros",
    "histograms",
    "abs_error",
    "max_abs_error",
    "relative_errors",
    "near_counts",
    "channels",
]
"""What can be gathered of a pair. Numbers of elements, compared, left out and not finite, are always there.

totals: the sum of each side. extremes: low, high and how many elements sit there. relative_errors: their number,
sum and largest. near_counts: `within_1e3` and `within_5e3`. channels: energies per channel.
"""

ALL_FIELDS: frozenset[Field] = frozenset(get_args(Field))


@dataclass(frozen=True, slots=True)
class SideSums:
    """One side of a pair. Elements that are not finite on either side are left out of all but `nonfinite`.

    Attributes:
        total: Sum of the values.
        energy: Sum of their squares.
        low: Smallest value; +inf when there is none, NaN when it was not gathered and not all values are zero.
        high: Largest value; -inf when there is none, NaN likewise.
        at_low: How many elements sit exactly at `low`.
        at_high: How many elements sit exactly at `high`.
        zeros: How many elements are zero.
        nonfinite: How many elements of this side are NaN or infinite.
        histogram: Distribution, estimated from evenly spaced elements of large tensors.
    """

    total: float = 0.0
    energy: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    at_low: int = 0
    at_high: int = 0
    zeros: int = 0
    nonfinite: int = 0
    histogram: Histogram = EMPTY_HISTOGRAM

    @property
    def is_zero(self) -> bool:
        """Whether every value is zero."""
        return self.low == self.high == 0

    def merge(self, other: "SideSums") -> "SideSums":
        """This side of both pairs together."""
        # What one of them did not gather is not known of both.
        unknown = math.isnan(self.low + other.low)
        low, high = (math.nan,) * 2 if unknown else (min(self.low, other.low), max(self.high, other.high))
        sides = (self, other)
        return SideSums(
            total=self.total + other.total,
            energy=self.energy + other.energy,
            low=low,
            high=high,
            at_low=sum(side.at_low for side in sides if side.low == low),
            at_high=sum(side.at_high for side in sides if side.high == high),
            zeros=self.zeros + other.zeros,
            nonfinite=self.nonfinite + other.nonfinite,
            histogram=self.histogram.merge(other.histogram),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ChannelEnergies:
    """Sums of squares per channel.

    Attributes:
        reference: Of the reference, shape (channels,).
        error: Of the difference, shape (channels,).
    """

    reference: Array
    error: Array

    def merge(self, other: "ChannelEnergies | None") -> "ChannelEnergies | None":
        """Both together; None when the channels are not the same ones."""
        if other is None or other.reference.shape != self.reference.shape:
            return None
        return ChannelEnergies(self.reference + other.reference, self.error + other.error)


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums over a reference and a candidate of equal shape; "error" is reference minus candidate.

    Attributes:
        count: Elements compared: finite on both sides.
        excluded: Elements left out because one side or both are not finite.
        reference: The reference's own sums.
        candidate: The candidate's own sums.
        product: Sum of reference times candidate.
        abs_error: Sum of absolute errors.
        error_energy: Sum of squared errors.
        max_abs_error: Largest absolute error.
        relative_count: Elements whose reference is not zero; only these have a relative error.
        relative_error: Sum of their relative errors.
        max_relative_error: The largest of them.
        within_1e3: Elements whose relative error is below 1e-3 (zero against zero counts).
        within_5e3: The same for 5e-3.
        channels: Energies per channel; None when there are no channels, or they differ between parts.
        offers: What of all this was gathered; the rest says nothing.
    """

    count: int = 0
    excluded: int = 0
    reference: SideSums = SideSums()
    candidate: SideSums = SideSums()
    product: float = 0.0
    abs_error: float = 0.0
    error_energy: float = 0.0
    max_abs_error: float = 0.0
    relative_count: int = 0
    relative_error: float = 0.0
    max_relative_error: float = 0.0
    within_1e3: int = 0
    within_5e3: int = 0
    channels: ChannelEnergies | None = None
    offers: frozenset[Field] = ALL_FIELDS

    def add(self, reference: Array, candidate: Array, *, channel_axis: int | None = None) -> "PairSums":
        """These sums with one more pair of arrays, such as the next sample; see `measure_pair`."""
        return self.merge(measure_pair(reference, candidate, channel_axis=channel_axis))

    def merge(self, other: "PairSums") -> "PairSums":
        """The sums of both sets of elements together."""
        # Nothing has no channels of its own that could differ.
        if not (self.count or self.excluded):
            return replace(other, offers=self.offers & other.offers)
        if not (other.count or other.excluded):
            return replace(self, offers=self.offers & other.offers)
        return PairSums(
            count=self.count + other.count,
            excluded=self.excluded + other.excluded,
            reference=self.reference.merge(other.reference),
            candidate=self.candidate.merge(other.candidate),
            product=self.product + other.product,
            abs_error=self.abs_error + other.abs_error,
            error_energy=self.error_energy + other.error_energy,
            max_abs_error=max(self.max_abs_error, other.max_abs_error),
            relative_count=self.relative_count + other.relative_count,
            relative_error=self.relative_error + other.relative_error,
            max_relative_error=max(self.max_relative_error, other.max_relative_error),
            within_1e3=self.within_1e3 + other.within_1e3,
            within_5e3=self.within_5e3 + other.within_5e3,
            channels=None if self.channels is None else self.channels.merge(other.channels),
            offers=self.offers & other.offers,
        )


# The sums of no elements at all.
NOTHING = PairSums()


# Elements per block: large enough to hide numpy's cost per call, small enough to stay in cache.
BLOCK = 1 << 17
# BLAS sums pieces up to this length without spreading them over threads: waking those costs more than it gains,
# and on a busy machine a hundred times more.
_PIECE = 8192
# Rows shorter than this are not worth a call of BLAS each.
_SHORT_ROW = 256
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
) -> PairSums:
    """Gather the sums of two arrays of equal shape.

    Args:
        reference: Any real, integer, bool or complex dtype (complex counts as two reals).
        candidate: Likewise; the dtypes may differ.
        channel_axis: Axis on which energies are kept apart, from the end when negative; None for none.
        block: Elements per step; changes speed, not results (beyond the last bits).
    """
    reference, candidate = _real(reference), _real(candidate)
    if reference.shape != candidate.shape:
        raise ValueError(f"shapes differ: {reference.shape} and {candidate.shape}")
    narrow = all(np.can_cast(side.dtype, np.float32) for side in (reference, candidate))
    meter = _Meter(np.float32 if narrow else np.float64)
    channels = _Channels.of(reference.shape, channel_axis)
    stride = max(1, reference.size // _HISTOGRAM_SAMPLE)
    unreleased = 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for part in split_blocks(reference.shape, block):
            row = None if channels is None else channels.row(part)
            squares = meter.add(reference[part.index], candidate[part.index], row=row)
            meter.sample(slice(-part.start % stride, None, stride))
            if channels is not None:
                channels.add(part, pieces=squares if row else None, values=meter.last_values)
            unreleased += part.size
            if unreleased >= _RELEASE_EVERY:
                release_pages(reference)
                release_pages(candidate)
                unreleased = 0
    return meter.sums(None if channels is None else channels.energies)


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
        raise BadInput(
            english("Values of type {dtype} are not numbers.", dtype=array.dtype),
            fix=english("leave this tensor out"),
        )
    return array


class _Side:
    """Running sums of one side."""

    def __init__(self) -> None:
        self.total = self.energy = 0.0
        self.low, self.high = math.inf, -math.inf
        self.at_low = self.at_high = self.zeros = self.nonfinite = 0
        self.sampled: list[Array] = []

    def add_range(self, values: Array, flags: Array, *, holds_zeros: bool) -> None:
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
        if holds_zeros and low <= 0 <= high:
            self.zeros += int(np.count_nonzero(np.equal(values, 0, out=flags)))

    def sums(self) -> SideSums:
        """The sums as a value."""
        histogram: Histogram = histogram_of(np.concatenate(self.sampled or [np.empty(0)]))
        return SideSums(
            total=self.total,
            energy=self.energy,
            low=self.low,
            high=self.high,
            at_low=self.at_low,
            at_high=self.at_high,
            zeros=self.zeros,
            nonfinite=self.nonfinite,
            histogram=histogram,
        )


class _Workspace:
    """Buffers for blocks of one size.

    The float64 rows (reference, candidate, absolute and relative error) are summed by BLAS, which is faster at it
    than numpy.

    Args:
        size: Elements per block.
        work: Type in which differences are taken.
        row: Length of the pieces whose squares are kept apart; None when it does not matter.
    """

    def __init__(self, size: int, work: type[np.floating], row: int | None = None) -> None:
        self.size, self.row = size, row
        self.left, self.right, self.error, self.magnitude = (np.empty(size, work) for _ in range(4))
        self.flags = np.empty(size, np.bool_)
        piece = min(size, _PIECE)
        pieces = -(-size // piece)
        padded = np.zeros((4, pieces * piece))
        self.x, self.y, self.e, self.r = padded[:, :size]
        self.compared = padded[0:3:2, :size]
        self._rows = padded.reshape(4, pieces, piece)
        self._squared = self._rows[:3] if row is None else padded[:3, :size].reshape(3, size // row, row)
        self._ones = np.ones(piece)

    def sums(self) -> tuple[list[float], Array, float]:
        """Sums of the four rows, squares of the first three by piece, product of the first two."""
        rows = self._rows
        totals = np.add.reduce(np.vecdot(rows, self._ones), axis=1).tolist()
        squares = np.vecdot(self._squared, self._squared)
        return totals, squares, float(np.add.reduce(np.vecdot(rows[0], rows[1])))


class _Meter:
    """The running sums of one measurement."""

    def __init__(self, work: type[np.floating]) -> None:
        self._work = work
        self._space = _Workspace(1, work)
        self._keep: Array | None = None
        self._reference_zeros = True
        self._block: tuple[Array, Array] = (self._space.left, self._space.right)
        self._reference, self._candidate = _Side(), _Side()
        self._count = self._excluded = self._relative_count = self._near = self._fair = 0
        self._product = self._abs = self._square = self._max_abs = 0.0
        self._relative = self._max_relative = 0.0

    def add(self, reference: Array, candidate: Array, *, row: int | None = None) -> Array:
        """Measure one block; return the squares of reference and error, shape (2, pieces of length `row`)."""
        if (reference.size, row) != (self._space.size, self._space.row):
            self._space = _Workspace(reference.size, self._work, row)
        space = self._space
        x, y = _flat(reference, space.left), _flat(candidate, space.right)
        self._keep = None
        error, totals, pieces, product = self._sums(x, y)
        squares = np.add.reduce(pieces, axis=1).tolist()
        if not math.isfinite(product + sum(squares)):
            x, y, self._keep = self._without_nonfinite(x, y)
            error, totals, pieces, product = self._sums(x, y)
            squares = np.add.reduce(pieces, axis=1).tolist()
        self._block = (x, y)
        excluded = 0 if self._keep is None else x.size - int(np.count_nonzero(self._keep))
        self._count += x.size - excluded
        self._excluded += excluded
        self._product += product
        self._abs += totals[2]
        self._square += squares[2]
        self._relative += totals[3]
        self._max_abs = max(self._max_abs, float(error[error.argmax()]))
        zeros = self._add_side(self._reference, x, totals[0], squares[0], holds_zeros=self._reference_zeros)
        self._add_side(self._candidate, y, totals[1], squares[1], holds_zeros=True)
        self._count_relative(x, error, zeros=zeros, excluded=excluded)
        return pieces[::2]

    @property
    def last_values(self) -> Array:
        """Reference and absolute error of the last block, shape (2, elements)."""
        return self._space.compared

    def sample(self, positions: slice) -> None:
        """Keep some elements of the last block for the distributions."""
        for side, values in zip((self._reference, self._candidate), self._block, strict=True):
            chosen = values[positions]
            side.sampled.append(chosen.copy() if self._keep is None else chosen[self._keep[positions]])

    def sums(self, channels: ChannelEnergies | None) -> PairSums:
        """What was measured, as a value."""
        return PairSums(
            count=self._count,
            excluded=self._excluded,
            reference=self._reference.sums(),
            candidate=self._candidate.sums(),
            product=self._product,
            abs_error=self._abs,
            error_energy=self._square,
            max_abs_error=self._max_abs,
            relative_count=self._relative_count,
            relative_error=self._relative,
            max_relative_error=self._max_relative,
            within_1e3=self._near,
            within_5e3=self._fair,
            channels=channels,
        )

    def _sums(self, x: Array, y: Array) -> tuple[Array, list[float], Array, float]:
        """The absolute errors, and what `_Workspace.sums` says of the block."""
        space = self._space
        error = np.abs(np.subtract(x, y, out=space.error), out=space.error)
        magnitude = np.abs(x, out=space.magnitude)
        self._reference_zeros = not magnitude[magnitude.argmin()]
        if self._reference_zeros:
            # Relative errors are taken where the reference is not zero: over infinity, the others add nothing.
            magnitude[magnitude == 0] = math.inf
        space.x[:], space.y[:], space.e[:] = x, y, error
        space.r[:] = np.divide(error, magnitude, out=magnitude)
        totals, squares, product = space.sums()
        narrow = math.isfinite(totals[3] + float(squares[2].sum()))
        if not narrow and math.isfinite(float(squares[:2].sum())):
            error = self._widened_errors(x)
            totals, squares, product = space.sums()
        return error, totals, squares, product

    def _widened_errors(self, x: Array) -> Array:
        """The errors in float64, for blocks whose differences or ratios overflow the narrower type."""
        space = self._space
        error: Array = np.abs(space.x - space.y)
        space.e[:] = error
        space.r[:] = error / np.where(x == 0, math.inf, np.abs(space.x))
        return error

    def _without_nonfinite(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Both blocks with zeros where either is not finite, and which elements are left."""
        finite_x, finite_y = np.isfinite(x), np.isfinite(y)
        self._reference.nonfinite += int(x.size - np.count_nonzero(finite_x))
        self._candidate.nonfinite += int(y.size - np.count_nonzero(finite_y))
        keep = finite_x & finite_y
        return np.where(keep, x, x.dtype.type(0)), np.where(keep, y, y.dtype.type(0)), keep

    def _add_side(self, side: _Side, values: Array, total: float, square: float, *, holds_zeros: bool) -> int:
        """Take in one side of the block; return how many of its finite elements are zero."""
        side.total += total
        side.energy += square
        finite = values if self._keep is None else values[self._keep]
        before = side.zeros
        side.add_range(finite, self._space.flags[: finite.size], holds_zeros=holds_zeros)
        return side.zeros - before

    def _count_relative(self, x: Array, error: Array, *, zeros: int, excluded: int) -> None:
        """Count small relative errors; elements left out are zeros on both sides here and must not count."""
        space = self._space
        relative = space.magnitude if error is space.error else space.r
        largest = float(relative[relative.argmax()])
        self._max_relative = max(self._max_relative, largest)
        self._relative_count += x.size - zeros - excluded
        invented = excluded + (int(np.count_nonzero(error[x == 0])) if zeros else 0)
        self._near += _count_below(relative, _NEAR, largest, space.flags) - invented
        self._fair += _count_below(relative, _FAIR, largest, space.flags) - invented


class _Channels:
    """Running energies per channel."""

    def __init__(self, axis: int, count: int) -> None:
        self._axis = axis
        self.energies = ChannelEnergies(np.zeros(count), np.zeros(count))

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int | None) -> "_Channels | None":
        """Start summing; None where there are no channels to keep apart."""
        if axis is None or not -len(shape) <= axis < len(shape) or not 1 < shape[axis] <= _MAX_CHANNELS:
            return None
        return cls(axis % len(shape), shape[axis])

    def row(self, part: ArrayBlock) -> int | None:
        """Length of the equal pieces that BLAS can square a channel's rows in; None when they are too short."""
        length = math.prod(part.shape[self._axis + 1 :])
        fewest = -(-length // _PIECE)
        lengths = (length // count for count in range(fewest, 4 * fewest) if length % count == 0)
        return next((piece for piece in lengths if piece >= _SHORT_ROW), None)

    def add(self, part: ArrayBlock, *, pieces: Array | None, values: Array) -> None:
        """Take in one block of reference and error, in its order.

        Args:
            part: The block.
            pieces: Squares of pieces, shape (2, pieces); None to take them from the values.
            values: The values themselves, shape (2, elements).
        """
        shape = (2, math.prod(part.shape[: self._axis]), part.shape[self._axis], -1)
        if pieces is not None:
            energies = pieces.reshape(shape).sum(axis=(1, 3))
        else:
            rows = values.reshape(shape)
            energies = np.einsum("koci,koci->kc", rows, rows)
        first = part.index[self._axis].start if self._axis < len(part.index) else 0
        channels = slice(first, first + part.shape[self._axis])
        self.energies.reference[channels] += energies[0]
        self.energies.error[channels] += energies[1]


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
