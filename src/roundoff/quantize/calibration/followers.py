"""Tensors whose elements follow from those of another one: what is known of one tells all of the other.

Of a network's tensors nearly half are such: activations that only limit, and other shapes of the same elements.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.graph.load import Model
from roundoff.graph.pointwise import attributes
from roundoff.graph.weights import Weights

__all__ = ["Follower", "find_followers"]

_STANDARD_DOMAINS = ("", "ai.onnx")
_SAME_ELEMENTS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Follower:
    """Elements that are those of another tensor, in the same order, with limits.

    What becomes of elements that are not finite is not said: runtimes differ in that.

    Attributes:
        source: The other tensor.
        low: What is smaller becomes this.
        high: What is larger becomes this; at least `low`.
    """

    source: str
    low: float = -math.inf
    high: float = math.inf

    def limited(self, low: float, high: float) -> "Follower":
        """What is left when the result is limited once more."""
        return Follower(self.source, *(min(max(end, low), high) for end in (self.low, self.high)))


def find_followers(model: Model, tensors: Mapping[str, int | None]) -> dict[str, Follower]:
    """Those of some tensors that follow from others of them, which do not follow from any themselves.

    Args:
        model: The model.
        tensors: The tensors, each with the axis along which channels are told apart; only those without follow,
            and are followed.
    """
    whole = {name for name, axis in tensors.items() if axis is None}
    weights = Weights(model)
    known: dict[str, Follower] = {}
    for node in model.proto.graph.node:
        limits = _limits(node, weights)
        if limits is None:
            continue
        source = node.input[0]
        before = known.get(source) or (Follower(source) if source in whole else None)
        if before is not None:
            known[node.output[0]] = before.limited(*limits)
    return {name: follower for name, follower in known.items() if name in whole}


def _limits(node: Any, weights: Weights) -> tuple[float, float] | None:
    """The limits that a node sets to the elements of its first input; None when it does anything else."""
    if node.domain not in _STANDARD_DOMAINS or not node.input:
        return None
    if node.op_type in _SAME_ELEMENTS:
        return -math.inf, math.inf
    if node.op_type == "Relu":
        return 0.0, math.inf
    return _clip_limits(node, weights) if node.op_type == "Clip" else None


def _clip_limits(node: Any, weights: Weights) -> tuple[float, float] | None:
    given = attributes(node)
    limits = [float(given.get("min", -math.inf)), float(given.get("max", math.inf))]
    for place, name in enumerate(node.input[1:3]):
        if not name:
            continue
        if name not in weights.protos or weights.shape(name) not in ((), (1,)):
            return None
        limits[place] = float(np.ravel(weights[name])[0])
    low, high = limits
    # What a limit that is not finite leaves of all elements is no number, either.
    return (low, high) if low <= high and low < math.inf and high > -math.inf else None
