"""Codes of quantized tensors made comparable with the numbers they stand for."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.vendors.ascend.fitting import Fitted

__all__ = ["decoded", "holds_codes", "may_hold_codes"]

_CODES = ("INT8", "UINT8", "INT4")
_BLOCK = 1 << 18
_SAME = 1e-3
"""A scale and offset this close to 1 and 0 leave codes as they are: the golden tensor holds codes, too."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The straight line through codes and numbers."""

    scale: float
    offset: float


def may_hold_codes(element_type: str) -> bool:
    """Whether tensors of this type hold codes in quantized models."""
    return element_type in _CODES


def holds_codes(element_type: str, golden: Array) -> bool:
    """Whether a tensor of this type, whose golden counterpart has these values, holds codes of them."""
    return may_hold_codes(element_type) and golden.dtype.kind == "f"


def decoded(fitted: Fitted) -> tuple[Fitted, str]:
    """Codes as the numbers they stand for, and what was done to them.

    No file tells the scale, so that it is found from the values: the straight line that brings codes closest to
    the golden numbers. A wrong scale alone is therefore not seen; anything else is.
    """
    line = _through(fitted.mine, fitted.golden)
    if line is None or (abs(line.scale - 1) < _SAME and abs(line.offset) < _SAME):
        return fitted, ""
    numbers = fitted.mine.astype(np.float32) * np.float32(line.scale) + np.float32(line.offset)
    told = f"The codes were taken times {line.scale:.6g} plus {line.offset:.6g}, which fits them best."
    return Fitted(numbers, fitted.golden, fitted.shape, fitted.cut), told


def _through(codes: Array, numbers: Array) -> _Line | None:
    """Least squares in float64; None when there is no line: equal codes, or numbers that are none."""
    count = codes.size
    sums = np.zeros(4)
    for start in range(0, count, _BLOCK):
        left, right = (side[start : start + _BLOCK].astype(np.float64) for side in (codes, numbers))
        with np.errstate(all="ignore"):
            sums += (left.sum(), right.sum(), (left * left).sum(), (left * right).sum())
    if not count or not np.isfinite(sums).all():
        return None
    spread = sums[2] - sums[0] ** 2 / count
    if spread <= 0:
        return None
    scale = (sums[3] - sums[0] * sums[1] / count) / spread
    return _Line(float(scale), float((sums[1] - scale * sums[0]) / count))
