"""Where factors per channel can travel: a rule for each operation, and the map of a model that they make."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.draft import Draft
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute
from roundoff.graph.shapes import values
from roundoff.quantize.transforms.scaling_map import (
    MOST_CHANNELS,
    ChannelsFixed,
    Limit,
    ScaledLayer,
    ScalingMap,
    Walk,
    reshaped,
    rule,
    varies,
)
from roundoff.run.capture import Samples, complete_values, read_feed

_MASK = 1


@rule("Abs", "Identity", "LeakyRelu", "Neg", "PRelu", "Relu")
def _homogeneous(walk: Walk, node: Any) -> None:
    # The slope of PRelu multiplies, and is no value of the same kind.
    for at, name in walk.live(node):
        if at:
            walk.hold(name)
    walk.give(node, walk.channels(node.input[0]))


@rule("Dropout")
def _dropout(walk: Walk, node: Any) -> None:
    mask = node.output[_MASK] if len(node.output) > _MASK else ""
    if mask and walk.draft.readers(mask):
        raise ChannelsFixed
    walk.give(node, walk.channels(node.input[0]))


@rule("Clip")
def _clip(walk: Walk, node: Any) -> None:
    """Limits do not scale along. A limit of zero is none, one of infinity neither."""
    low, high = clip_limits(walk, node)
    channels = walk.channels(node.input[0])
    if {low, high} <= {0.0, -math.inf, math.inf}:
        walk.give(node, channels)
        return
    if not walk.through_limits:
        raise ChannelsFixed
    walk.add_limit(Limit(node.name, node.input[0], channels, low, high, walk.dtype(node.input[0])))
    walk.give(node, channels)


def clip_limits(walk: Walk, node: Any) -> tuple[float, float]:
    """The limits of a Clip.

    Raises:
        Minds: They are computed.
    """
    found = []
    for position, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        held = walk.constant_input(node, position)
        found.append(float(attribute(node, name, default)) if held is None else float(held.reshape(())))
    return found[0], found[1]


# Operations that bring tensors together: what is added must be scaled alike, of a product one factor may be.


@rule("Add", "Sub", "Sum", "Max", "Min", "Where")
def _alike(walk: Walk, node: Any) -> None:
    """Sums, and the larger or smaller of two: all operands have the factor of the result."""
    first = 1 if node.op_type == "Where" else 0
    operands = [(at, name) for at, name in walk.live(node) if at >= first]
    rank = len(walk.shape(node.output[0]))
    joined = np.zeros((1,) * rank, np.int64)
    for index, (_, name) in enumerate(operands):
        channels = _with_rank(walk.channels(name), rank)
        joined = channels if index == 0 else _joined(walk, joined, channels)
    live = {at for at, _ in operands}
    for at, name in enumerate(node.input):
        if at >= first and at not in live:
            # A limit such as the 6 of Relu6 is one number, and part of a pattern that chips know.
            if node.op_type in ("Max", "Min") and walk.draft.constants.value(name).any():
                raise ChannelsFixed
            _adjust_operand(walk, node, at, joined)
    walk.give(node, joined)


def _adjust_operand(walk: Walk, node: Any, position: int, channels: Array) -> None:
    name = node.input[position]
    if not walk.draft.constants.value(name).any():
        return
    size = math.prod(np.broadcast_shapes(walk.shape(name), channels.shape))
    if size > max(MOST_CHANNELS, math.prod(walk.shape(name))):
        raise ChannelsFixed
    walk.adjust(node, position, over=channels)


def _joined(walk: Walk, left: Array, right: Array) -> Array:
    if np.prod(np.broadcast_shapes(left.shape, right.shape)) > MOST_CHANNELS:
        raise ChannelsFixed
    return walk.ids.join(left, right)


@rule("Mul", "Div")
def _product(walk: Walk, node: Any) -> None:
    rank = len(walk.shape(node.output[0]))
    operands = list(walk.live(node))
    if not operands:
        return
    if len(operands) == 1:
        _scaled_by_constant(walk, node, operands[0][0], rank)
        return
    sides = [_with_rank(walk.channels(name), rank) for _, name in operands]
    # The factor of the result is that of one operand; the other must have none.
    kept = 0 if node.op_type == "Div" or walk.is_fixed(operands[1][1]) else 1
    other = operands[1 - kept][1]
    walk.hold(other)
    walk.give(node, walk.ids.roots(sides[kept]))


def _scaled_by_constant(walk: Walk, node: Any, position: int, rank: int) -> None:
    """A gain per channel takes up a factor, if what it multiplies cannot; otherwise factors pass through."""
    if node.op_type == "Div" and position == 1:
        raise ChannelsFixed
    source, gain = node.input[position], node.input[1 - position]
    shape = walk.shape(gain)
    is_gain = node.op_type == "Mul" and sum(size > 1 for size in shape) == 1 and max(shape) <= MOST_CHANNELS
    if not is_gain or not walk.is_fixed(source):
        walk.give(node, _with_rank(walk.channels(source), rank))
        return
    walk.hold(source)
    fresh = _with_rank(walk.ids.fresh(shape), rank)
    walk.adjust(node, 1 - position, over=fresh)
    walk.give(node, fresh)


def _with_rank(channels: Array, rank: int) -> Array:
    return channels.reshape((1,) * (rank - channels.ndim) + channels.shape)


@rule("MatMul")
def _matrix_product(walk: Walk, node: Any) -> None:
    """A product of two live matrices, as in attention: it sums over the tokens, channels of either stay apart."""
    if len(list(walk.live(node))) == 1:
        product_layer(walk, node)
        return
    left, right = node.input
    rank = len(walk.shape(node.output[0]))
    if min(len(walk.shape(left)), len(walk.shape(right))) < 2:
        raise ChannelsFixed
    # Only one of the two may be scaled, and not along the axis that is summed over.
    kept, other, summed = (right, left, -2) if walk.is_fixed(left) else (left, right, -1)
    walk.hold(other)
    channels = walk.channels(kept)
    if channels.shape[summed] > 1:
        raise ChannelsFixed
    walk.give(node, _with_rank(channels, rank))


# Layers with constant weights: they take up the factors of what they read, and begin channels of their own.

_SOURCE, _WEIGHT, _BIAS = 0, 1, 2


@rule("Conv")
def _conv(walk: Walk, node: Any) -> None:
    outputs, inputs = _weight_shape(walk, node)[:2]
    groups = attribute(node, "group", 1)
    own, other = np.arange(outputs)[:, None], np.arange(inputs)[None, :]
    _layer(walk, node, reads=own // (outputs // groups) * inputs + other, writes=own, axis=1)


@rule("ConvTranspose")
def _conv_transpose(walk: Walk, node: Any) -> None:
    inputs, outputs = _weight_shape(walk, node)[:2]
    groups = attribute(node, "group", 1)
    own, other = np.arange(inputs)[:, None], np.arange(outputs)[None, :]
    _layer(walk, node, reads=own, writes=own // (inputs // groups) * outputs + other, axis=1)


@rule("Gemm")
def _gemm(walk: Walk, node: Any) -> None:
    if attribute(node, "transA", 0):
        raise ChannelsFixed
    rows, columns = _weight_shape(walk, node)
    first, second = np.arange(rows)[:, None], np.arange(columns)[None, :]
    turned = attribute(node, "transB", 0)
    _layer(walk, node, reads=second if turned else first, writes=first if turned else second, axis=1)


def product_layer(walk: Walk, node: Any) -> None:
    """A MatMul with a constant matrix on the right.

    Raises:
        Minds: It is on the left, or no matrix.
    """
    shape = _weight_shape(walk, node)
    if len(shape) != 2:
        raise ChannelsFixed
    rows, columns = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
    _layer(walk, node, reads=rows, writes=columns, axis=len(walk.shape(node.input[_SOURCE])) - 1)


def _weight_shape(walk: Walk, node: Any) -> tuple[int, ...]:
    weight = node.input[_WEIGHT]
    if weight not in walk.draft.constants or node.input[_SOURCE] in walk.draft.constants:
        raise ChannelsFixed
    shape = walk.draft.constants.shape(weight)
    if 0 in shape:
        raise ChannelsFixed
    return shape


def _layer(walk: Walk, node: Any, *, reads: Array, writes: Array, axis: int) -> None:
    """Take up what comes, begin anew.

    Args:
        walk: The walk.
        node: The layer.
        reads: The input channel of each place of the weight's first two axes.
        writes: The output channel of each.
        axis: Where input and output have their channels.
    """
    source, weight = node.input[_SOURCE], node.input[_WEIGHT]
    channels, shape = walk.channels(source), walk.shape(source)
    if varies(channels, [other for other in range(channels.ndim) if other != axis]):
        raise ChannelsFixed
    inputs = np.broadcast_to(channels.ravel(), shape[axis])
    outputs = walk.ids.fresh((int(writes.max()) + 1,))
    matrix = np.broadcast_shapes(reads.shape, writes.shape)
    read, written = np.broadcast_to(inputs[reads], matrix), np.broadcast_to(outputs[writes], matrix)
    rest = (1,) * (len(walk.shape(weight)) - 2)
    walk.adjust(node, _WEIGHT, times=read.reshape(*matrix, *rest), over=written.reshape(*matrix, *rest))
    if node.op_type != "MatMul":
        walk.adjust(node, _BIAS, over=outputs)
    walk.add_layer(
        ScaledLayer(node.name, node.op_type, source, axis, node.output[0], weight, read, written, inputs)
    )
    rank = len(walk.shape(node.output[0]))
    spread = [1] * rank
    spread[axis] = -1
    walk.give(node, outputs.reshape(spread))


# Operations that only put values elsewhere; channels move along.


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
        raise ChannelsFixed
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
        raise ChannelsFixed
    times = [int(count) if size > 1 else 1 for count, size in zip(repeats, channels.shape, strict=True)]
    if np.prod(channels.shape) * np.prod(times) > MOST_CHANNELS:
        raise ChannelsFixed
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
        raise ChannelsFixed
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
            raise ChannelsFixed
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
        raise ChannelsFixed
    spread = []
    for part, size in zip(parts, sizes, strict=True):
        shape = [*common]
        shape[axis] = size
        spread.append(np.broadcast_to(part, shape))
    walk.give(node, np.concatenate(spread, axis=axis))


def _without(channels: Array, axis: int) -> tuple[int, ...]:
    return (*channels.shape[:axis], 1, *channels.shape[axis + 1 :])


# Normalizations: what they hand on can be scaled in their gain and offset; what they read only by few of them.

_GAIN, _OFFSET, _MEAN = 1, 2, 3
_CHANNEL_AXIS = 1
_GAIN_PER_CHANNEL = 21
"""Version of the operators from which GroupNormalization has a gain for each channel, not for each group."""


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _last_axes(walk: Walk, node: Any) -> None:
    """Gain and offset have the shape of the axes that are normalized together."""
    _fix_source(walk, node)
    shape = walk.shape(node.input[_GAIN])
    if sum(size > 1 for size in shape) != 1:
        raise ChannelsFixed
    _begin(walk, node, walk.ids.fresh(shape))


@rule("GroupNormalization", "InstanceNormalization")
def _second_axis(walk: Walk, node: Any) -> None:
    _fix_source(walk, node)
    if node.op_type == "GroupNormalization" and walk.draft.opset < _GAIN_PER_CHANNEL:
        raise ChannelsFixed
    shape = walk.shape(node.input[0])
    if len(shape) <= _CHANNEL_AXIS:
        raise ChannelsFixed
    _begin(walk, node, walk.ids.fresh((shape[_CHANNEL_AXIS], *(1,) * (len(shape) - 2))))


def _fix_source(walk: Walk, node: Any) -> None:
    """Factors of what is normalized would change its mean and variance."""
    walk.hold(node.input[0])


def _begin(walk: Walk, node: Any, channels: Array) -> None:
    if any(walk.draft.readers(name) for name in node.output[1:] if name):
        raise ChannelsFixed
    spread = channels.reshape(walk.shape(node.input[_GAIN])) if channels.size > 1 else channels
    walk.adjust(node, _GAIN, over=spread)
    walk.adjust(node, _OFFSET, over=spread)
    rank = len(walk.shape(node.output[0]))
    walk.give(node, channels.reshape((1,) * (rank - channels.ndim) + channels.shape))


@rule("BatchNormalization")
def _batch(walk: Walk, node: Any) -> None:
    """One factor and one offset for each channel: takes up what comes, and begins anew."""
    if attribute(node, "training_mode", 0) or not attribute(node, "spatial", 1):
        raise ChannelsFixed
    channels, shape = walk.channels(node.input[0]), walk.shape(node.input[0])
    # A vector is allowed, too: samples of one channel.
    if len(shape) <= _CHANNEL_AXIS or channels.size not in (1, channels.shape[_CHANNEL_AXIS]):
        raise ChannelsFixed
    inputs, outputs = channels.ravel(), walk.ids.fresh((shape[_CHANNEL_AXIS],))
    walk.adjust(node, _GAIN, times=inputs, over=outputs)
    walk.adjust(node, _OFFSET, over=outputs)
    walk.adjust(node, _MEAN, over=inputs)
    walk.give(node, outputs.reshape(1, -1, *(1,) * (len(shape) - 2)))


# Operations that mix neighbours of one channel, which then have the same factor.

_VALUE = 2


@rule("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
def _pool(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    _refuse_mixing(channels, range(2, channels.ndim))
    walk.give(node, channels)


@rule("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
def _reduce(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    axes = walk.axes(node)
    if not axes and attribute(node, "noop_with_empty_axes", 0):
        walk.give(node, channels)
        return
    over = sorted(axis % channels.ndim for axis in axes) if axes else list(range(channels.ndim))
    _refuse_mixing(channels, over)
    if not attribute(node, "keepdims", 1):
        channels = channels.squeeze(tuple(over))
    walk.give(node, channels)


@rule("Resize", "Upsample")
def _resize(walk: Walk, node: Any) -> None:
    """Interpolation is a sum; along axes that tell channels apart it would mix them."""
    channels = walk.channels(node.input[0])
    for at, name in walk.live(node):
        if at:
            walk.hold(name)
    if attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise ChannelsFixed
    _refuse_mixing(channels, _changed(walk, node))
    walk.give(node, channels)


@rule("Pad")
def _pad(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    if attribute(node, "mode", "constant") == "constant":
        value = walk.constant_input(node, _VALUE)
        if attribute(node, "value", 0.0) or (value is not None and value.any()):
            raise ChannelsFixed
    _refuse_mixing(channels, _changed(walk, node))
    walk.give(node, channels)


def _changed(walk: Walk, node: Any) -> list[int]:
    """Axes along which a result is longer or shorter."""
    old, new = walk.shape(node.input[0]), walk.shape(node.output[0])
    if len(old) != len(new):
        raise ChannelsFixed
    return np.flatnonzero(np.array(old) != np.array(new)).tolist()


def _refuse_mixing(channels: Array, axes: Sequence[int]) -> None:
    if varies(channels, axes):
        raise ChannelsFixed


def map_scaling(model: Model, samples: Samples, *, through_limits: bool = False) -> ScalingMap:
    """Find out where factors per channel can travel in a model.

    Args:
        model: A prepared float model.
        samples: The first of them settles shapes that the model leaves open.
        through_limits: Follow channels through Clip, too, and say what its limits are.

    Raises:
        BadInput: The sample does not fit the model.
        ModelFailed: The model cannot be run.
    """
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    known = complete_values(model, inferred, feed)
    fixed: frozenset[str] = frozenset()
    # Of the two factors of a product one must stay as it is; which one is only known at the end.
    for _ in range(2):
        found = Walk(Draft(model), known, fixed=fixed, through_limits=through_limits).run()
        fixed = frozenset(name for name, channels in found.channels.items() if not found.roots(channels).any())
    return found
