"""How much noise in each channel counts: its power at the next place where channels cannot be followed further.

Noise goes through a layer with the squares of its weights, and through an activation only where that is not flat.
Where it ends, at an output or in front of something else than a layer, it is set against the energy there.
"""

from collections.abc import Mapping

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.weights import Weights
from roundoff.quantize.transforms.scaling_map import Layer, ScalingMap
from roundoff.quantize.transforms.statistics import ChannelStatistics

__all__ = ["Importance", "importance_of"]


class Importance:
    """What noise counts.

    Attributes:
        channel: In each channel, [size].
        at_result: Of each layer, in what it computes, by place of the first two axes of its weight.
        energy: Of each layer, the energy of the input at each of these places.
    """

    channel: Array
    at_result: dict[str, Array]
    energy: dict[str, Array]

    def __init__(self, size: int) -> None:
        self.channel, self.at_result, self.energy = np.zeros(size), {}, {}


def importance_of(found: ScalingMap, weights: Weights, seen: Mapping[str, ChannelStatistics]) -> Importance:
    """Follow noise backwards through all layers.

    Args:
        found: The map.
        weights: The weights.
        seen: What was seen of the tensors that layers read.
    """
    result = Importance(found.size)
    alive = _alive(found, seen)
    for layer in reversed(found.layers):
        values = weights[layer.weight].astype(np.float64)
        squares = np.square(values).reshape(*values.shape[:2], -1).sum(axis=-1)
        energy = _by_place(found, layer, seen[layer.source].energy)
        reads, writes = found.roots(layer.reads), found.roots(layer.writes)
        outputs = np.unique(layer.writes).size
        power = float((squares * energy).sum()) / max(outputs, 1)
        ends = (writes == 0) | (result.channel[writes] == 0)
        counts = np.where(ends, 1 / power if power else 0.0, result.channel[writes] * alive[writes])
        result.at_result[layer.node], result.energy[layer.node] = counts, energy
        reached = np.bincount(reads.ravel(), (squares * counts).ravel(), found.size)
        reached[0] = 0.0
        result.channel += reached
    return result


def _alive(found: ScalingMap, seen: Mapping[str, ChannelStatistics]) -> Array:
    """The share of its values in which each channel is not held at zero, or at its largest value."""
    share = np.zeros(found.size)
    for layer in found.layers:
        np.maximum.at(share, found.roots(layer.inputs), seen[layer.source].moving)
    return share


def _by_place(found: ScalingMap, layer: Layer, energy: Array) -> Array:
    """The energy of the input that each place of a weight reads."""
    sums = np.bincount(layer.inputs, energy, found.size)
    counts = np.bincount(layer.inputs, minlength=found.size)
    return np.asarray((sums / np.maximum(counts, 1))[layer.reads])
