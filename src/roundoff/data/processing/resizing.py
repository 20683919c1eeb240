"""Resizing as the libraries do it that people preprocess with, to the bit where they work in whole numbers."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.data.processing.taps import Kernel, Style, Taps, area_enlarging, line_taps, nearest_indices

__all__ = ["OPENCV_BILINEAR", "Resampling", "resized"]

Size = tuple[int, int]

_OPENCV_ONE = 1 << 11  # OpenCV's weights of bytes have 11 bits, Pillow's 22
_PILLOW_ONE = 1 << 22


@dataclass(frozen=True, slots=True)
class Resampling:
    """How pixels are mixed when a picture changes its size.

    Attributes:
        kernel: ``nearest``, ``bilinear``, ``bicubic`` or ``area``.
        style: Whose arithmetic, and where pixels lie. ``opencv``: pixel centres at half coordinates (for nearest:
            at whole ones), no widening when shrinking, bicubic with a = -0.75; torch without antialias computes
            the same in float. ``antialiased``: kernels widen when shrinking, as in Pillow
            and torchvision; bicubic with a = -0.5. ``asymmetric``: pixel x lies at
            x * ratio. ``align-corners``: first and last pixels stay where they are.
    """

    kernel: Kernel = "bilinear"
    style: Style = "opencv"

    def __str__(self) -> str:
        """In words."""
        if self.kernel == "nearest" and self.style == "antialiased":
            return "nearest (Pillow: half-pixel centres)"
        places = {
            "opencv": "(OpenCV)",
            "antialiased": "antialiased (Pillow, torchvision)",
            "asymmetric": "with asymmetric pixel centres",
            "align-corners": "with aligned corners",
        }
        return f"{self.kernel} {places[self.style]}"


OPENCV_BILINEAR = Resampling()
"""What cv2.resize does by default."""


def resized(pixels: Array, size: Size, resampling: Resampling = OPENCV_BILINEAR) -> Array:
    """Bring a picture to another height and width.

    Bytes stay bytes and are rounded as the library rounds; floats stay floats.

    Args:
        pixels: [height, width, channels], uint8 or float.
        size: Height and width wanted.
        resampling: How.
    """
    had = pixels.shape[:2]
    kernel, style = resampling.kernel, resampling.style
    if had == size:
        return pixels
    if kernel == "nearest":
        return pixels[nearest_indices(had[0], size[0], style)][:, nearest_indices(had[1], size[1], style)]
    if style == "antialiased":
        return _antialiased(pixels, size, kernel)
    if kernel == "area" and (size[0] > had[0] or size[1] > had[1]):
        # OpenCV interpolates both ways as soon as one way enlarges.
        rows, columns = (area_enlarging(*pair) for pair in zip(had, size, strict=True))
        return _interpolated(pixels, rows, columns)
    halved = style == "opencv" and (2 * size[0], 2 * size[1]) == had
    if kernel == "bilinear" and halved:
        kernel = "area"  # OpenCV knows that this is the same, and rounds only once
    rows, columns = (line_taps(*pair, kernel=kernel, style=style) for pair in zip(had, size, strict=True))
    if kernel == "area":
        return _meaned(pixels, rows, columns, halved=halved)
    return _interpolated(pixels, rows, columns)


def _interpolated(pixels: Array, rows: Taps, columns: Taps) -> Array:
    if pixels.dtype != np.uint8:
        return _mixed(pixels, rows, columns)
    across, down = (
        np.rint(taps.weight.astype(np.float32) * _OPENCV_ONE).astype(np.int32) for taps in (columns, rows)
    )
    wide = Taps(columns.index, across).along(pixels.astype(np.int32), 1)
    parts = [(wide[rows.index[:, tap]], down[:, tap, None, None]) for tap in range(down.shape[1])]
    if len(parts) == 2:
        # Four bits are dropped before the product and sixteen behind it, so that 32 bits are enough.
        total = np.sum([(line >> 4) * weight >> 16 for line, weight in parts], axis=0) + 2 >> 2
    else:
        total = np.sum([line.astype(np.int64) * weight for line, weight in parts], axis=0) + (1 << 21) >> 22
    rounded: Array = np.clip(total, 0, 255).astype(np.uint8)
    return rounded


def _mixed(pixels: Array, rows: Taps, columns: Taps) -> Array:
    kind = pixels.dtype if pixels.dtype.kind == "f" and pixels.dtype.itemsize >= 4 else np.dtype(np.float32)
    return np.ascontiguousarray(columns.along(rows.along(pixels.astype(kind, copy=False), 0), 1))


def _meaned(pixels: Array, rows: Taps, columns: Taps, *, halved: bool) -> Array:
    if pixels.dtype != np.uint8:
        return _mixed(pixels, rows, columns)
    # Sums of weights leave noise around whole numbers; halving adds two and shifts, all else is rounded to even.
    mean = np.round(_mixed(pixels.astype(np.float64), rows, columns), 9)
    return np.clip(np.floor(mean + 0.5) if halved else np.rint(mean), 0, 255).astype(np.uint8)


def _antialiased(pixels: Array, size: Size, kernel: Kernel) -> Array:
    """Columns, then rows, as Pillow does up to version 12; bytes are rounded between the two."""
    values = pixels
    for axis in (1, 0):
        if values.shape[axis] != size[axis]:
            taps = line_taps(values.shape[axis], size[axis], kernel=kernel, style="antialiased")
            values = (
                _rounded_pass(values, taps, axis) if pixels.dtype == np.uint8 else _plain_pass(values, taps, axis)
            )
    return np.ascontiguousarray(values)


def _rounded_pass(pixels: Array, taps: Taps, axis: int) -> Array:
    """In whole numbers, all of which float64 holds exactly."""
    scaled = taps.weight * _PILLOW_ONE
    whole = Taps(taps.index, np.trunc(scaled + np.copysign(0.5, scaled)))
    mixed = whole.along(pixels.astype(np.float64), axis)
    return np.clip(np.floor((mixed + _PILLOW_ONE // 2) / _PILLOW_ONE), 0, 255).astype(np.uint8)


def _plain_pass(pixels: Array, taps: Taps, axis: int) -> Array:
    kind = np.float64 if pixels.dtype == np.float64 else np.float32
    return taps.along(pixels.astype(kind, copy=False), axis)
