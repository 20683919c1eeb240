"""Watching a tensor over all samples."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.quantize.calibration.histogram import (
    TENSOR_GRID,
    ChannelCounter,
    FloatHistogram,
    TensorCounter,
    channel_grid,
    histogram_of,
)

# What is remembered of one tensor: enough for every calibration method, however many samples there are.
#
# Few elements are kept as they are. More are counted in a histogram whose size does not grow. Both depend on the
# elements alone, not on the order or the batches in which they came.

MOST_ELEMENTS = 1 << 16
"""A tensor with at most so many elements in all samples together is remembered element by element."""


class ChannelMismatch(ValueError):
    """Two arrays, or two observations, do not have the same channels."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """All that is known of the elements of a tensor; of several tensors once they are merged.

    Elements that are NaN or infinite are counted and left out of the rest.

    Attributes:
        axis: The axis along which channels were told apart, counted from the first; None when they were not.
        rank: Number of axes; 0 where there are no channels.
        count: All elements.
        nans: NaN elements.
        infs: Infinite elements.
        low: Smallest value of each channel, float64 [rows]; +inf where there is none. One row without channels.
        high: Largest value; -inf where there is none.
        elements: All elements in order, float32 [rows, n], NaN at the end for those that do not count; None when
            they are too many, or only ranges were observed.
        histogram: Of the elements when they are too many; None otherwise.
    """

    axis: int | None
    rank: int
    count: int
    nans: int
    infs: int
    low: Array
    high: Array
    elements: Array | None = None
    histogram: FloatHistogram | None = None

    @property
    def rows(self) -> int:
        """Channels told apart; 1 when none are."""
        return int(self.low.size)

    @property
    def finite(self) -> int:
        """Elements that count."""
        return self.count - self.nans - self.infs

    @property
    def has_distribution(self) -> bool:
        """Whether more than the range is known."""
        return self.elements is not None or self.histogram is not None

    def merge(self, other: "Observation") -> "Observation":
        """What is known of the elements of both.

        Raises:
            ChannelMismatch: They do not have the same channels.
        """
        if (self.axis, self.rank, self.rows) != (other.axis, other.rank, other.rows):
            raise ChannelMismatch(
                english("{channels} and {channels2}", channels=_channels(self), channels2=_channels(other))
            )
        elements, histogram = _merged_elements(self, other), None
        if elements is None:
            mine, theirs = _counted(self), _counted(other)
            histogram = mine.merge(theirs) if mine is not None and theirs is not None else None
        return Observation(
            axis=self.axis,
            rank=self.rank,
            count=self.count + other.count,
            nans=self.nans + other.nans,
            infs=self.infs + other.infs,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            elements=elements,
            histogram=histogram,
        )

    def without_channels(self) -> "Observation":
        """The same with all channels together; its histogram stays as coarse as those of the channels were."""
        if self.axis is None:
            return self
        return replace(
            self,
            axis=None,
            rank=0,
            low=self.low.min(initial=math.inf, keepdims=True),
            high=self.high.max(initial=-math.inf, keepdims=True),
            elements=None if self.elements is None else np.sort(self.elements.reshape(1, -1)),
            histogram=None if self.histogram is None else self.histogram.collapsed(),
        )


def merge_observations(observations: list[Observation]) -> Observation:
    """What is known of the elements of several tensors that share one scale; channels are told apart if all do.

    Raises:
        ChannelMismatch: They have different channels.
    """
    if any(each.axis is None for each in observations):
        observations = [each.without_channels() for each in observations]
    merged = observations[0]
    for each in observations[1:]:
        merged = merged.merge(each)
    return merged


def _channels(observation: Observation) -> str:
    return (
        english("no channels")
        if observation.axis is None
        else english("{rows} channels on axis {axis}", rows=observation.rows, axis=observation.axis)
    )


def _merged_elements(left: Observation, right: Observation) -> Array | None:
    if left.elements is None or right.elements is None or left.count + right.count > MOST_ELEMENTS:
        return None
    return np.sort(np.concatenate([left.elements, right.elements], axis=1), axis=1)


def _counted(observation: Observation) -> FloatHistogram | None:
    """Its histogram, made of its elements where they are still known."""
    if observation.elements is None:
        return observation.histogram
    grid = TENSOR_GRID if observation.axis is None else channel_grid(observation.rows)
    return histogram_of(observation.elements, grid)


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
            raise ChannelMismatch(
                english("there is no axis {axis} in a shape of {ndim} axes", axis=axis, ndim=array.ndim)
            )
        axis %= array.ndim
        rows = array.shape[axis]
        if self._rank == 0:
            self._axis, self._rank = axis, array.ndim
            self._low, self._high = np.full(rows, math.inf), np.full(rows, -math.inf)
        if (axis, array.ndim, rows) != (self._axis, self._rank, self._low.size):
            raise ChannelMismatch(
                english("{size} channels in one sample and {rows} in another", size=self._low.size, rows=rows)
            )
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
