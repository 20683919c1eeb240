"""Where a factor per channel can travel in a network: which constants take it up, and which channels go together.

A channel divided by a positive factor behind one layer and multiplied again inside the next leaves the network's
function as it was. Between the two stand operations that do not mind (Relu, pooling, reshaping, the sum over
tokens of attention, ...). One walk over the graph follows the channels of every tensor; what minds fixes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.transforms.channel_ids import ChannelIds

__all__ = ["Adjustment", "Layer", "Limit", "ScalingMap"]


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
