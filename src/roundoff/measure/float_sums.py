"""Sums of squares and products of float32 values, block by block: added by BLAS, a few thousand terms at a time.

Each of those short sums is a float32; they are added up in float64. Energies agree with sums in float64 to about
six digits, and take a third of the time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import ArrayBlock, split_blocks

BLOCK = 1 << 15
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


def split_pieces(shape: tuple[int, ...], axis: int | None, limit: int = BLOCK) -> Iterator[Piece]:
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
