"""Colours as a camera or decoder would hand them over."""

import numpy as np

from roundoff.core.tensors import Array
from roundoff.preprocessing.colours import MATRICES


def to_yuv(colors: Array, name: str) -> Array:
    """The inverse of one of `MATRICES`: [..., 3] of red, green, blue to Y, U, V; float64, not rounded."""
    rows = np.array(MATRICES[name]).reshape(3, 4)
    planes: Array = (colors.astype(np.float64) - rows[:, 3]) @ np.linalg.inv(rows[:, :3]).T
    return planes
