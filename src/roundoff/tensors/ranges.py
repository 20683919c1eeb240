"""Whether the range that a tool gave a tensor is for its values: far wider, most of its codes are never used."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from roundoff.core.quantizers import OUTPUT_LIMITS
from roundoff.core.tensors import Array
from roundoff.tensors.stored import ToolScale

WIDE = 4.0
"""Two of the bits are never used: more than a sample that is quieter than others leaves unused."""
OBSERVED = 2.0
"""One of the bits is never used, whatever was fed: what the tool itself saw needs no margin for other samples."""
FILLED = WIDE / 2
"""A tensor whose range is no wider than this many times its values needs it."""
_FEWEST, _OF_FEW = 64, 2.0
"""Of fewer values one sample does not show the range: another may have values so many times as large."""
_ON_GRID, _MOSTLY = 0.02, 0.99
_SAME_STEP = 1e-3
_CODES = 255
_ROOM = 1.1
BOUNDED = {kind: max(map(abs, ends)) for kind, ends in OUTPUT_LIMITS.items()}
"""The largest magnitude that operations can give, whatever they gave in these samples."""


def excess_range(scale: ToolScale, peak: float, values: Iterable[Array], bound: float = 0.0) -> float | None:
    """How many times as wide as its values a range is; None where it is not far too wide.

    Args:
        scale: The tool's.
        peak: The largest magnitude of the tensor.
        values: Its values on the device, sample by sample.
        bound: What the operation can give at most, which tools take whatever it gave; 0 without an end.
    """
    if peak <= 0 or bound / _ROOM <= scale.reach <= bound * _ROOM or math.isinf(bound):
        return None
    arrays = list(values)
    excess, least = scale.reach / peak, least_excess(scale, sum(each.size for each in arrays))
    if excess < least:
        return None
    # In front of a fused activation a tensor is written that the chip never rounds.
    return excess if all(on_grid(each, scale.scale) for each in arrays) else None


def least_excess(scale: ToolScale, count: int) -> float:
    """How many times as wide as its values a range is that is far too wide, by so many values."""
    seen = 0.0 if scale.observed is None else max(map(abs, scale.observed))
    if seen > 0 and scale.reach / seen >= OBSERVED:
        return OBSERVED
    return WIDE if count >= _FEWEST else WIDE * _OF_FEW


def ranges_of_steps(steps: Mapping[str, float], ends: Mapping[str, tuple[float, float]]) -> dict[str, ToolScale]:
    """The ranges of 8-bit codes nobody tells of, as their steps show them; zero has a code.

    Where some values are more than half of the codes from zero, ranges are taken to reach as far on either side as
    the values do; else codes may be as many on both sides whatever the values are.

    Args:
        steps: Of tensors with codes, the step between two.
        ends: The smallest and the largest value of each.
    """
    spans = {name: (min(0.0, ends[name][0]), max(0.0, ends[name][1])) for name in steps}
    signed = all(max(-low, high) <= (_CODES / 2 + 1) * steps[name] for name, (low, high) in spans.items())
    found = {}
    for name, (low, high) in spans.items():
        if high > low:
            step = steps[name]
            widened = _CODES * step / (2 * max(-low, high) if signed else high - low)
            found[name] = ToolScale(step, low * widened, high * widened)
    return found


def shares_scale(one: ToolScale, other: ToolScale) -> bool:
    """Whether two tensors have the same step."""
    return abs(other.scale / one.scale - 1) <= _SAME_STEP


def on_grid(values: Array, step: float) -> bool:
    """Whether values are multiples of a step, as dequantized codes are."""
    places = np.asarray(values, np.float64).ravel() / step
    return float(np.mean(np.abs(places - np.rint(places)) <= _ON_GRID)) >= _MOSTLY
