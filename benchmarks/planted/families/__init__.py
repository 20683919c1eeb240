"""Families of networks: one file each, small, random, and healthy in 8 bits."""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.planted.families import depthwise, detector, plain, residual, transformer, two_sided
from benchmarks.planted.families.kit import Built

__all__ = ["FAMILIES", "Built"]

FAMILIES: Mapping[str, Callable[[np.random.Generator], Built]] = {
    "plain": plain.build,
    "depthwise": depthwise.build,
    "residual": residual.build,
    "detector": detector.build,
    "transformer": transformer.build,
    "two-sided": two_sided.build,
}
