"""Operations on single elements that a positive factor passes through: f(x / s) = f(x) / s."""

import math
from typing import Any

from roundoff.graph.preparation.changes import attribute
from roundoff.quantize.transforms.scaling_map import Limit
from roundoff.quantize.transforms.walk import Minds, Walk, rule

__all__ = ["clip_limits"]

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
        raise Minds
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
        raise Minds
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
