"""Putting factors per channel into the constants of a model."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.preparation.changes import change_constants
from roundoff.graph.preparation.draft import Draft
from roundoff.quantize.transforms.scaling_map import Adjustment, ScalingMap

__all__ = ["factors_of", "rescaled", "rounded_to_power_of_two"]


def factors_of(found: ScalingMap, channels: Array, factors: Mapping[int, float]) -> Array:
    """The factor of each channel, float64 of their shape.

    Args:
        found: The map.
        channels: Channels.
        factors: Factors of the numbers that stand for channels; 1 where nothing is said.
    """
    table = np.ones(found.size)
    table[list(factors)] = list(factors.values())
    return np.asarray(table[found.roots(channels)])


def rounded_to_power_of_two(factors: Mapping[int, float]) -> dict[int, float]:
    """The nearest powers of two; with these no number of the network is rounded anew."""
    return {channel: float(2.0 ** np.rint(np.log2(factor))) for channel, factor in factors.items()}


def rescaled(model: Model, found: ScalingMap, factors: Mapping[int, float]) -> Model:
    """The model with channels divided by their factors where they arise, and multiplied where they are used.

    Args:
        model: The model of the map; it is not changed.
        found: The map.
        factors: Positive factors of the numbers that stand for channels; 1 where nothing is said.

    Raises:
        CannotFold: A constant would not be finite, or not fit into one file.
    """
    draft = Draft(model)
    for (node, position), adjustments in _by_constant(found).items():
        values = draft.constant(draft.nodes[node].input[position])
        change = _change(found, adjustments, factors)
        if np.all(change == 1):
            continue
        with np.errstate(over="ignore"):
            changed = values.astype(np.float64) * _with_rank_of(values, change)
        name = draft.nodes[node].input[position]
        change_constants(draft, [(draft.nodes[node], position, changed)], dtype_of=name)
    return draft.finish()


def _by_constant(found: ScalingMap) -> dict[tuple[str, int], list[Adjustment]]:
    grouped: dict[tuple[str, int], list[Adjustment]] = defaultdict(list)
    for each in found.adjustments:
        grouped[each.node, each.position].append(each)
    return grouped


def _change(found: ScalingMap, adjustments: list[Adjustment], factors: Mapping[int, float]) -> Array:
    change = np.ones(())
    for each in adjustments:
        if each.times is not None:
            change = change * factors_of(found, each.times, factors)
        if each.over is not None:
            change = change / factors_of(found, each.over, factors)
    return np.asarray(change)


def _with_rank_of(values: Array, change: Array) -> Array:
    """Without axes of size 1 in front that the constant does not have: a bias stays a vector."""
    spare = change.ndim - values.ndim
    while spare > 0 and change.shape[0] == 1:
        change, spare = change[0], spare - 1
    return change
