"""Where a factor per channel can travel in a network: which constants take it up, and which channels go together.

A channel divided by a positive factor behind one layer and multiplied again inside the next leaves the network's
function as it was. Between the two stand operations that do not mind (Relu, pooling, reshaping, the sum over
tokens of attention, ...). One walk over the graph follows the channels of every tensor; what minds fixes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = [
    "FIXED",
    "Adjustment",
    "ChannelIds",
    "Layer",
    "Limit",
    "ScalingMap",
]


# Which channels of which tensors must be scaled alike: every channel is a number, equal channels are joined.

FIXED = 0
"""The channel that nothing can scale; whatever is joined with it cannot be scaled either."""


class ChannelIds:
    """Numbers of channels, some of which stand for the same (a union-find)."""

    def __init__(self) -> None:
        self._parents = [FIXED]

    def __len__(self) -> int:
        return len(self._parents)

    def fresh(self, shape: tuple[int, ...]) -> Array:
        """New channels, int64 of this shape."""
        first = len(self._parents)
        count = int(np.prod(shape, dtype=np.int64))
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count, dtype=np.int64).reshape(shape)

    def root(self, channel: int) -> int:
        """The number that stands for a channel: the smallest of those it is joined with."""
        parents = self._parents
        while parents[channel] != channel:
            parents[channel] = parents[parents[channel]]
            channel = parents[channel]
        return channel

    def join(self, left: Array, right: Array) -> Array:
        """Say that channels are the same, element by element; gives their numbers, of the shape of both."""
        left, right = np.broadcast_arrays(left, right)
        for pair in {*zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)}:
            first, second = sorted(map(self.root, pair))
            self._parents[second] = first
        return self.roots(left)

    def fix(self, channels: Array) -> None:
        """Say that channels cannot be scaled."""
        self.join(channels, np.zeros((), np.int64))

    def roots(self, channels: Array) -> Array:
        """The numbers that stand for channels."""
        unique, inverse = np.unique(channels, return_inverse=True)
        found = np.array([self.root(channel) for channel in unique.tolist()], dtype=np.int64)
        return found[inverse].reshape(channels.shape)

    def is_fixed(self, channels: Array) -> bool:
        """Whether none of these can be scaled."""
        return not self.roots(channels).any()


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """A constant that takes up factors.

    Attributes:
        node: Who reads it.
        position: As which input.
        times: Channels by whose factors it is multiplied, such that it can be broadcast with it; None for none.
        over: Channels by whose factors it is divided; None for none.
    """

    node: str
    position: int
    times: Array | None = None
    over: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A layer whose weight takes up the factors of what it reads and of what it writes.

    Attributes:
        node: Its name.
        op_type: Its operation.
        source: The tensor it reads.
        axis: The axis of that tensor that holds channels.
        result: The tensor it writes.
        weight: Its weight.
        reads: Channels that the first two axes of the weight read, int64 of their shape.
        writes: Channels that they write.
        inputs: Channels of the tensor it reads, int64 [K].
    """

    node: str
    op_type: str
    source: str
    axis: int
    result: str
    weight: str
    reads: Array
    writes: Array
    inputs: Array


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A Clip whose limits hold for scaled channels only as long as no value reaches them.

    Attributes:
        node: Its name.
        source: The tensor it limits.
        channels: Channels of that tensor.
        low: Smallest value.
        high: Largest value.
        dtype: Type of the tensor.
    """

    node: str
    source: str
    channels: Array
    low: float
    high: float
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, eq=False)
class ScalingMap:
    """What one walk over a model found.

    Attributes:
        ids: Which channels stand for the same.
        channels: The channels of every tensor that has some, such that they can be broadcast to it.
        adjustments: Constants that take up factors; all of them must.
        layers: Layers among them, in execution order.
        limits: What holds for observed values only.
        blocked: By tensor, the operation that fixes its channels.
    """

    ids: ChannelIds
    channels: Mapping[str, Array]
    adjustments: tuple[Adjustment, ...]
    layers: tuple[Layer, ...]
    limits: tuple[Limit, ...]
    blocked: Mapping[str, str]

    @property
    def size(self) -> int:
        """Number of channels, joined or not."""
        return len(self.ids)

    def roots(self, channels: Array) -> Array:
        """The numbers that stand for channels; 0 for those that cannot be scaled."""
        return self.ids.roots(channels)

    def per_channel(self, channels: Array, values: Array) -> Array:
        """The largest of some values for each number that stands for channels, float64 [size].

        Args:
            channels: Channels.
            values: A value for each, none negative.
        """
        largest = np.zeros(self.size)
        np.maximum.at(largest, self.roots(channels).ravel(), values.ravel())
        return largest
