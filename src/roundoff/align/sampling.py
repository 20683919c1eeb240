"""Looking at a few elements of a tensor, in any layout, without copying the tensor."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from roundoff.align.axes import Shape
from roundoff.core.blocks import release_pages
from roundoff.core.pairing import Layout
from roundoff.core.tensors import Array

__all__ = ["Floats", "Positions", "is_real", "positions", "seen_through", "take"]

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_SEED = 20_011

_LARGE_BYTES = 16 * 2**20
_AT_A_TIME = 32
"""Touching an element of a mapped file makes its neighbours resident; large tensors give them back so often."""


@lru_cache(maxsize=512)
def positions(size: int, count: int) -> Positions:
    """Flat positions of at most `count` elements of a tensor of `size`, ascending, the same at each call.

    One from each of `count` equal stretches, at a random place in it: an even stride would see one channel
    only where the number of channels divides it.
    """
    if size <= count:
        return np.arange(size, dtype=np.int64)
    random = np.random.default_rng((_SEED, size, count))
    edges = np.arange(count + 1, dtype=np.int64) * size // count
    chosen: Positions = random.integers(edges[:-1], edges[1:], dtype=np.int64)
    return chosen


@lru_cache(maxsize=512)
def seen_through(
    layout: Layout | None, reference_shape: Shape, candidate_shape: Shape, *, count: int
) -> Positions:
    """Where in the candidate as stored those elements stand that are at `positions` in the reference."""
    at = positions(math.prod(reference_shape), count)
    if layout is None:
        return at
    if layout.crop is not None:  # the same coordinates in a larger shape
        at = np.ravel_multi_index(np.unravel_index(at, reference_shape), _uncropped(layout, candidate_shape))
    if layout.axes is not None:
        split = layout.split or candidate_shape
        turned = tuple(split[axis] for axis in layout.axes)
        coordinates = np.unravel_index(at, turned)
        at = np.ravel_multi_index([coordinates[place] for place in np.argsort(layout.axes)], split)
    return np.asarray(at, dtype=np.int64)


def _uncropped(layout: Layout, candidate_shape: Shape) -> Shape:
    if layout.merged is not None:
        return layout.merged
    split = layout.split or candidate_shape
    return split if layout.axes is None else tuple(split[axis] for axis in layout.axes)


def is_real(array: Array) -> bool:
    """Whether the elements are real numbers of any type, bfloat16 and booleans included."""
    return np.can_cast(array.dtype, np.float64, casting="same_kind")


def _pick(array: Array, at: Positions) -> Floats:
    in_order = array.flags.c_contiguous
    # Flattening anything else would copy the whole tensor.
    chosen = array.reshape(-1)[at] if in_order else array[np.unravel_index(at, array.shape)]
    if array.nbytes > _LARGE_BYTES:
        release_pages(array)
    return chosen.astype(np.float64)


def take(array: Array, at: Positions) -> Floats | None:
    """The elements at flat positions as float64, or None when they are no real numbers.

    Values that are not finite count as the mean of the others; None when they are the majority.
    """
    array = np.asarray(array)
    if not is_real(array) or not at.size:
        return None
    parts = [at] if array.nbytes <= _LARGE_BYTES else np.array_split(at, -(-at.size // _AT_A_TIME))
    values: Floats = np.concatenate([_pick(array, part) for part in parts])
    finite = np.isfinite(values)
    if finite.all():
        return values
    if finite.sum() * 2 < values.size:
        return None
    values[~finite] = values[finite].mean()
    return values
