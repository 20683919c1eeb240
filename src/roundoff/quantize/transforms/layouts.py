"""Channels through operations that move values: what stands where afterwards.

The channels of a tensor are an array of numbers that can be broadcast to its shape: of size 1 along axes that do
not tell channels apart.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["MOST_CHANNELS", "compact", "reshaped", "varies"]

MOST_CHANNELS = 1 << 16
"""Arrays of more numbers are not followed: no tensor has so many channels."""


def varies(channels: Array, axes: Sequence[int]) -> bool:
    """Whether channels differ along any of these axes."""
    return any(channels.shape[axis] > 1 for axis in axes)


def compact(channels: Array) -> Array:
    """The same with size 1 along every axis on which nothing changes."""
    for axis in range(channels.ndim):
        first = channels.take([0], axis=axis)
        if channels.shape[axis] > 1 and (channels == first).all():
            channels = first
    return channels


def reshaped(channels: Array, old: tuple[int, ...], new: tuple[int, ...]) -> Array | None:
    """Channels of a tensor whose shape changes while its values keep their order; None when that is not known.

    Args:
        channels: Of the old tensor.
        old: Its shape.
        new: Its new shape.
    """
    # Shapes are those of one sample: where they do not fit each other, nothing is known.
    if 0 in old or 0 in new or math.prod(old) != math.prod(new):
        return None
    pieces = []
    for before, after in _matching(old, new):
        if not varies(channels, before):
            pieces.append((before, (1,) * len(after)))
            continue
        if np.prod([old[axis] for axis in before], dtype=np.int64) > MOST_CHANNELS:
            return None
        pieces.append((before, tuple(new[axis] for axis in after)))
    # Where channels change along an axis, all that this axis is mixed with is spelled out.
    full = list(channels.shape)
    for old_axes, sizes in pieces:
        if any(size > 1 for size in sizes):
            for axis in old_axes:
                full[axis] = old[axis]
    if np.prod(full, dtype=np.int64) > MOST_CHANNELS:
        return None
    shape = tuple(size for _, sizes in pieces for size in sizes)
    return compact(np.broadcast_to(channels, full).reshape(shape))


def _matching(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[range, range]]:
    """Runs of axes of both shapes that hold equally many values, as short as they can be."""
    left = right = 0
    while left < len(old) or right < len(new):
        first, second = left, right
        before = old[left] if left < len(old) else 1
        after = new[right] if right < len(new) else 1
        left, right = min(left + 1, len(old)), min(right + 1, len(new))
        while before != after:
            if before < after:
                before *= old[left]
                left += 1
            else:
                after *= new[right]
                right += 1
        yield range(first, left), range(second, right)
