"""Mean and variance of each channel of a tensor, over several arrays of it."""

from collections.abc import Sequence

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["channel_moments"]


def channel_moments(arrays: Sequence[Array], axis: int) -> tuple[Array, Array]:
    """Mean and variance of each channel; every array counts the same.

    Args:
        arrays: At least one; all with the same channels.
        axis: Where the channels are.
    """
    parts = []
    for values in arrays:
        rows = np.moveaxis(values.astype(np.float64), axis, 0).reshape(values.shape[axis], -1)
        parts.append(np.stack([rows.mean(axis=1), np.square(rows).mean(axis=1)]))
    mean, squares = np.mean(parts, axis=0)
    return mean, np.maximum(squares - np.square(mean), 0.0)
