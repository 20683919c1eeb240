"""Families of networks: one file each, small, random, and healthy in 8 bits."""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.planted.families import (
    dense,
    depthwise,
    detector,
    encoder,
    gru,
    inverted,
    plain,
    residual,
    shuffle,
    squeeze,
    temporal,
    transformer,
    two_sided,
    unet,
    vit,
)
from benchmarks.planted.families.exported import as_paddle, as_pytorch
from benchmarks.planted.families.kit import Built

__all__ = ["FAMILIES", "Built"]

FAMILIES: Mapping[str, Callable[[np.random.Generator], Built]] = {
    "plain": plain.build,
    "depthwise": depthwise.build,
    "residual": residual.build,
    "detector": detector.build,
    "transformer": transformer.build,
    "two-sided": two_sided.build,
    "squeeze": squeeze.build,
    "unet": unet.build,
    "gru": gru.build,
    "vit": vit.build,
    "pytorch-squeeze": as_pytorch(squeeze.build),
    "pytorch-vit": as_pytorch(vit.build),
    "paddle-depthwise": as_paddle(depthwise.build),
    "inverted": inverted.build,
    "dense": dense.build,
    "temporal": temporal.build,
    "shuffle": shuffle.build,
    "pytorch-encoder": as_pytorch(encoder.build),
}
"""By name; a network depends on its number here, so that new ones stand at the end."""
