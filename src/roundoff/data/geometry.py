"""Where a picture comes to lie when it is brought to another size."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.data.options import Resize

__all__ = ["Placement", "place", "placed"]

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Placement:
    """A picture is scaled to `resized` and set at `offset` onto a `canvas`; all are (height, width).

    A negative offset means that the picture sticks out and is cut.
    """

    resized: Size
    offset: Size
    canvas: Size


def place(had: Size, size: Size, *, canvas: Size, mode: Resize) -> Placement:
    """Decide the geometry of a resize.

    Args:
        had: The picture's height and width.
        size: What to resize to: filled exactly (stretch), covered (crop) or not exceeded (letterbox).
        canvas: What comes out; for a crop it may be smaller than `size`.
        mode: How.
    """
    if mode == "crop":
        resized = _covering(had, size)
        # Half pixels round to even, as torchvision's centre crop does.
        top, left = (round((full - part) / 2) for full, part in zip(resized, canvas, strict=True))
        return Placement(resized, (-top, -left), canvas)
    if mode == "letterbox":
        ratio = min(size[0] / had[0], size[1] / had[1])
        resized = (max(1, round(had[0] * ratio)), max(1, round(had[1] * ratio)))
        # An odd pixel of padding goes below and to the right.
        return Placement(resized, ((size[0] - resized[0]) // 2, (size[1] - resized[1]) // 2), size)
    return Placement(size, (0, 0), size)


def placed(pixels: Array, placement: Placement, *, pad: float) -> Array:
    """Set a resized picture [height, width, channels] onto its canvas, which `pad` fills."""
    if placement.canvas == placement.resized:
        return pixels
    canvas = np.full((*placement.canvas, *pixels.shape[2:]), pad, pixels.dtype)
    spans = [
        (max(offset, 0), min(offset + size, room), offset)
        for offset, size, room in zip(placement.offset, placement.resized, placement.canvas, strict=True)
    ]
    (top, bottom, down), (left, right, across) = spans
    canvas[top:bottom, left:right] = pixels[top - down : bottom - down, left - across : right - across]
    return canvas


def _covering(had: Size, size: Size) -> Size:
    """The smallest size of the same proportions that covers `size`; the longer side is rounded down."""
    if size[0] * had[1] >= size[1] * had[0]:
        return size[0], size[0] * had[1] // had[0]
    return size[1] * had[0] // had[1], size[1]
