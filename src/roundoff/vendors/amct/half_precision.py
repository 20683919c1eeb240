"""Scales that half precision holds, as chips need them that compute with it."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["half_scale", "short_mantissa"]

_SMALLEST, _LARGEST = 2.0**-14, 65504.0
_KEPT_BITS = np.uint32(0xFFFFE000)


def half_scale(scale: float) -> float:
    """The scale rounded to half precision; one that it cannot hold as the square of its root, rounded to it."""
    if _SMALLEST <= scale <= _LARGEST:
        return float(np.float16(scale))
    root = float(np.float16(np.sqrt(np.float64(scale))))
    return float(np.float32(root * root)) if root > 0 else scale


def short_mantissa(scales: Array) -> Array:
    """Float32 values whose mantissa is cut to that of half precision."""
    return (scales.astype(np.float32).view(np.uint32) & _KEPT_BITS).view(np.float32)
