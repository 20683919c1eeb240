"""Constant borders: where a letterboxed picture lies, and what surrounds it."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["Box", "content_box"]

# A border may vary this much of the picture's spread.
_FLAT = 1e-4
_LEAST_CONTENT = 4


@dataclass(frozen=True, slots=True)
class Box:
    """The part of a picture inside its constant border.

    Attributes:
        top: First row that is not border.
        bottom: First row behind the content.
        left: First column.
        right: First column behind.
        border: Values of the border, per channel; empty when there is none.
    """

    top: int
    bottom: int
    left: int
    right: int
    border: tuple[float, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the content."""
        return self.bottom - self.top, self.right - self.left

    def cut(self, pixels: Array) -> Array:
        """The content."""
        return pixels[self.top : self.bottom, self.left : self.right]


def content_box(pixels: Array) -> Box:
    """Find the border of a picture [height, width, channels]: whole rows or columns of the colour of a corner.

    A picture of one colour only, or without such rows and columns, is all content.
    """
    height, width = pixels.shape[:2]
    whole = Box(0, height, 0, width)
    values = pixels.astype(np.float64)
    spread = float(np.ptp(values)) if values.size else 0.0
    for corner in (values[0, 0], values[-1, -1]):
        other = np.abs(values - corner).max(axis=2) > _FLAT * spread
        rows, columns = np.flatnonzero(other.any(axis=1)), np.flatnonzero(other.any(axis=0))
        if not len(rows) or not spread:
            return whole
        box = Box(
            int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1, tuple(map(float, corner))
        )
        if box.size != (height, width) and min(box.size) >= _LEAST_CONTENT:
            return box
    return whole
