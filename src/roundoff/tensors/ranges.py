"""Whether the range that a tool gave a tensor is for its values: far wider, most of its codes are never used."""

import math
from collections.abc import Iterable

import numpy as np

from roundoff.core.tensors import Array
from roundoff.tensors.stored import ToolScale

WIDE = 5.0
"""Tools that calibrate on data leave ranges of 1 to 2.2 times the values of a sample (150 tensors of RKNN,
TPU-MLIR and HTP); what is this many times as wide costs more than two bits."""
OBSERVED = 3.0
"""What the tool itself saw needs no margin for samples that it did not see."""
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


_DISTINCT, _LEFT = 64, 8
"""A part with this many different values in float that is left so few on the device can no longer be ranked."""
_SMALLER = 4.0


def lost_values(own: Array, found: Array, whole: Array) -> tuple[int, int] | None:
    """How many different values a part of a tensor has and is left, because others in it are far larger; or None.

    Args:
        own: The part in float.
        found: The same on the device.
        whole: The tensor in float.
    """
    peaks = [float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in (own, whole)]
    if not 0 < peaks[0] * _SMALLER < peaks[1]:
        return None
    before, after = np.unique(own).size, np.unique(found).size
    return (before, after) if before >= _DISTINCT and after <= _LEFT else None
