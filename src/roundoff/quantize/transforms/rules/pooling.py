"""Operations that mix neighbours of one channel, which then have the same factor."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.preparation.changes import attribute
from roundoff.quantize.transforms.layouts import varies
from roundoff.quantize.transforms.walk import Minds, Walk, rule

__all__ = ()

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
    if attribute(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise Minds
    _refuse_mixing(channels, _changed(walk, node))
    walk.give(node, channels)


@rule("Pad")
def _pad(walk: Walk, node: Any) -> None:
    channels = walk.channels(node.input[0])
    if attribute(node, "mode", b"constant") == b"constant":
        value = walk.constant_input(node, _VALUE)
        if attribute(node, "value", 0.0) or (value is not None and value.any()):
            raise Minds
    _refuse_mixing(channels, _changed(walk, node))
    walk.give(node, channels)


def _changed(walk: Walk, node: Any) -> list[int]:
    """Axes along which a result is longer or shorter."""
    old, new = walk.shape(node.input[0]), walk.shape(node.output[0])
    if len(old) != len(new):
        raise Minds
    return np.flatnonzero(np.array(old) != np.array(new)).tolist()


def _refuse_mixing(channels: Array, axes: Sequence[int]) -> None:
    if varies(channels, axes):
        raise Minds
