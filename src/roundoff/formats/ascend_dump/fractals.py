"""Fractals that no single pattern of axes describes: grouped convolutions, four channels, recurrent weights."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["from_c04", "from_recurrent", "ungroup"]

Undo: TypeAlias = Callable[[Array], Array]
"""Brings values in the device's shape into the original one."""

_C04 = 4
_GATES = 4


def ungroup(shape: tuple[int, ...], original: tuple[int, ...], *, groups: int) -> Undo | None:
    """A grouped weight in FRACTAL_Z as ``NCHW``: groups share blocks, side by side on their diagonal.

    Args:
        shape: The device's shape, ``[C1HW, N1, N0, C0]``.
        original: ``N`` outputs of all groups, ``C`` inputs of one group, ``H``, ``W``.
        groups: How many groups.

    Returns:
        How to undo it; None when the shapes do not fit.
    """
    if len(shape) != 4 or len(original) != 4 or 0 in original or original[0] % groups:
        return None
    total, inputs, height, width = original
    outputs = total // groups
    rows, columns = shape[2:]
    together = min(math.lcm(columns // math.gcd(inputs, columns), rows // math.gcd(outputs, rows)), groups)
    blocks = math.ceil(groups / together)
    in_blocks = math.ceil(together * inputs / columns)
    out_blocks = math.ceil(together * outputs / rows)
    if shape[:2] != (blocks * in_blocks * height * width, out_blocks):
        return None

    def undo(array: Array) -> Array:
        split = array.reshape(blocks, in_blocks, height, width, out_blocks, rows, columns)
        whole = (blocks, out_blocks * rows, in_blocks * columns, height, width)
        joined = split.transpose(0, 4, 5, 1, 6, 2, 3).reshape(whole)
        parts = []
        for group in range(groups):
            block, place = divmod(group, together)
            out, into = place * outputs, place * inputs
            parts.append(joined[block, out : out + outputs, into : into + inputs])
        return np.concatenate(parts)

    return undo


def from_c04(shape: tuple[int, ...], original: tuple[int, ...]) -> Undo | None:
    """A weight of at most four channels in FRACTAL_Z_C04 as ``NCHW``; None when the shapes do not fit."""
    if len(shape) != 4 or len(original) != 4 or original[1] > _C04:
        return None
    outputs, channels, height, width = original
    taps = height * width * _C04
    if shape[:2] != (math.ceil(taps / shape[3]), math.ceil(outputs / shape[2])):
        return None

    def undo(array: Array) -> Array:
        found = _rows(array)[:taps, :outputs].reshape(height, width, _C04, outputs)
        return found[:, :, :channels].transpose(3, 2, 0, 1)

    return undo


def from_recurrent(shape: tuple[int, ...], original: tuple[int, ...]) -> Undo | None:
    """A weight in FRACTAL_ZN_LSTM as inputs and states by four gates; None when the shapes do not fit."""
    wanted = tuple(size for size in original if size != 1) if len(original) == 4 else original
    if len(shape) != 4 or len(wanted) != 2 or wanted[1] % _GATES or wanted[0] < wanted[1] // _GATES:
        return None
    states = wanted[1] // _GATES
    inputs = wanted[0] - states
    in_blocks, state_blocks = math.ceil(inputs / shape[3]), math.ceil(states / shape[3])
    if shape[:2] != (in_blocks + state_blocks, _GATES * state_blocks):
        return None
    below, padded = in_blocks * shape[3], state_blocks * shape[3]

    def undo(array: Array) -> Array:
        matrix = _rows(array)
        rows = np.concatenate([matrix[:inputs], matrix[below : below + states]])
        return rows.reshape(wanted[0], _GATES, padded)[:, :, :states].reshape(original)

    return undo


def _rows(array: Array) -> Array:
    """Blocks ``[K1, N1, N0, K0]`` as a matrix of K rows and N columns."""
    outer_rows, outer_columns, columns, rows = array.shape
    return array.transpose(0, 3, 1, 2).reshape(outer_rows * rows, outer_columns * columns)
