"""Operations that only put values elsewhere; channels move along."""

from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.preparation.changes import attribute
from roundoff.quantize.transforms.layouts import MOST_CHANNELS, reshaped, varies
from roundoff.quantize.transforms.walk import Minds, Walk, rule

__all__ = ()


@rule("Shape", "Size")
def _shape(walk: Walk, node: Any) -> None:
    """What a tensor's shape is does not depend on its values."""


@rule("Transpose")
def _transpose(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    order = attribute(node, "perm", list(reversed(range(channels.ndim))))
    walk.give(node, channels.transpose(order))


@rule("Flatten", "Reshape", "Squeeze", "Unsqueeze")
def _reshape(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    found = reshaped(channels, walk.shape(node.input[0]), walk.shape(node.output[0]))
    if found is None:
        raise Minds
    walk.give(node, found)


@rule("Expand")
def _expand(walk: Walk, node: Any) -> None:
    channels, rank = walk.channels(node.input[0]), len(walk.shape(node.output[0]))
    walk.give(node, channels.reshape((1,) * (rank - channels.ndim) + channels.shape))


@rule("Tile")
def _tile(walk: Walk, node: Any) -> None:
    channels, repeats = walk.channels(node.input[0]), walk.constant_input(node, 1)
    # Before version 6 of the operators it was one number, and an axis.
    if repeats is None or repeats.shape != (channels.ndim,):
        raise Minds
    times = [int(count) if size > 1 else 1 for count, size in zip(repeats, channels.shape, strict=True)]
    if np.prod(channels.shape) * np.prod(times) > MOST_CHANNELS:
        raise Minds
    walk.give(node, np.tile(channels, times))


@rule("Split")
def _split(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    axis, start = attribute(node, "axis", 0) % channels.ndim, 0
    for index, name in enumerate(node.output):
        size = walk.shape(name)[axis]
        part = channels if channels.shape[axis] == 1 else channels.take(range(start, start + size), axis=axis)
        walk.give(node, part, output=index)
        start += size


@rule("Slice")
def _slice(walk: Walk, node: Any) -> None:
    channels, shape = walk.channels(node.input[0]), walk.shape(node.input[0])
    starts, ends = (walk.axes(node, name=name, position=at) for at, name in ((1, "starts"), (2, "ends")))
    axes = walk.axes(node, position=3)
    steps = walk.axes(node, name="steps", position=4)
    if starts is None or ends is None:
        raise Minds
    for index, axis in enumerate(range(len(starts)) if axes is None else axes):
        step = 1 if steps is None else steps[index]
        if channels.shape[axis] > 1:
            places = _places(starts[index], ends[index], step, size=shape[axis])
            channels = channels.take(places, axis=axis)
    walk.give(node, channels)


def _places(start: int, end: int, step: int, *, size: int) -> Array:
    """What a slice takes of an axis; ends far outside mean its ends, as in ONNX."""
    first = max(start + size, 0) if start < 0 else min(start, size)
    if step > 0:
        last = max(end + size, 0) if end < 0 else min(end, size)
    else:
        first = min(first, size - 1)
        last = max(end + size, -1) if end < 0 else min(end, size)
    return np.arange(first, last, step)


@rule("Gather")
def _gather(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    axis = attribute(node, "axis", 0) % channels.ndim
    if varies(channels, [axis]):
        indices = walk.constant_input(node, 1)
        if indices is None:
            raise Minds
        walk.give(node, channels.take(indices.astype(np.int64), axis=axis))
        return
    # An index that is a single number takes its axis away; of a vector nothing is left but a number.
    width = len(walk.shape(node.input[1]))
    walk.give(node, channels.reshape((*channels.shape[:axis], *(1,) * width, *channels.shape[axis + 1 :])))


@rule("Concat")
def _concat(walk: Walk, node: Any) -> None:
    """Each part keeps its channels; a constant part has fixed ones."""
    parts = [walk.channels(name) for name in node.input]
    axis = attribute(node, "axis", 0) % parts[0].ndim
    sizes = [walk.shape(name)[axis] for name in node.input]
    common = list(np.broadcast_shapes(*(_without(part, axis) for part in parts)))
    if np.prod(common) * sum(sizes) > MOST_CHANNELS:
        raise Minds
    spread = []
    for part, size in zip(parts, sizes, strict=True):
        shape = [*common]
        shape[axis] = size
        spread.append(np.broadcast_to(part, shape))
    walk.give(node, np.concatenate(spread, axis=axis))


def _without(channels: Array, axis: int) -> tuple[int, ...]:
    return (*channels.shape[:axis], 1, *channels.shape[axis + 1 :])
