"""What kind of numbers a device computes with, seen from the values it wrote."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["DeviceNumbers", "NumberKind", "grid_step", "kind_of", "tell_numbers"]

NumberKind = Literal["integer", "float16", "bfloat16", "float32"]

# Codes of more levels are not told from float: too few of them are ever met to see the smallest gap.
_MOST_LEVELS = 1 << 12
# Fewer different values lie on some grid by chance.
_FEWEST_VALUES = 6
# How far from a multiple of the step a value may be, in steps; float32 leaves a millionth.
_OFF_GRID = 0.02
# Half precision moves values by this part of them; off by more than that part of a step, chance would do as well.
_HALF_ROUNDOFF, _NO_CHANCE = 2.0**-11, 0.2
_LOOKED_AT = 1 << 16
# Share of the tensors that must be on grids; others may be outputs in float, or too small to tell.
_MOST_ON_GRID = 0.4
_ALMOST_ALL = 0.9
# Codes that are used this far were chosen so; values beyond them are cut off by right.
_FULL_RANGE = 180
# Of fewer values whose grid cannot be seen, nobody can tell whether they end where their codes do.
_FEW_VALUES = 64


@dataclass(frozen=True, slots=True)
class DeviceNumbers:
    """What a device computes with.

    Attributes:
        kind: Kind of most of its numbers.
        steps: For tensors whose values lie on a grid, its step.
        limits: Where values end by right, as far as was seen: of tensors that use most codes of 8 bits, and of
            those too small to tell.
    """

    kind: NumberKind
    steps: Mapping[str, float]
    limits: Mapping[str, tuple[float, float]]


def grid_step(values: Array) -> float | None:
    """The step of the grid that values lie on, as dequantized codes do; None when they lie on none."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    if flat.size > _LOOKED_AT:
        flat = flat[:: flat.size // _LOOKED_AT + 1]
    flat = np.unique(flat[np.isfinite(flat)])
    if flat.size < _FEWEST_VALUES:
        return None
    span = float(flat[-1] - flat[0])
    gaps = np.diff(flat)
    # The same code may be dequantized to floats that differ in their last bit.
    gaps = gaps[gaps > span / _MOST_LEVELS / 4]
    if not gaps.size or span == 0:
        return None
    step = float(gaps.min())
    # The mean of all gaps that are about one step is more exact than the smallest.
    near = gaps[gaps < 1.5 * step]
    step = span / max(1, round(span / float(near.mean())))
    places = (flat - flat[0]) / step
    if np.all(np.abs(places - np.rint(places)) <= _OFF_GRID):
        return step
    return _rounded_step(np.unique(np.abs(flat))) if kind_of(flat) == "float16" else None


def _rounded_step(sizes: Array) -> float | None:
    """The step of codes that were dequantized and then stored in half precision; zero is one of them.

    Args:
        sizes: Magnitudes, from the smallest on; the smaller they are, the more exact.
    """
    gaps = np.diff(sizes, prepend=0.0)
    exact = (sizes <= sizes[-1] / 8) & (gaps > sizes[-1] / _MOST_LEVELS)
    step = float(gaps[exact].min(initial=sizes[-1]))
    for reach in (4, 16, 64, 256, _MOST_LEVELS):
        near = sizes[(sizes <= reach * step) & (sizes > step / 2)]
        count = np.rint(near / step)
        step = float(near @ count / (count @ count)) if near.size else step
    places = sizes / step
    allowed = np.minimum(_OFF_GRID + places * _HALF_ROUNDOFF, _NO_CHANCE)
    return step if np.all(np.abs(places - np.rint(places)) <= allowed) else None


def kind_of(values: Array) -> NumberKind:
    """The narrowest float type that holds all values exactly."""
    flat = np.asarray(values, dtype=np.float32).ravel()[:_LOOKED_AT]
    flat = flat[np.isfinite(flat)]
    if not flat.size:
        return "float32"
    if np.all((flat.view(np.uint32) & 0xFFFF) == 0):
        return "bfloat16"
    with np.errstate(over="ignore"):
        half = flat.astype(np.float16).astype(np.float32)
    return "float16" if np.array_equal(half, flat) else "float32"


def tell_numbers(tensors: Mapping[str, Array]) -> DeviceNumbers:
    """What a device computes with, by its tensors; inputs of the network are best left out."""
    steps = {name: step for name, values in tensors.items() if (step := grid_step(values)) is not None}
    large = [name for name, values in tensors.items() if np.unique(values).size >= _FEWEST_VALUES]
    if large and len(steps) >= _MOST_ON_GRID * len(large):
        full = {name: _ends(values) for name, values in tensors.items() if _ends_by_right(values, steps.get(name))}
        return DeviceNumbers("integer", steps, full)
    kinds = [kind_of(tensors[name]) for name in large]
    narrow: tuple[NumberKind, ...] = ("bfloat16", "float16")
    for kind in narrow:
        fitting = sum(each in (kind, "bfloat16") for each in kinds)
        if kinds and fitting >= _ALMOST_ALL * len(kinds):
            return DeviceNumbers(kind, {}, {})
    return DeviceNumbers("float32", {}, {})


def _ends(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _ends_by_right(values: Array, step: float | None) -> bool:
    if step is None:
        return 0 < values.size < _FEW_VALUES
    return float(np.ptp(values)) >= _FULL_RANGE * step
