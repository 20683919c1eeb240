"""Layers with constant weights: they take up the factors of what they read, and begin channels of their own."""

from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.preparation.changes import attribute
from roundoff.quantize.transforms.layouts import varies
from roundoff.quantize.transforms.scaling_map import Layer
from roundoff.quantize.transforms.walk import Minds, Walk, rule

__all__ = ["product_layer"]

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
        raise Minds
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
        raise Minds
    rows, columns = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
    _layer(walk, node, reads=rows, writes=columns, axis=len(walk.shape(node.input[_SOURCE])) - 1)


def _weight_shape(walk: Walk, node: Any) -> tuple[int, ...]:
    weight = node.input[_WEIGHT]
    if not walk.draft.is_constant(weight) or walk.draft.is_constant(node.input[_SOURCE]):
        raise Minds
    shape = walk.draft.constant_shape(weight)
    if 0 in shape:
        raise Minds
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
        raise Minds
    inputs = np.broadcast_to(channels.ravel(), shape[axis])
    outputs = walk.ids.fresh((int(writes.max()) + 1,))
    matrix = np.broadcast_shapes(reads.shape, writes.shape)
    read, written = np.broadcast_to(inputs[reads], matrix), np.broadcast_to(outputs[writes], matrix)
    rest = (1,) * (len(walk.shape(weight)) - 2)
    walk.adjust(node, _WEIGHT, times=read.reshape(*matrix, *rest), over=written.reshape(*matrix, *rest))
    if node.op_type != "MatMul":
        walk.adjust(node, _BIAS, over=outputs)
    walk.add_layer(Layer(node.name, node.op_type, source, axis, node.output[0], weight, read, written, inputs))
    rank = len(walk.shape(node.output[0]))
    spread = [1] * rank
    spread[axis] = -1
    walk.give(node, outputs.reshape(spread))
