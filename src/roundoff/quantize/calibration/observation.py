"""What is remembered of one tensor: enough for every calibration method, however many samples there are.

Few elements are kept as they are. More are counted in a histogram whose size does not grow. Both depend on the
elements alone, not on the order or the batches in which they came.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.counting import histogram_of
from roundoff.quantize.calibration.float_grid import TENSOR_GRID, FloatHistogram, channel_grid

__all__ = ["MOST_ELEMENTS", "ChannelMismatch", "Observation", "merge_observations"]

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
            raise ChannelMismatch(f"{_channels(self)} and {_channels(other)}")
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
    return "no channels" if observation.axis is None else f"{observation.rows} channels on axis {observation.axis}"


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
