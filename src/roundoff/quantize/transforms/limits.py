"""Clip, such as Relu6: its limits stay where they are when a channel is scaled, so no value may reach them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.transforms.balancing import LARGEST_LOGARITHM
from roundoff.quantize.transforms.scaling_map import Limit, ScalingMap
from roundoff.quantize.transforms.statistics import ChannelRange

__all__ = ["Bounds", "bounds_of", "channel_axis"]

_MARGIN = 1.05
"""Scaled values stay this far below the limit: values somewhat beyond what the samples show are not cut either."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What limits allow.

    Attributes:
        low: Least logarithm of the factor of each channel, float64 [size].
        fixed: Channels that reach a limit, bool [size]; they must not be scaled.
    """

    low: Array
    fixed: Array


def channel_axis(limit: Limit) -> int | None:
    """The one axis along which the channels of what is limited differ; None when there are several, or none."""
    axes = [axis for axis, size in enumerate(limit.channels.shape) if size > 1]
    return axes[0] if len(axes) == 1 else None


def bounds_of(found: ScalingMap, ranges: Mapping[str, ChannelRange]) -> Bounds:
    """Which factors leave every value of the samples within the limits that it was within.

    A limit of zero scales along. A channel that reaches another one is cut off there, and would be cut off
    elsewhere if it were scaled.

    Args:
        found: The map.
        ranges: Smallest and largest values of what is limited, by tensor; a tensor that is missing is fixed.
    """
    low, fixed = np.full(found.size, -LARGEST_LOGARITHM), np.zeros(found.size, bool)
    for limit in found.limits:
        roots = found.roots(limit.channels).ravel()
        if limit.source not in ranges or channel_axis(limit) is None:
            fixed[roots] = True
            continue
        least, most = ranges[limit.source]
        # How much of the way to a limit the samples go; beyond 1 they are cut off.
        reached = np.maximum(_share(most, limit.high), _share(-least, -limit.low))
        fixed[roots[reached * _MARGIN > 1]] = True
        with np.errstate(divide="ignore"):
            np.maximum.at(low, roots, np.log(reached * _MARGIN))
    return Bounds(low, fixed)


def _share(values: Array, limit: float) -> Array:
    """How much of the way from zero to a limit values go; nothing where the limit is zero, or infinite."""
    if limit == 0 or not np.isfinite(limit):
        return np.zeros(values.shape)
    # A limit on the wrong side of zero is always reached.
    return np.maximum(values, 0) / limit if limit > 0 else np.full(values.shape, np.inf)
