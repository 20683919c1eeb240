"""Where a factor per channel can travel in a network: which constants take it up, and which channels go together.

A channel divided by a positive factor behind one layer and multiplied again inside the next leaves the network's
function as it was. Between the two stand operations that do not mind (Relu, pooling, reshaping, the sum over
tokens of attention, ...). One walk over the graph follows the channels of every tensor; what minds fixes them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.table import Table
from roundoff.core.tensors import Array
from roundoff.graph.draft import Draft
from roundoff.graph.nodes import STANDARD_DOMAINS, attribute, input_at, reads, subgraphs
from roundoff.graph.shapes import Value
from roundoff.messages.message import Message, message

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

    def table(self) -> Array:
        """The number that stands for each channel, int64 of all that there are."""
        found = np.array(self._parents, dtype=np.int64)
        while (found[found] != found).any():
            found = found[found]
        return found

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
class ScaledLayer:
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
        table: The number that stands for each channel, int64 of all that there are.
        channels: The channels of every tensor that has some, such that they can be broadcast to it.
        adjustments: Constants that take up factors; all of them must.
        layers: Layers among them, in execution order.
        limits: What holds for observed values only.
        blocked: By tensor, the operation that fixes its channels.
    """

    table: Array
    channels: Mapping[str, Array]
    adjustments: tuple[Adjustment, ...]
    layers: tuple[ScaledLayer, ...]
    limits: tuple[Limit, ...]
    blocked: Mapping[str, Message]

    @property
    def size(self) -> int:
        """Number of channels, joined or not."""
        return int(self.table.size)

    def roots(self, channels: Array) -> Array:
        """The numbers that stand for channels; 0 for those that cannot be scaled."""
        return np.asarray(self.table[channels])

    def per_channel(self, channels: Array, values: Array) -> Array:
        """The largest of some values for each number that stands for channels, float64 [size].

        Args:
            channels: Channels.
            values: A value for each, none negative.
        """
        largest = np.zeros(self.size)
        np.maximum.at(largest, self.roots(channels).ravel(), values.ravel())
        return largest


# Channels through operations that move values: what stands where afterwards.
#
# The channels of a tensor are an array of numbers that can be broadcast to its shape: of size 1 along axes that do
# not tell channels apart.

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


class ChannelsFixed(Exception):
    """An operation, as it is used here, cannot be fed scaled channels."""


Rule = Callable[["Walk", Any], None]
_RULES: Table[Rule] = Table("rule for")
# What exporters put where it is not defined.
_ANY_DOMAIN = ("SimplifiedLayerNormalization",)
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Register what operations do to channels; one that raises `ChannelsFixed` fixes them all."""
    return _RULES.register(*op_types)


class Walk:
    """Follows channels from node to node.

    Attributes:
        draft: The model.
        ids: Which channels stand for the same.
        through_limits: Whether channels are followed through Clip, to be scaled as far as no limit is reached.

    Args:
        draft: The model.
        values: Types and shapes of its tensors.
        fixed: Tensors that an earlier walk found to be fixed; where there is a choice, the others stay free.
        through_limits: See above.
    """

    def __init__(
        self, draft: Draft, values: Sequence[Value], *, fixed: frozenset[str], through_limits: bool
    ) -> None:
        self.draft, self.through_limits = draft, through_limits
        self.ids = ChannelIds()
        self._values = {value.name: value for value in values}
        self._fixed_before = fixed
        self._channels: dict[str, Array] = {}
        self._adjustments: list[Adjustment] = []
        self._layers: list[ScaledLayer] = []
        self._limits: list[Limit] = []
        self._blocked: dict[str, Message] = {}

    def run(self) -> ScalingMap:
        """Follow all channels."""
        for node in self.draft.nodes.values():
            standard = node.domain in STANDARD_DOMAINS or node.op_type in _ANY_DOMAIN
            known = _RULES.get(node.op_type) if standard else None
            marks = len(self._adjustments), len(self._layers), len(self._limits)
            if self._is_plumbing(node):
                continue
            try:
                if known is None or any(subgraphs(node)):
                    raise ChannelsFixed
                known(self, node)
            except ChannelsFixed:
                del self._adjustments[marks[0] :], self._layers[marks[1] :], self._limits[marks[2] :]
                self._block(node)
        for name in self.draft.outputs:
            if name in self._channels:
                self._fix(name, message("quantize.held_by_output"))
        return ScalingMap(
            self.ids.table(),
            self._channels,
            tuple(self._adjustments),
            tuple(self._layers),
            tuple(self._limits),
            self._blocked,
        )

    def _is_plumbing(self, node: Any) -> bool:
        """Whether a node works on shapes and indices: no channels come in, and no result could have any."""
        results = [self._values.get(name) for name in node.output if name]
        known = all(value is not None and value.element is not None for value in results)
        integers = known and not any(self.is_float(name) for name in node.output)
        return integers and not any(name in self._channels for name in reads(node))

    def _block(self, node: Any) -> None:
        for name in reads(node):
            if name in self._channels:
                self._fix(name, message("quantize.held_by_reader", op=node.op_type, node=repr(node.name)))
        for name in node.output:
            self._channels.pop(name, None)

    def _fix(self, tensor: str, why: Message) -> None:
        if not self.ids.is_fixed(self._channels[tensor]):
            self._blocked.setdefault(tensor, why)
            self.ids.fix(self._channels[tensor])

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of a tensor, constant or not.

        Raises:
            Minds: It is not known.
        """
        if tensor in self.draft.constants:
            return self.draft.constants.shape(tensor)
        value = self._values.get(tensor)
        if value is None or value.shape is None:
            raise ChannelsFixed
        return value.shape

    def dtype(self, tensor: str) -> str:
        """Type of a computed tensor.

        Raises:
            Minds: It is not known.
        """
        value = self._values.get(tensor)
        if value is None or value.element is None:
            raise ChannelsFixed
        return value.element.dtype

    def channels(self, tensor: str) -> Array:
        """Channels of a tensor, an array with as many axes; fixed ones where it has none."""
        found = self._channels.get(tensor)
        return np.zeros((1,) * len(self.shape(tensor)), np.int64) if found is None else self.ids.roots(found)

    def is_fixed(self, tensor: str) -> bool:
        """Whether no channel of a tensor can be scaled, as far as is known."""
        found = self._channels.get(tensor)
        return tensor in self._fixed_before or found is None or self.ids.is_fixed(found)

    def hold(self, tensor: str) -> None:
        """Say that no channel of a tensor can be scaled; to be said wherever a rule relies on it."""
        if tensor in self._channels:
            self._fix(tensor, message("quantize.held_by_product"))

    def is_float(self, tensor: str) -> bool:
        """Whether a computed tensor is known to hold float numbers; others have no channels."""
        value = self._values.get(tensor)
        return value is not None and value.element is not None and value.element.dtype in _FLOATS

    def give(self, node: Any, channels: Array, *, output: int = 0) -> None:
        """Say which channels a result of a node has."""
        if self.is_float(node.output[output]) and channels.any():
            self._channels[node.output[output]] = compact(channels)

    def live(self, node: Any) -> Iterator[tuple[int, str]]:
        """Inputs of a node that are not constant, with their positions."""
        return ((at, name) for at, name in enumerate(node.input) if name and name not in self.draft.constants)

    def constant_input(self, node: Any, position: int) -> Array | None:
        """Values of a constant input; None when there is no such input.

        Raises:
            Minds: It is computed.
        """
        name = input_at(node, position)
        if not name:
            return None
        if name not in self.draft.constants:
            raise ChannelsFixed
        return self.draft.constants.value(name)

    def axes(self, node: Any, *, name: str = "axes", position: int = 1) -> list[int] | None:
        """Axes that a node names by an attribute or by a constant input; None when it names none.

        Raises:
            Minds: They are computed.
        """
        given = attribute(node, name)
        if given is None:
            held = self.constant_input(node, position)
            given = None if held is None else held.ravel().tolist()
        return None if given is None else [int(axis) for axis in given]

    def adjust(self, node: Any, position: int, *, times: Array | None = None, over: Array | None = None) -> None:
        """Say that a constant takes up factors; one that is not there takes up none.

        Raises:
            Minds: It is computed.
        """
        if len(node.input) <= position or not node.input[position]:
            return
        if node.input[position] not in self.draft.constants:
            raise ChannelsFixed
        self._adjustments.append(Adjustment(node.name, position, times, over))

    def add_layer(self, layer: ScaledLayer) -> None:
        """Say that a node is a layer."""
        self._layers.append(layer)

    def add_limit(self, limit: Limit) -> None:
        """Say that a node limits values."""
        self._limits.append(limit)
