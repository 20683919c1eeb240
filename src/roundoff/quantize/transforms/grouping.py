"""Channels that hang together, and the layers that read or write them."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.transforms.scaling_map import Layer, ScalingMap

__all__ = ["Group", "group_layers", "magnitudes"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Channels that can be scaled and are read together.

    Attributes:
        roots: The numbers that stand for them, in rising order.
        layers: Layers that read them.
        writers: Layers that write them.
    """

    roots: tuple[int, ...]
    layers: tuple[Layer, ...]
    writers: tuple[Layer, ...]


def group_layers(found: ScalingMap) -> tuple[Group, ...]:
    """Layers with common channels; those that read fixed ones only are in no group."""
    owner: dict[int, int] = {}
    for layer in found.layers:
        roots = _free(found, layer.inputs)
        ties = {_leader(owner, root) for root in roots}
        for root in (*roots, *ties):
            owner[root] = min(ties)
    groups: dict[int, set[int]] = {}
    for root in owner:
        groups.setdefault(_leader(owner, root), set()).add(root)
    return tuple(
        Group(
            tuple(sorted(roots)),
            tuple(layer for layer in found.layers if roots & _free(found, layer.inputs)),
            tuple(layer for layer in found.layers if roots & _free(found, layer.writes)),
        )
        for _, roots in sorted(groups.items())
    )


def _free(found: ScalingMap, channels: Array) -> set[int]:
    return set(found.roots(channels).ravel().tolist()) - {0}


def _leader(owner: dict[int, int], root: int) -> int:
    while owner.get(root, root) != root:
        root = owner[root]
    return root


def magnitudes(weight: Array) -> Array:
    """The largest magnitude at each place of a weight's first two axes, float64."""
    values = np.abs(weight.astype(np.float64))
    return np.asarray(values.max(axis=tuple(range(2, values.ndim)), initial=0.0))
