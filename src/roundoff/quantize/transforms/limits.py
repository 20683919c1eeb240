"""Clip, such as Relu6: its limits do not scale along with the channels that it limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.assembly import Assembly
from roundoff.graph.external import inside_bytes
from roundoff.graph.load import Model
from roundoff.graph.preparation.changes import set_attribute
from roundoff.quantize.transforms.rescaling import factors_of
from roundoff.quantize.transforms.scaling_map import Limit, ScalingMap
from roundoff.quantize.transforms.statistics import ChannelStatistics

__all__ = ["Bounds", "bounds_of", "channel_axis", "free_bounds", "with_channel_limits"]

LARGEST_LOGARITHM = float(np.log(2.0**13))
"""Factors stay between this and one over it: beyond, integer biases need more than 32 bits."""

_MARGIN = 1.05
"""Scaled values stay this far below a limit: values somewhat beyond what the samples show are not cut either."""
_CLIP_TAKES_INPUTS = 11


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What limits allow.

    Attributes:
        low: Least logarithm of the factor of each channel, float64 [size].
        fixed: Channels that reach a limit, bool [size]; they must not be scaled.
    """

    low: Array
    fixed: Array


def free_bounds(found: ScalingMap) -> Bounds:
    """Bounds where each channel can have limits of its own."""
    return Bounds(np.full(found.size, -LARGEST_LOGARITHM), np.zeros(found.size, bool))


def channel_axis(limit: Limit) -> int | None:
    """The one axis along which the channels of what is limited differ; None when there are several, or none."""
    axes = [axis for axis, size in enumerate(limit.channels.shape) if size > 1]
    return axes[0] if len(axes) == 1 else None


def bounds_of(found: ScalingMap, seen: Mapping[str, ChannelStatistics]) -> Bounds:
    """Which factors leave every value of the samples within the limits that it was within.

    A limit of zero scales along. A channel that reaches another one is cut off there, and would be cut off
    elsewhere if it were scaled.

    Args:
        found: The map.
        seen: What was seen of what is limited, by tensor; a tensor that is missing is fixed.
    """
    bounds = free_bounds(found)
    for limit in found.limits:
        roots = found.roots(limit.channels).ravel()
        if limit.source not in seen or channel_axis(limit) is None:
            bounds.fixed[roots] = True
            continue
        channels = seen[limit.source]
        # How much of the way to a limit the samples go; beyond 1 they are cut off.
        reached = np.maximum(_share(channels.high, limit.high), _share(-channels.low, -limit.low))
        bounds.fixed[roots[reached * _MARGIN > 1]] = True
        with np.errstate(divide="ignore"):
            np.maximum.at(bounds.low, roots, np.log(reached * _MARGIN))
    return bounds


def _share(values: Array, limit: float) -> Array:
    """How much of the way from zero to a limit values go; nothing where the limit is zero, or infinite."""
    if limit == 0 or not np.isfinite(limit):
        return np.zeros(values.shape)
    # A limit on the wrong side of zero is always reached.
    return np.maximum(values, 0) / limit if limit > 0 else np.full(values.shape, np.inf)


def with_channel_limits(
    model: Model, found: ScalingMap, factors: Mapping[int, float]
) -> tuple[Model, tuple[str, ...]]:
    """Give limits that do not fit scaled channels a value for each channel: exact for every input.

    The Clip stays, at the widest of the new limits, so that it is fused as before; a Min and, where the lower
    limit is not zero, a Max behind it cut each channel where it belongs.

    Args:
        model: The model with scaled channels; it is not changed.
        found: The map.
        factors: The factors.

    Returns:
        The model, and the names of the Clips that were given others.
    """
    limits = {limit.node: limit for limit in found.limits if _differs(found, limit, factors)}
    if not limits:
        return model, ()
    graph = Assembly(model)
    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
    for node in model.proto.graph.node:
        copy = graph.copy_node(node)
        if node.name in limits:
            limit = limits[node.name]
            _split(graph, copy, limit, factors_of(found, limit.channels, factors))
    graph.proto.graph.value_info.extend(model.proto.graph.value_info)
    return Model(graph.proto, model.path, inside_bytes(graph.proto)), tuple(limits)


def _differs(found: ScalingMap, limit: Limit, factors: Mapping[int, float]) -> bool:
    return bool((factors_of(found, limit.channels, factors) != 1).any())


def _split(graph: Assembly, clip: Any, limit: Limit, factors: Array) -> None:
    result = clip.output[0]
    while factors.ndim > 1 and factors.shape[0] == 1:
        factors = factors[0]
    lows, highs = (np.asarray(value / factors).astype(limit.dtype) for value in (limit.low, limit.high))
    _set_limits(graph, clip, lows.min(), highs.max())
    steps = [("Max", lows)] if np.isfinite(limit.low) and limit.low else []
    steps += [("Min", highs)] if np.isfinite(limit.high) and limit.high else []
    current = clip.output[0] = graph.free_tensor(f"{result}_widest")
    for index, (op_type, values) in enumerate(steps):
        held = graph.add_constant(values, f"{result}_{op_type.lower()}")
        target = result if index == len(steps) - 1 else graph.free_tensor(f"{result}_{op_type}")
        graph.add_node(op_type, [current, held], target, name=f"{clip.name}_{op_type}")
        current = target


def _set_limits(graph: Assembly, clip: Any, low: Array, high: Array) -> None:
    if graph.opset < _CLIP_TAKES_INPUTS:
        set_attribute(clip, "min", float(low))
        set_attribute(clip, "max", float(high))
        return
    del clip.input[1:]
    clip.input.extend(
        [graph.add_constant(value, f"{clip.name}_{side}") for side, value in (("low", low), ("high", high))]
    )
