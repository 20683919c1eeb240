"""Measuring a pair of arrays in one pass, in blocks that stay in cache.

Precision: where both dtypes fit float32 without loss the difference is taken in float32: it is exact while the two
values are within a factor of two of each other, and else off by at most 2**-24 of itself. Sums are float64; in
large blocks they are float64 sums of float32 sums (`channel_squares`, `dot_products`), which agree to about six
digits, and a cosine next to 1 keeps all digits of its distance from 1. Other dtypes, and blocks that float32 does
not do justice, are compared in float64 throughout.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
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


# Sums of squares and products of float32 values: added by BLAS, a few thousand terms at a time, and these sums in
# float64. Energies agree with sums in float64 to about six digits, and take a third of the time.

FLOAT32_BLOCK = 1 << 15
"""Elements per block: a reference, a candidate and what is made of both stay in the cache of one core."""

TINY = 1e-15
"""Squares of smaller numbers come near the smallest float32."""

VANISHING = 0.1
"""A candidate with a smaller part of the reference's energy would be the small difference of large sums."""

# Terms per float32 sum.
_TERMS = 4096
# Rows shorter than this are not worth a call of BLAS each; so many of them are added in float32 at a time.
_SHORT_ROW, _ROWS_AT_A_TIME = 24, 64
_ONES = np.ones(_TERMS, np.float32)
# More "channels" than this are not channels.
_MOST_CHANNELS = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor: `outer` times `channels` (from `first` on) times `inner` elements.

    Attributes:
        block: Where it is in the tensor.
        outer: Product of the sizes before the axis of the channels; 1 where there are none.
        channels: How many of them; 1 where there are none.
        inner: Product of the sizes behind that axis, or all elements.
        first: The first of the channels.
    """

    block: ArrayBlock
    outer: int
    channels: int
    inner: int
    first: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.block.size

    @property
    def part(self) -> slice:
        """Where it is in the flattened tensor."""
        return slice(self.block.start, self.block.start + self.block.size)

    @property
    def own_channels(self) -> slice:
        """Its channels among all."""
        return slice(self.first, self.first + self.channels)


def split_pieces(shape: tuple[int, ...], axis: int | None, limit: int = FLOAT32_BLOCK) -> Iterator[Piece]:
    """Cut a tensor into pieces of at most so many elements; without channels where it has no axis of them."""
    for block in split_blocks(shape, limit):
        if axis is None:
            yield Piece(block, 1, 1, block.size)
            continue
        first = block.index[axis].start if axis < len(block.index) else 0
        outer, inner = math.prod(block.shape[:axis]), math.prod(block.shape[axis + 1 :])
        yield Piece(block, outer, block.shape[axis], inner, first)


def usable_axis(shape: tuple[int, ...], axis: int | None) -> int | None:
    """The axis, where it exists and has a number of entries that can be channels."""
    if axis is None or not -len(shape) <= axis < len(shape) or not 1 < shape[axis] <= _MOST_CHANNELS:
        return None
    return axis % len(shape)


def channel_squares(values: Array, piece: Piece, scratch: Array | None = None) -> Array:
    """Squares of a piece of several tensors, summed up for each of them and each channel.

    Args:
        values: Of shape (tensors, elements of the piece).
        piece: The piece.
        scratch: Room for as many float32 values, to work in.

    Returns:
        float64 of shape (tensors, channels).
    """
    count = len(values)
    if piece.inner >= _SHORT_ROW:
        cuts = _cuts(piece.inner)
        if cuts:
            rows = values.reshape(count, -1, piece.inner // cuts)
            sums = np.vecdot(rows, rows).astype(np.float64)
            sums = sums if cuts == 1 else np.add.reduce(sums.reshape(count, -1, cuts), axis=2)
        else:
            rows = values.reshape(count, -1, piece.inner)
            spans = [rows[..., at : at + _TERMS] for at in range(0, piece.inner, _TERMS)]
            sums = np.stack([np.vecdot(span, span) for span in spans]).sum(axis=0, dtype=np.float64)
        return sums if piece.outer == 1 else _over_outer(sums, piece)
    if piece.inner > 1:
        rows = values.reshape(count, piece.outer * piece.channels, piece.inner)
        return _over_outer(np.einsum("kri,kri->kr", rows, rows), piece)
    room = None if scratch is None else scratch[: values.size].reshape(values.shape)
    squares = np.multiply(values, values, out=room)
    whole = piece.outer // _ROWS_AT_A_TIME * _ROWS_AT_A_TIME
    table = squares.reshape(count, piece.outer, piece.channels)
    groups = table[:, :whole].reshape(count, -1, _ROWS_AT_A_TIME, piece.channels)
    sums = np.add.reduce(groups, axis=2).sum(axis=1, dtype=np.float64)
    return np.asarray(sums + np.add.reduce(table[:, whole:], axis=1))


def _over_outer(sums: Array, piece: Piece) -> Array:
    return np.asarray(sums.reshape(len(sums), piece.outer, piece.channels).sum(axis=1, dtype=np.float64))


def dot_products(left: Array, right: Array) -> Array:
    """Sums of products along the last axis, float64 of the other axes of both."""
    size = left.shape[-1]
    whole = size // _TERMS * _TERMS
    rows = (side[..., :whole].reshape(*side.shape[:-1], -1, _TERMS) for side in (left, right))
    totals = np.add.reduce(np.vecdot(*rows), axis=-1, dtype=np.float64)
    return np.asarray(totals if whole == size else totals + np.vecdot(left[..., whole:], right[..., whole:]))


def total(values: Array) -> float:
    """The sum of values in one row."""
    whole = values.size // _TERMS * _TERMS
    found = np.add.reduce(np.vecdot(values[:whole].reshape(-1, _TERMS), _ONES), dtype=np.float64)
    return float(found) + float(np.vecdot(values[whole:], _ONES[: values.size - whole]))


@lru_cache(maxsize=1024)
def _cuts(length: int) -> int:
    """Into how many equal parts of few enough terms a row can be cut; 0 when it cannot."""
    fewest = -(-length // _TERMS)
    return next((count for count in range(fewest, 4 * fewest) if length % count == 0), 0)


# Elements per block: large enough to hide numpy's cost per call, small enough to stay in cache.
BLOCK = 1 << 17
# Blocks of fewer elements are summed in float64 from the start: there is nothing to gain.
_FEWEST_IN_FLOAT32 = 1 << 13
# Distributions are estimated from about this many elements per array, evenly spaced.
_HISTOGRAM_SAMPLE = 1 << 15
# Mapped pages are given back each time so many elements have been read.
_RELEASE_EVERY = 1 << 22
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

    Raises:
        BadInput: Their shapes differ, or their values are no numbers.
    """
    reference, candidate = _real(reference), _real(candidate)
    if reference.shape != candidate.shape:
        raise BadInput(
            english("The shapes differ: {one} and {other}.", one=reference.shape, other=candidate.shape),
            fix=english("give two arrays of one shape"),
        )
    narrow = all(np.can_cast(side.dtype, np.float32) for side in (reference, candidate))
    axis = usable_axis(reference.shape, channel_axis)
    meter = _Meter(np.float32 if narrow else np.float64, channels=None if axis is None else reference.shape[axis])
    stride = max(1, reference.size // _HISTOGRAM_SAMPLE)
    unreleased = 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for piece in split_pieces(reference.shape, axis, block):
            meter.add(reference[piece.block.index], candidate[piece.block.index], piece)
            meter.sample(slice(-piece.block.start % stride, None, stride))
            unreleased += piece.size
            if unreleased >= _RELEASE_EVERY:
                release_pages(reference)
                release_pages(candidate)
                unreleased = 0
    return meter.sums()


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

    def add(self, values: Array, flags: Array, total: float, energy: float, *, zeros: int | None = None) -> None:
        """Take in one block of finite values.

        Args:
            values: The values.
            flags: Scratch of the same size.
            total: Their sum.
            energy: The sum of their squares.
            zeros: How many are zero, where that is known.
        """
        self.total += total
        self.energy += energy
        if values.size == 0:
            return
        low, high = values.min(), values.max()
        if low < self.low:
            self.low, self.at_low = float(low), 0
        if high > self.high:
            self.high, self.at_high = float(high), 0
        # Blocks that stay inside the range seen so far need no counting.
        if low == self.low:
            self.at_low += int(np.count_nonzero(np.equal(values, low, out=flags)))
        if high == self.high:
            self.at_high += int(np.count_nonzero(np.equal(values, high, out=flags)))
        if zeros is None:
            zeros = int(np.count_nonzero(np.equal(values, 0, out=flags))) if low <= 0 <= high else 0
        self.zeros += zeros

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


@dataclass(slots=True, eq=False)
class _BlockSums:
    """What was summed up of one block.

    Attributes:
        error: Absolute errors.
        largest: The largest of them.
        relative: Relative errors; 0 where the reference is zero.
        totals: Sums of reference, candidate, absolute and relative errors.
        energies: Squares of reference, candidate and error.
        channels: Squares of reference and error, of shape (2, channels).
        product: Reference times candidate.
        zeros: How many elements of the reference are zero.
    """

    error: Array
    largest: float
    relative: Array
    totals: tuple[float, float, float, float]
    energies: tuple[float, float, float]
    channels: Array
    product: float
    zeros: int


class _Workspace:
    """Buffers for blocks of one size.

    Args:
        size: Elements per block.
        work: Type in which differences are taken.
    """

    def __init__(self, size: int, work: type[np.floating]) -> None:
        self.size = size
        self.left, self.right, self.error, self.magnitude = (np.empty(size, work) for _ in range(4))
        self.flags, self.zeros = np.empty(size, np.bool_), np.empty(size, np.bool_)


class _Meter:
    """The running sums of one measurement.

    Args:
        work: Type in which differences are taken.
        channels: How many channels are kept apart; None for none.
    """

    def __init__(self, work: type[np.floating], *, channels: int | None) -> None:
        self._work = work
        self._space = _Workspace(1, work)
        self._keep: Array | None = None
        self._block: tuple[Array, Array] = (self._space.left, self._space.right)
        self._reference, self._candidate = _Side(), _Side()
        self._count = self._excluded = self._relative_count = self._near = self._fair = 0
        self._product = self._abs = self._square = self._max_abs = 0.0
        self._relative = self._max_relative = 0.0
        self._energies = None if channels is None else np.zeros((2, channels))

    def add(self, reference: Array, candidate: Array, piece: Piece) -> None:
        """Measure one block."""
        if reference.size != self._space.size:
            self._space = _Workspace(reference.size, self._work)
        space = self._space
        x, y = _flat(reference, space.left), _flat(candidate, space.right)
        self._keep = None
        found = self._in_float32(x, y, piece) or self._exactly(x, y, piece)
        if not math.isfinite(found.product + sum(found.energies)):
            x, y, self._keep = self._without_nonfinite(x, y)
            found = self._exactly(x, y, piece)
        self._block = (x, y)
        excluded = 0 if self._keep is None else x.size - int(np.count_nonzero(self._keep))
        self._count += x.size - excluded
        self._excluded += excluded
        self._product += found.product
        self._abs += found.totals[2]
        self._square += found.energies[2]
        self._relative += found.totals[3]
        self._max_abs = max(self._max_abs, found.largest)
        # Elements that are left out are zeros on both sides here, and do not count.
        zeros = found.zeros - excluded
        self._count_relative(found, zeros=zeros, excluded=excluded)
        self._add_side(self._reference, x, found.totals[0], found.energies[0], zeros=zeros)
        self._add_side(self._candidate, y, found.totals[1], found.energies[1])
        if self._energies is not None:
            self._energies[:, piece.own_channels] += found.channels

    def sample(self, positions: slice) -> None:
        """Keep some elements of the last block for the distributions."""
        for side, values in zip((self._reference, self._candidate), self._block, strict=True):
            chosen = values[positions]
            side.sampled.append(chosen.copy() if self._keep is None else chosen[self._keep[positions]])

    def sums(self) -> PairSums:
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
            channels=None if self._energies is None else ChannelEnergies(*self._energies),
        )

    def _in_float32(self, x: Array, y: Array, piece: Piece) -> _BlockSums | None:
        """Sums of float32 values; None where they are few, or float32 cannot be trusted with them."""
        if self._work is not np.float32 or piece.size < _FEWEST_IN_FLOAT32:
            return None
        space = self._space
        error = np.subtract(x, y, out=space.error)
        squares = [channel_squares(each[np.newaxis], piece, space.magnitude) for each in (x, error)]
        reference, own = (float(each.sum()) for each in squares)
        both, shift = float(dot_products(x, error)), total(error)
        candidate = reference - 2 * both + own
        trusted = math.isfinite(reference) and reference >= piece.size * TINY**2
        if not trusted or not candidate >= VANISHING * reference:
            return None
        relative, zeros = self._ratios(x, np.abs(error, out=error))
        largest, ours = float(error.max()), total(x)
        totals = ours, ours - shift, total(error), total(relative)
        if not math.isfinite(own + both + largest + sum(totals)) or 0 < largest < TINY:
            return None
        energies = reference, candidate, own
        return _BlockSums(
            error, largest, relative, totals, energies, np.concatenate(squares), reference - both, zeros
        )

    def _exactly(self, x: Array, y: Array, piece: Piece) -> _BlockSums:
        """Sums in float64, of differences in the type of this measurement where that holds them."""
        error = np.abs(np.subtract(x, y, out=self._space.error), out=self._space.error)
        relative, zeros = self._ratios(x, error)
        wide_x, wide_y, wide = (each.astype(np.float64) for each in (x, y, error))
        squares, candidate = channel_squares(np.stack([wide_x, wide]), piece), float(dot_products(wide_y, wide_y))
        reference, own = np.add.reduce(squares, axis=1).tolist()
        ratios = float(np.add.reduce(relative, dtype=np.float64))
        if not math.isfinite(ratios + own) and math.isfinite(reference + candidate):
            # Differences or ratios overflow the narrower type.
            error = wide = np.abs(wide_x - wide_y)
            relative = error / np.where(wide_x == 0, math.inf, np.abs(wide_x))
            squares = channel_squares(np.stack([wide_x, error]), piece)
            own, ratios = float(squares[1].sum()), float(np.add.reduce(relative))
        product = float(dot_products(wide_x, wide_y))
        totals = float(np.add.reduce(wide_x)), float(np.add.reduce(wide_y)), float(np.add.reduce(wide)), ratios
        energies = reference, candidate, own
        return _BlockSums(error, float(error.max()), relative, totals, energies, squares, product, zeros)

    def _ratios(self, x: Array, error: Array) -> tuple[Array, int]:
        """Relative errors, 0 where the reference is zero, and how often it is."""
        space = self._space
        magnitude = np.abs(x, out=space.magnitude)
        zeros = int(np.count_nonzero(np.equal(x, 0, out=space.zeros)))
        if zeros:
            # Relative errors are taken where the reference is not zero: over infinity, the others add nothing.
            np.copyto(magnitude, math.inf, where=space.zeros)
        return np.divide(error, magnitude, out=magnitude), zeros

    def _without_nonfinite(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Both blocks with zeros where either is not finite, and which elements are left."""
        finite_x, finite_y = np.isfinite(x), np.isfinite(y)
        self._reference.nonfinite += int(x.size - np.count_nonzero(finite_x))
        self._candidate.nonfinite += int(y.size - np.count_nonzero(finite_y))
        keep = finite_x & finite_y
        return np.where(keep, x, x.dtype.type(0)), np.where(keep, y, y.dtype.type(0)), keep

    def _add_side(
        self, side: _Side, values: Array, total: float, energy: float, *, zeros: int | None = None
    ) -> None:
        finite = values if self._keep is None else values[self._keep]
        side.add(finite, self._space.flags[: finite.size], total, energy, zeros=zeros)

    def _count_relative(self, found: _BlockSums, *, zeros: int, excluded: int) -> None:
        """Count small relative errors."""
        relative, flags = found.relative, self._space.flags
        largest = float(relative.max())
        self._max_relative = max(self._max_relative, largest)
        self._relative_count += relative.size - zeros - excluded
        invented = excluded
        if zeros:
            # The relative error of what should be zero counts as none, unless it is.
            np.greater(found.error, 0, out=flags)
            invented += int(np.count_nonzero(np.logical_and(flags, self._space.zeros, out=flags)))
        self._near += _count_below(relative, _NEAR, largest, flags) - invented
        self._fair += _count_below(relative, _FAIR, largest, flags) - invented


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
