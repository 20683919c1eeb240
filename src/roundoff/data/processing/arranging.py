"""Layouts, cutting and padding of arrays with a batch axis."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput

__all__ = ["Layout", "padded", "sliced", "with_layout"]

Layout = Literal["NCHW", "NHWC"]


def with_layout(values: Array, had: Layout, wanted: Layout) -> Array:
    """Move the channels of an array of rank 4 to where they are wanted."""
    if had == wanted:
        return values
    return np.moveaxis(values, 1, 3) if wanted == "NHWC" else np.moveaxis(values, 3, 1)


def sliced(values: Array, cuts: Sequence[int]) -> Array:
    """Cut from the ends of each axis.

    Args:
        values: Any array.
        cuts: How much to cut, begin and end of each axis one after the other: two numbers per axis, or none.

    Raises:
        BadInput: There are more or fewer numbers, a negative one, or nothing would be left.
    """
    pairs = _pairs(values, cuts, what="slicing")
    for axis, (begin, end) in enumerate(pairs):
        if begin + end >= values.shape[axis]:
            raise BadInput(
                f"The slicing takes {begin} and {end} from axis {axis}, which has {values.shape[axis]} values.",
                fix="cut less than the axis holds",
            )
    return values[tuple(slice(begin, size - end) for (begin, end), size in zip(pairs, values.shape, strict=False))]


def padded(values: Array, pads: Sequence[int], *, value: float = 0.0) -> Array:
    """Add a constant border.

    Args:
        values: Any array.
        pads: How much to add, begin and end of each axis one after the other: two numbers per axis, or none.
        value: What to add.

    Raises:
        BadInput: There are more or fewer numbers, or a negative one.
    """
    pairs = _pairs(values, pads, what="padding")
    return np.pad(values, pairs, constant_values=value) if any(map(any, pairs)) else values


def _pairs(values: Array, numbers: Sequence[int], *, what: str) -> list[tuple[int, int]]:
    if numbers and (len(numbers) != 2 * values.ndim or min(numbers) < 0):
        raise BadInput(
            f"The {what} {list(numbers)} does not fit an array of {list(values.shape)}.",
            fix=f"give {2 * values.ndim} numbers from 0 on: begin and end of each axis",
        )
    return list(zip(numbers[::2], numbers[1::2], strict=True)) or [(0, 0)] * values.ndim
