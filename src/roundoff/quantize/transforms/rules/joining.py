"""Operations that bring tensors together: what is added must be scaled alike, of a product one factor may be."""

import math
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.transforms.layouts import MOST_CHANNELS
from roundoff.quantize.transforms.walk import Minds, Walk, rule

__all__ = ()


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
            if node.op_type in ("Max", "Min") and walk.draft.constant(name).any():
                raise Minds
            _adjust_operand(walk, node, at, joined)
    walk.give(node, joined)


def _adjust_operand(walk: Walk, node: Any, position: int, channels: Array) -> None:
    name = node.input[position]
    if not walk.draft.constant(name).any():
        return
    size = math.prod(np.broadcast_shapes(walk.shape(name), channels.shape))
    if size > max(MOST_CHANNELS, math.prod(walk.shape(name))):
        raise Minds
    walk.adjust(node, position, over=channels)


def _joined(walk: Walk, left: Array, right: Array) -> Array:
    if np.prod(np.broadcast_shapes(left.shape, right.shape)) > MOST_CHANNELS:
        raise Minds
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
        raise Minds
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
    from roundoff.quantize.transforms.rules.layers import product_layer

    if len(list(walk.live(node))) == 1:
        product_layer(walk, node)
        return
    left, right = node.input
    rank = len(walk.shape(node.output[0]))
    if min(len(walk.shape(left)), len(walk.shape(right))) < 2:
        raise Minds
    # Only one of the two may be scaled, and not along the axis that is summed over.
    kept, other, summed = (right, left, -2) if walk.is_fixed(left) else (left, right, -1)
    walk.hold(other)
    channels = walk.channels(kept)
    if channels.shape[summed] > 1:
        raise Minds
    walk.give(node, _with_rank(channels, rank))
