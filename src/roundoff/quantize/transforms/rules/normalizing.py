"""Normalizations: what they hand on can be scaled in their gain and offset; what they read only by few of them."""

from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.preparation.changes import attribute
from roundoff.quantize.transforms.walk import Minds, Walk, rule

__all__ = ()

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
        raise Minds
    _begin(walk, node, walk.ids.fresh(shape))


@rule("GroupNormalization", "InstanceNormalization")
def _second_axis(walk: Walk, node: Any) -> None:
    _fix_source(walk, node)
    if node.op_type == "GroupNormalization" and walk.draft.opset < _GAIN_PER_CHANNEL:
        raise Minds
    shape = walk.shape(node.input[0])
    if len(shape) <= _CHANNEL_AXIS:
        raise Minds
    _begin(walk, node, walk.ids.fresh((shape[_CHANNEL_AXIS], *(1,) * (len(shape) - 2))))


def _fix_source(walk: Walk, node: Any) -> None:
    """Factors of what is normalized would change its mean and variance."""
    walk.hold(node.input[0])


def _begin(walk: Walk, node: Any, channels: Array) -> None:
    if any(walk.draft.readers(name) for name in node.output[1:] if name):
        raise Minds
    spread = channels.reshape(walk.shape(node.input[_GAIN])) if channels.size > 1 else channels
    walk.adjust(node, _GAIN, over=spread)
    walk.adjust(node, _OFFSET, over=spread)
    rank = len(walk.shape(node.output[0]))
    walk.give(node, channels.reshape((1,) * (rank - channels.ndim) + channels.shape))


@rule("BatchNormalization")
def _batch(walk: Walk, node: Any) -> None:
    """One factor and one offset for each channel: takes up what comes, and begins anew."""
    if attribute(node, "training_mode", 0) or not attribute(node, "spatial", 1):
        raise Minds
    channels, shape = walk.channels(node.input[0]), walk.shape(node.input[0])
    # A vector is allowed, too: samples of one channel.
    if len(shape) <= _CHANNEL_AXIS or channels.size not in (1, channels.shape[_CHANNEL_AXIS]):
        raise Minds
    inputs, outputs = channels.ravel(), walk.ids.fresh((shape[_CHANNEL_AXIS],))
    walk.adjust(node, _GAIN, times=inputs, over=outputs)
    walk.adjust(node, _OFFSET, over=outputs)
    walk.adjust(node, _MEAN, over=inputs)
    walk.give(node, outputs.reshape(1, -1, *(1,) * (len(shape) - 2)))
