"""Means of channels over many samples."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["ChannelMean"]


class ChannelMean:
    """The mean of each channel of a tensor; elements that are not finite do not count.

    Attributes:
        rank: Axes of the tensor.

    Args:
        axis: Where its channels are.
    """

    rank: int

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._sum, self._count = np.zeros(1), np.zeros(1)
        self.rank = 0

    def add(self, values: Array) -> None:
        """Take in the values of one sample."""
        rows = np.moveaxis(values, self._axis, 0).reshape(values.shape[self._axis], -1)
        fine = np.isfinite(rows)
        self._sum = self._sum + np.where(fine, rows, 0).sum(axis=1, dtype=np.float64)
        self._count = self._count + fine.sum(axis=1)
        self.rank = values.ndim

    @property
    def mean(self) -> Array:
        """The means, float64 [C]; 0 where nothing counts."""
        return np.asarray(self._sum / np.maximum(self._count, 1))
