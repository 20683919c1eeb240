"""Resizing as the libraries do it that people preprocess with, to the bit where they work in whole numbers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import Message, message

# Which source pixels make up each pixel of a resized line, and with which weights.

Kernel = Literal["nearest", "bilinear", "bicubic", "area"]
Style = Literal["opencv", "antialiased", "asymmetric", "align-corners"]

_FEW_TAPS = 4  # more are quicker as a product of matrices
_OPENCV_CUBIC, _PILLOW_CUBIC = -0.75, -0.5  # the "a" of Keys' kernel in either library


@dataclass(frozen=True, slots=True)
class FilterTaps:
    """Weights of source pixels.

    Attributes:
        index: int [target, taps], which pixels, all inside the line.
        weight: float64 [target, taps], their weights; they sum to 1.
    """

    index: Array
    weight: Array

    def along(self, values: Array, axis: int) -> Array:
        """Mix the lines of an array [height, width, channels] along axis 0 or 1, in the type of its values."""
        weight = self.weight.astype(values.dtype)
        if weight.shape[1] <= _FEW_TAPS:
            shape = (-1, 1, 1) if axis == 0 else (-1, 1)
            parts = (
                values.take(self.index[:, tap], axis=axis) * weight[:, tap].reshape(shape)
                for tap in range(weight.shape[1])
            )
            mixed: Array = sum(parts, start=np.zeros((), values.dtype))
            return mixed
        size = values.shape[axis]
        dense = np.zeros((len(weight), size), values.dtype)
        np.add.at(dense, (np.arange(len(weight))[:, None], self.index), weight)
        lines = np.moveaxis(values, axis, 0)
        product: Array = (dense @ lines.reshape(size, -1)).reshape(-1, *lines.shape[1:])
        return np.moveaxis(product, 0, axis)


def nearest_indices(size: int, target: int, style: Style) -> Array:
    """The one source pixel that each target pixel copies."""
    places = np.arange(target)
    if style == "antialiased":
        # Added up as Pillow does: on the border between two pixels its rounding decides.
        steps = np.full(target, size / target)
        steps[0] /= 2
        found = np.floor(np.cumsum(steps))
    elif style == "align-corners":
        # Half pixels go up, as onnx and torch have it.
        found = np.floor(places * ((size - 1) / max(target - 1, 1)) + 0.5)
    else:
        found = np.floor(places * (1 / (target / size)))
    inside: Array = np.minimum(found.astype(np.int64), size - 1)
    return inside


def line_taps(size: int, target: int, *, kernel: Kernel, style: Style) -> FilterTaps:
    """Weights for resizing a line of `size` pixels to `target`; OpenCV's are rounded to float32 as it does."""
    if kernel == "nearest":
        index = nearest_indices(size, target, style)[:, None]
        return FilterTaps(index, np.ones(index.shape))
    if style == "antialiased":
        return _antialiased_taps(size, target, kernel)
    if kernel == "area":
        return _area(size, target)
    places = _places(size, target, style)
    first = np.floor(places).astype(np.int64)
    # A float32 subtraction, as OpenCV's.
    part = (places - first.astype(np.float32)).astype(np.float32)
    return _interpolating(size, first, part, kernel=kernel)


def _places(size: int, target: int, style: Style) -> Array:
    """Where in the source each target pixel lies, float32 [target]."""
    indices = np.arange(target)
    if style == "align-corners":
        places = indices * ((size - 1) / max(target - 1, 1))
        return places.astype(np.float32)
    ratio = 1 / (target / size)
    return (indices * ratio if style == "asymmetric" else (indices + 0.5) * ratio - 0.5).astype(np.float32)


def _interpolating(size: int, first: Array, part: Array, *, kernel: Kernel) -> FilterTaps:
    one = np.float32(1)
    if kernel == "bilinear":
        weights = [one - part, part]
        offsets = np.arange(2)
    else:
        weights = _cubic_weights(part)
        offsets = np.arange(-1, 3)
    index = np.clip(first[:, None] + offsets, 0, size - 1)
    return FilterTaps(index, np.stack(weights, axis=1).astype(np.float64))


def _cubic_weights(part: Array) -> list[Array]:
    a, one = np.float32(_OPENCV_CUBIC), np.float32(1)
    far = part + one
    before = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    near = ((a + 2) * part - (a + 3)) * part * part + one
    rest = one - part
    after = ((a + 2) * rest - (a + 3)) * rest * rest + one
    return [before, near, after, one - before - near - after]


def _area(size: int, target: int) -> FilterTaps:
    """Each target pixel is the mean of what it covers."""
    ratio = size / target
    edges = np.arange(target + 1) * ratio
    first = np.floor(edges[:-1] + 1e-9).astype(np.int64)  # so that a whole number stays one
    most = int(np.ceil(ratio)) + 1
    index = first[:, None] + np.arange(most)
    covered = np.minimum(index + 1, edges[1:, None]) - np.maximum(index, edges[:-1, None])
    weight = np.clip(covered, 0, None)
    # OpenCV drops slivers below a thousandth of a pixel.
    weight[weight < 1e-3] = 0
    return FilterTaps(np.clip(index, 0, size - 1), weight / weight.sum(axis=1, keepdims=True))


def area_enlarging(size: int, target: int) -> FilterTaps:
    """OpenCV's area filter where either way enlarges: linear between the cells that a target pixel touches."""
    inverse = target / size
    indices = np.arange(target)
    first = np.floor(indices * (1 / inverse)).astype(np.int64)
    part = ((indices + 1) - (first + 1) * inverse).astype(np.float32)
    part = np.where(part <= 0, np.float32(0), part - np.floor(part)).astype(np.float32)
    return _interpolating(size, first, part, kernel="bilinear")


def _antialiased_taps(size: int, target: int, kernel: Kernel) -> FilterTaps:
    """A kernel that widens when shrinking, as Pillow and torchvision have it."""
    ratio = size / target
    widening = max(ratio, 1.0)
    support = {"area": 0.5, "bilinear": 1.0, "bicubic": 2.0}[kernel] * widening
    centre = (np.arange(target) + 0.5) * ratio
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), size)
    index = first[:, None] + np.arange(int((last - first).max()))
    weight = _shape((index - centre[:, None] + 0.5) / widening, kernel)
    weight[index >= last[:, None]] = 0
    return FilterTaps(np.minimum(index, size - 1), weight / weight.sum(axis=1, keepdims=True))


def _shape(distance: Array, kernel: Kernel) -> Array:
    if kernel == "area":
        return ((distance > -0.5) & (distance <= 0.5)).astype(np.float64)
    away = np.abs(distance)
    if kernel == "bilinear":
        triangle: Array = np.maximum(1 - away, 0)
        return triangle
    a = _PILLOW_CUBIC
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    cubic: Array = np.where(away < 1, near, np.where(away < 2, far, 0.0))
    return cubic


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

    @property
    def words(self) -> Message:
        """What people call it."""
        if self.kernel == "nearest" and self.style == "antialiased":
            return message("preprocessing.kernel_nearest_pillow")
        return message(f"preprocessing.kernel_{self.style.replace('-', '_')}", kernel=self.kernel)


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


def _interpolated(pixels: Array, rows: FilterTaps, columns: FilterTaps) -> Array:
    if pixels.dtype != np.uint8:
        return _mixed(pixels, rows, columns)
    across, down = (
        np.rint(taps.weight.astype(np.float32) * _OPENCV_ONE).astype(np.int32) for taps in (columns, rows)
    )
    wide = FilterTaps(columns.index, across).along(pixels.astype(np.int32), 1)
    parts = [(wide[rows.index[:, tap]], down[:, tap, None, None]) for tap in range(down.shape[1])]
    if len(parts) == 2:
        # Four bits are dropped before the product and sixteen behind it, so that 32 bits are enough.
        total = np.sum([(line >> 4) * weight >> 16 for line, weight in parts], axis=0) + 2 >> 2
    else:
        total = np.sum([line.astype(np.int64) * weight for line, weight in parts], axis=0) + (1 << 21) >> 22
    rounded: Array = np.clip(total, 0, 255).astype(np.uint8)
    return rounded


def _mixed(pixels: Array, rows: FilterTaps, columns: FilterTaps) -> Array:
    kind = pixels.dtype if pixels.dtype.kind == "f" and pixels.dtype.itemsize >= 4 else np.dtype(np.float32)
    return np.ascontiguousarray(columns.along(rows.along(pixels.astype(kind, copy=False), 0), 1))


def _meaned(pixels: Array, rows: FilterTaps, columns: FilterTaps, *, halved: bool) -> Array:
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


def _rounded_pass(pixels: Array, taps: FilterTaps, axis: int) -> Array:
    """In whole numbers, all of which float64 holds exactly."""
    scaled = taps.weight * _PILLOW_ONE
    whole = FilterTaps(taps.index, np.trunc(scaled + np.copysign(0.5, scaled)))
    mixed = whole.along(pixels.astype(np.float64), axis)
    return np.clip(np.floor((mixed + _PILLOW_ONE // 2) / _PILLOW_ONE), 0, 255).astype(np.uint8)


def _plain_pass(pixels: Array, taps: FilterTaps, axis: int) -> Array:
    kind = np.float64 if pixels.dtype == np.float64 else np.float32
    return taps.along(pixels.astype(kind, copy=False), axis)
