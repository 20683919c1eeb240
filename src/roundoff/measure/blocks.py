"""Walking two arrays together in blocks that stay in the processor's cache."""

import itertools
import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["ArrayBlock", "release_pages", "split_blocks"]


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
