"""Whether the range that a tool gave a tensor is for its values: far wider, most of its codes are never used."""

import math
from collections.abc import Iterable

import numpy as np

from roundoff.core.tensors import Array
from roundoff.tensors.stored import ToolScale

WIDE = 4.0
"""Two of the bits are never used: more than a sample that is quieter than others leaves unused."""
OBSERVED = 2.0
"""One of the bits is never used, whatever was fed: what the tool itself saw needs no margin for other samples."""
FILLED = WIDE / 2
"""A tensor whose range is no wider than this many times its values needs it."""
_FEWEST = 64
"""Of fewer values one sample does not show the range of a tensor."""
_ON_GRID, _MOSTLY = 0.02, 0.99
_SAME_STEP = 1e-3
_ROOM = 1.1
BOUNDED = {
    "Sigmoid": 1.0,
    "HardSigmoid": 1.0,
    "Softmax": 1.0,
    "LogSoftmax": math.inf,
    "Tanh": 1.0,
    "Softsign": 1.0,
}
"""What operations can give at most, whatever they gave in these samples."""


def excess_range(scale: ToolScale, peak: float, values: Iterable[Array], bound: float = 0.0) -> float | None:
    """How many times as wide as its values a range is; None where it is not far too wide.

    Args:
        scale: The tool's.
        peak: The largest magnitude of the tensor.
        values: Its values on the device, sample by sample.
        bound: What the operation can give at most; 0 without an end.
    """
    if peak <= 0 or scale.reach <= bound * _ROOM:
        return None
    excess = scale.reach / peak
    seen = 0.0 if scale.observed is None else max(map(abs, scale.observed))
    by_tool = seen > 0 and scale.reach / seen >= OBSERVED
    if excess < (OBSERVED if by_tool else WIDE):
        return None
    arrays = list(values)
    if not by_tool and sum(each.size for each in arrays) < _FEWEST:
        return None
    # In front of a fused activation a tensor is written that the chip never rounds.
    return excess if all(on_grid(each, scale.scale) for each in arrays) else None


def shares_scale(one: ToolScale, other: ToolScale) -> bool:
    """Whether two tensors have the same step."""
    return abs(other.scale / one.scale - 1) <= _SAME_STEP


def on_grid(values: Array, step: float) -> bool:
    """Whether values are multiples of a step, as dequantized codes are."""
    places = np.asarray(values, np.float64).ravel() / step
    return float(np.mean(np.abs(places - np.rint(places)) <= _ON_GRID)) >= _MOSTLY
