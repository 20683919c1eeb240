"""From YUV to red, green and blue: ranges, matrices, and what a chip accepts."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput

__all__ = ["MATRICES", "NO_CSC", "Csc", "CscMode", "conversion_rows", "from_yuv"]

CscMode = Literal["none", "matrix", "full-range", "limited-range"]

MATRICES: dict[str, tuple[float, ...]] = {
    # Rows R, G, B; columns Y, U, V and an offset in units of pixels.
    "BT.601 limited range": (1.164, 0, 1.596, -222.912, 1.164, -0.392, -0.813, 135.616, 1.164, 2.017, 0, -276.8),
    "BT.601 full range": (1, 0, 1.402, -179.456, 1, -0.344136, -0.714136, 135.458816, 1, 1.772, 0, -226.816),
    "BT.709 limited range": (1.164, 0, 1.793, -248.128, 1.164, -0.213, -0.533, 76.864, 1.164, 2.112, 0, -288.96),
    "BT.709 full range": (1, 0, 1.5748, -201.5744, 1, -0.187324, -0.468124, 83.897344, 1, 1.8556, 0, -237.5168),
}
"""Full range of BT.601 as JFIF defines it; limited range with the three digits that drivers and chips use."""

_BY_MODE = {"full-range": "BT.601 full range", "limited-range": "BT.601 limited range"}
_OFFSETS = (3, 7, 11)
_OFFSET_UNIT = 256  # a matrix gives its offsets as parts of this
_OFFSET_LIMITS, _FACTOR_LIMITS = (-9, 8), (-524289, 524288)


@dataclass(frozen=True, slots=True)
class Csc:
    """A conversion from YUV.

    Attributes:
        mode: ``none`` leaves values as they are; ``full-range`` and ``limited-range`` are those of BT.601;
            ``matrix`` is the user's.
        matrix: For ``matrix``: 3 rows of 4 numbers, one after the other, in the order of the channels that come
            out; the fourth of each row is an offset as a part of 256.

    Raises:
        BadInput: The matrix is missing, superfluous, or beyond what a chip accepts; all faults at once.
    """

    mode: CscMode = "none"
    matrix: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mode != "matrix":
            if self.matrix:
                what = f"A colour matrix was given, but the conversion is {self.mode!r}, which does not use it."
                raise BadInput(what, fix="set the conversion to matrix, or leave the matrix out")
            return
        if len(self.matrix) != 12:
            what = f"The colour matrix has {len(self.matrix)} numbers."
            raise BadInput(what, fix="give 12: three rows of Y, U, V and an offset")
        wrong = [_complaint(place, value) for place, value in enumerate(self.matrix)]
        if any(wrong):
            raise BadInput(
                f"The colour matrix is out of its limits: {'; '.join(filter(None, wrong))}.",
                fix=f"offsets count in units of {_OFFSET_UNIT}: write -222.912 as -0.871",
            )


NO_CSC = Csc()
"""Values stay as they are."""


def _complaint(place: int, value: float) -> str:
    low, high = _OFFSET_LIMITS if place in _OFFSETS else _FACTOR_LIMITS
    # A NaN is inside no limits.
    return "" if low < value < high else f"number {place + 1} is {value:g}, not between {low} and {high}"


def from_yuv(planes: Array, csc: Csc, *, reverse: bool = False) -> Array:
    """Convert [..., 3] of Y, U, V, cut to 0..255 and not rounded.

    Args:
        planes: Values from 0 to 255, of any type.
        csc: The conversion.
        reverse: Whether blue comes first; the rows of a user's matrix are in the wanted order already.

    Returns:
        float64 [..., 3]; unchanged values for ``none``.
    """
    values = planes.astype(np.float64)
    if csc.mode == "none":
        return values
    rows = conversion_rows(csc, reverse=reverse)
    colors: Array = np.clip(values @ rows[:, :3].T + rows[:, 3], 0, 255)
    return colors


def conversion_rows(csc: Csc, *, reverse: bool = False) -> Array:
    """The matrix of a conversion other than ``none``, float64 [3, 4], with offsets in units of pixels.

    Args:
        csc: The conversion.
        reverse: Whether blue comes first; the rows of a user's matrix are in the wanted order already.
    """
    rows = np.array(csc.matrix if csc.mode == "matrix" else MATRICES[_BY_MODE[csc.mode]]).reshape(3, 4)
    if csc.mode == "matrix":
        rows[:, 3] *= _OFFSET_UNIT
        return rows
    return rows[::-1] if reverse else rows
