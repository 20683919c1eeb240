"""Watching a tensor over all samples."""

import math
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.counting import ChannelCounter, TensorCounter
from roundoff.quantize.calibration.float_grid import FloatHistogram, channel_grid
from roundoff.quantize.calibration.observation import MOST_ELEMENTS, ChannelMismatch, Observation

__all__ = ["Observer"]

_LARGEST = float(np.finfo(np.float32).max)
# Element types that float32 holds without loss.
_HELD = frozenset(map(np.dtype, ("float16", "float32", "int8", "uint8", "int16", "uint16", "bool")))


class _Counter(Protocol):
    def add(self, values: Array) -> None: ...

    def histogram(self) -> FloatHistogram: ...


class Observer:
    """Remembers what a calibration needs of the values it is shown.

    Args:
        axis: Axis along which channels are told apart; None to take the tensor as a whole.
        ranges_only: Remember smallest and largest values, nothing else.
    """

    def __init__(self, axis: int | None = None, *, ranges_only: bool = False) -> None:
        self._wanted, self._ranges_only = axis, ranges_only
        self._axis: int | None = axis
        self._rank = 0
        rows = 1 if axis is None else 0
        self._low, self._high = np.full(rows, math.inf), np.full(rows, -math.inf)
        self._count = self._nans = self._infs = 0
        self._damaged = False
        self._kept: list[Array] = []
        self._counter: _Counter | None = None

    def add(self, array: Array) -> None:
        """See the values of one sample.

        Args:
            array: Real numbers or truth values of any shape.

        Raises:
            ChannelMismatch: It has not the axis asked for, or another number of channels than before.
        """
        values = np.asarray(array, order="C")
        if values.dtype != np.float32:
            values = values.astype(np.float32 if values.dtype in _HELD else np.float64)
        values = values.reshape(-1) if self._wanted is None else self._in_rows(values)
        self._see_range(values)
        self._count += values.size
        if self._ranges_only:
            return
        values = _single_precision(values)
        if self._counter is None and self._count <= MOST_ELEMENTS:
            self._kept.append(_detached(values))
        else:
            self._started_counter().add(values)

    @property
    def damaged(self) -> bool:
        """Whether elements of the last sample were NaN or infinite."""
        return self._damaged

    def observation(self) -> Observation:
        """What is known so far."""
        return Observation(
            axis=self._axis,
            rank=self._rank,
            count=self._count,
            nans=self._nans,
            infs=self._infs,
            low=self._low.copy(),
            high=self._high.copy(),
            elements=self._elements(),
            histogram=None if self._counter is None else self._counter.histogram(),
        )

    def limited(self, low: float, high: float) -> Observation:
        """What would be known of a tensor with the same finite elements, but for limits to them.

        Only for tensors that are taken as a whole.
        """
        finite = self._count - self._nans - self._infs
        elements = self._elements()
        if elements is not None:
            limits = np.clip([low, high], -_LARGEST, _LARGEST).astype(np.float32)
            # A limit may be a zero of either sign; elements may not.
            elements = np.clip(elements[:, :finite], *limits) + np.float32(0)
        return Observation(
            axis=None,
            rank=0,
            count=finite,
            nans=0,
            infs=0,
            low=np.clip(self._low, low, high) if finite else self._low.copy(),
            high=np.clip(self._high, low, high) if finite else self._high.copy(),
            elements=elements,
            histogram=self._counter.histogram(low, high) if isinstance(self._counter, TensorCounter) else None,
        )

    def _elements(self) -> Array | None:
        """All elements in order, as long as they are kept."""
        if self._ranges_only or self._counter is not None:
            return None
        return np.sort(np.concatenate([np.empty((self._low.size, 0), np.float32), *self._kept], axis=1))

    def _in_rows(self, array: Array) -> Array:
        """The values as [outer, rows, inner]."""
        axis = self._wanted or 0
        if not -array.ndim <= axis < array.ndim:
            raise ChannelMismatch(f"there is no axis {axis} in a shape of {array.ndim} axes")
        axis %= array.ndim
        rows = array.shape[axis]
        if self._rank == 0:
            self._axis, self._rank = axis, array.ndim
            self._low, self._high = np.full(rows, math.inf), np.full(rows, -math.inf)
        if (axis, array.ndim, rows) != (self._axis, self._rank, self._low.size):
            raise ChannelMismatch(f"{self._low.size} channels in one sample and {rows} in another")
        return array.reshape(math.prod(array.shape[:axis]), rows, math.prod(array.shape[axis + 1 :]))

    def _see_range(self, values: Array) -> None:
        self._damaged = False
        if values.size == 0:
            return
        low, high = _range(values)
        if not (_all_finite(low) and _all_finite(high)):
            self._damaged = True
            finite = np.isfinite(values)
            nans = int(np.count_nonzero(np.isnan(values)))
            self._nans += nans
            self._infs += values.size - int(np.count_nonzero(finite)) - nans
            low, high = _range(np.where(finite, values, np.inf))[0], _range(np.where(finite, values, -np.inf))[1]
        np.minimum(self._low, low, out=self._low)
        np.maximum(self._high, high, out=self._high)

    def _started_counter(self) -> _Counter:
        """The counter, fed with what was kept so far once that becomes too much."""
        if self._counter is None:
            rows = self._low.size
            whole = self._wanted is None
            self._counter = TensorCounter() if whole else ChannelCounter(channel_grid(rows), rows)
            for kept in self._kept:
                self._counter.add(kept.reshape(-1) if whole else kept[None])
            self._kept.clear()
        return self._counter


def _range(values: Array) -> tuple[Array | float, Array | float]:
    """Smallest and largest value, of each row where there are rows; NaN when one of them is."""
    if values.ndim == 1:
        return float(values.min()), float(values.max())
    if values.shape[2] == 1:
        return values[:, :, 0].min(axis=0), values[:, :, 0].max(axis=0)
    return values.min(axis=2).min(axis=0), values.max(axis=2).max(axis=0)


def _all_finite(ends: Array | float) -> bool:
    return math.isfinite(ends) if isinstance(ends, float) else bool(np.isfinite(ends).all())


def _single_precision(values: Array) -> Array:
    """The same as float32; what is too large for it becomes the largest."""
    if values.dtype == np.float32:
        return values
    return np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values).astype(np.float32)


def _detached(values: Array) -> Array:
    """A copy of shape [rows, n]: what the model returned must not be held for the sake of a few elements."""
    outer, rows, inner = values.shape if values.ndim > 1 else (1, 1, values.size)
    moved = values.reshape(outer, rows, inner).transpose(1, 0, 2).reshape(rows, outer * inner)
    # Zeros of both signs count as the same, and infinite elements not at all.
    return np.where(np.isfinite(moved), moved + np.float32(0), np.float32(np.nan))
