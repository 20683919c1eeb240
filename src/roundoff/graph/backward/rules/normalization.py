"""Normalization: by fixed statistics it is a scale per channel, by its own these have a share in the gradient."""

import math
from collections.abc import Sequence

import numpy as np

from roundoff.graph.backward.operations import (
    along_axis,
    reduce_mean,
    reduce_sum,
    reduce_to,
    reshape,
    sign,
    square,
    weighted,
)
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ()

# Default of all these operators' definitions.
_EPSILON = 1e-5


@rule("BatchNormalization")
def _batch_normalization(at: Step, index: int) -> str:
    """Inference: mean and variance are given."""
    if at.attribute("training_mode", 0) or sum(map(bool, at.outputs)) > 1 or not at.attribute("spatial", 1):
        raise NoRule("it computes statistics of its own (training mode) or is not per channel")
    _check_types(at)
    x, scale, _, mean, variance = at.inputs
    rank, channels = len(at.shape(0)), at.shape(1)[0]
    apart = [channels, *(1 for _ in range(rank - 2))]
    deviation = at.op("Sqrt", at.op("Add", variance, at.number(at.attribute("epsilon", _EPSILON))))
    factor = at.op("Div", scale, deviation)
    if index == 0:
        return at.op("Mul", at.gradient, reshape(at, factor, apart))
    others = [axis for axis in range(rank) if axis != 1]
    total = reduce_sum(at, at.gradient, others, keepdims=False)
    if index == 2:
        return total
    if index == 3:
        return at.op("Neg", at.op("Mul", total, factor))
    centred = at.op("Sub", x, reshape(at, mean, apart))
    seen = at.op("Div", reduce_sum(at, at.op("Mul", at.gradient, centred), others, keepdims=False), deviation)
    if index == 1:
        return seen
    slope = at.op("Div", factor, deviation)
    return weighted(at, at.op("Mul", seen, slope), -0.5)


@rule("InstanceNormalization")
def _instance_normalization(at: Step, index: int) -> str:
    shape = at.shape(0)
    axes = list(range(2, len(shape)))
    per_channel = [shape[1], *(1 for _ in axes)]
    return _normalization(at, index, x=at.inputs[0], axes=axes, shape=shape, scale_shape=per_channel)


@rule("LayerNormalization")
def _layer_normalization(at: Step, index: int) -> str:
    shape = at.shape(0)
    axes = list(range(at.attribute("axis", -1) % len(shape), len(shape)))
    return _normalization(at, index, x=at.inputs[0], axes=axes, shape=shape, scale_shape=at.shape(1))


@rule("GroupNormalization")
def _group_normalization(at: Step, index: int) -> str:
    batch, channels, *sizes = at.shape(0)
    groups = at.attribute("num_groups")
    shape = (batch, groups, channels // groups, *sizes)
    axes = list(range(2, len(shape)))
    # The first version scaled groups, the later one channels.
    scaled = [groups, 1] if at.opset < 21 else [groups, channels // groups]
    per_channel = [*scaled, *(1 for _ in sizes)]
    x = reshape(at, at.inputs[0], shape)
    return _normalization(at, index, x=x, axes=axes, shape=shape, scale_shape=per_channel)


def _normalization(
    at: Step, index: int, *, x: str, axes: list[int], shape: Sequence[int], scale_shape: Sequence[int]
) -> str:
    """The gradient of an input of ``scale * (x - mean) / deviation + bias``, both statistics over some axes."""
    _check_types(at)
    gradient = at.gradient if tuple(shape) == at.shape(0) else reshape(at, at.gradient, shape)
    if index == 2:
        return reshape(at, reduce_to(at, gradient, shape, scale_shape), at.shape(2))
    centred = at.op("Sub", x, reduce_mean(at, x, axes))
    variance = reduce_mean(at, square(at, centred), axes)
    deviation = at.op("Sqrt", at.op("Add", variance, at.number(at.attribute("epsilon", _EPSILON))))
    normal = at.op("Div", centred, deviation)
    if index == 1:
        seen = reduce_to(at, at.op("Mul", gradient, normal), shape, scale_shape)
        return reshape(at, seen, at.shape(1))
    scale = at.inputs[1] if tuple(scale_shape) == at.shape(1) else reshape(at, at.inputs[1], scale_shape)
    scaled = at.op("Mul", gradient, scale)
    # What moves the mean, and what moves the deviation, does not come through.
    from_mean = reduce_mean(at, scaled, axes)
    from_deviation = at.op("Mul", normal, reduce_mean(at, at.op("Mul", scaled, normal), axes))
    result = at.op("Div", at.op("Sub", at.op("Sub", scaled, from_mean), from_deviation), deviation)
    return result if tuple(shape) == at.shape(0) else reshape(at, result, at.shape(0))


def _check_types(at: Step) -> None:
    if len({at.dtype(index) for index in range(len(at.inputs)) if at.has(index)}) > 1:
        raise NoRule("its inputs are floats of different types")


@rule("LpNormalization")
def _lp_normalization(at: Step, _index: int) -> str:
    x, y = at.inputs[0], at.outputs[0]
    axis = at.attribute("axis", -1) % len(at.shape(0))
    projected = reduce_sum(at, at.op("Mul", at.gradient, y), [axis])
    if at.attribute("p", 2) == 2:
        norm, direction = at.op("Sqrt", reduce_sum(at, square(at, x), [axis])), y
    else:
        norm, direction = reduce_sum(at, at.op("Abs", x), [axis]), sign(at, x)
    return at.op("Div", at.op("Sub", at.gradient, at.op("Mul", direction, projected)), norm)


@rule("LRN")
def _lrn(at: Step, _index: int) -> str:
    """Each channel is divided by a power of the squares of its neighbours."""
    x, shape = at.inputs[0], at.shape(0)
    size, beta = at.attribute("size"), at.attribute("beta", 0.75)
    alpha, bias = at.attribute("alpha", 1e-4) / size, at.attribute("bias", 1.0)
    apart = np.arange(shape[1])[None, :] - np.arange(shape[1])[:, None]
    neighbours = ((apart >= -((size - 1) // 2)) & (apart <= math.ceil((size - 1) / 2))).astype(np.float64)
    squares = along_axis(at, square(at, x), neighbours, axis=1, shape=shape)
    base = at.op("Add", weighted(at, squares, alpha), at.number(bias))
    scaled = at.op("Mul", at.gradient, at.op("Pow", base, at.number(-beta)))
    felt = at.op("Div", at.op("Mul", scaled, x), base)
    back = along_axis(at, felt, np.ascontiguousarray(neighbours.T), axis=1, shape=shape)
    return at.op("Sub", scaled, weighted(at, at.op("Mul", x, back), 2 * alpha * beta))
