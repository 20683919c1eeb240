"""Recording the channels of one tensor."""

import math

import numpy as np

from roundoff.analysis.spread import resolution, spreads
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.observation import Observation
from roundoff.quantize.calibration.observer import Observer

__all__ = ["QUANTILES", "ChannelRecord"]

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


class ChannelRecord:
    """All that is remembered of the channels of a tensor; its size does not depend on the number of samples.

    Args:
        axis: Along which channels are told apart.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._observer = Observer(axis)
        self._sums: Array | None = None
        self._counts: Array | None = None

    def add(self, values: Array) -> None:
        """See values of any real type.

        Raises:
            ChannelMismatch: They do not have the same channels as those before.
        """
        self._observer.add(values)
        axis = self._axis % values.ndim
        shape = math.prod(values.shape[:axis]), values.shape[axis], math.prod(values.shape[axis + 1 :])
        rows = values.reshape(shape)
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.add.reduce(rows, axis=(0, 2), dtype=np.float64)
        counts = np.full(shape[1], shape[0] * shape[2], np.int64)
        for row in np.flatnonzero(~np.isfinite(sums)):
            finite = rows[:, row][np.isfinite(rows[:, row])]
            sums[row], counts[row] = np.add.reduce(finite, dtype=np.float64), finite.size
        self._sums = sums if self._sums is None else self._sums + sums
        self._counts = counts if self._counts is None else self._counts + counts

    def observation(self) -> Observation:
        """What is known of the values."""
        return self._observer.observation()

    def means(self) -> Array:
        """Mean of each channel; 0 where there are no finite values."""
        if self._sums is None or self._counts is None:
            return np.zeros(0)
        return np.asarray(self._sums / np.maximum(self._counts, 1))

    def quantiles(self) -> Array:
        """Quantiles of each channel, of shape [channels, quantiles]; 0 where there are no finite values."""
        shares = np.array(QUANTILES)
        return np.array([each.quantiles(shares) for each in spreads(self.observation())])

    @property
    def resolution(self) -> float:
        """Width of the bins quantiles are read from, as a share of the value; 0 when all values are known."""
        return resolution(self.observation())
