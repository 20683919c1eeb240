"""Ways from an original picture to a model's input: conversion from YUV, size and place."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.data.geometry import Placement, place, placed
from roundoff.data.processing.colours import PACKED_FORMATS, PackedFormat, unpacked
from roundoff.data.processing.csc import MATRICES
from roundoff.data.processing.resizing import Resampling, resized
from roundoff.errors import BadInput

__all__ = ["RESAMPLINGS", "Decoding", "Pipeline", "Shaping", "decodings", "shapings"]

RESAMPLINGS = (
    Resampling("bilinear"),
    Resampling("bilinear", "antialiased"),
    Resampling("nearest"),
    Resampling("nearest", "antialiased"),
    Resampling("bicubic"),
    Resampling("bicubic", "antialiased"),
    Resampling("area"),
    Resampling("bilinear", "align-corners"),
    Resampling("bilinear", "asymmetric"),
    Resampling("nearest", "align-corners"),
)
"""All that are tried, the most usual first."""

# What is scaled to before the middle is cut out, relative to the size of the input: 256 for 224, and kin.
_CROP_RATIOS = (1.0, 256 / 224, 1 / 0.9, 1 / 0.95, 232 / 224)

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Decoding:
    """How an original becomes red, green and blue.

    Attributes:
        color: The packed YUV it is read as; None for a picture as it is.
        matrix: Name of the conversion.
    """

    color: PackedFormat | None = None
    matrix: str = ""

    def apply(self, original: Array) -> Array:
        """The picture [height, width, channels]; bytes stay bytes.

        Raises:
            BadInput: It is no such picture.
        """
        if self.color is None:
            return original
        rows = np.array(MATRICES[self.matrix]).reshape(3, 4)
        planes = unpacked(original, self.color).astype(np.float64)
        colors: Array = np.rint(np.clip(planes @ rows[:, :3].T + rows[:, 3], 0, 255)).astype(np.uint8)
        return colors

    def __str__(self) -> str:
        """In words."""
        return f"{self.color} by {self.matrix}" if self.color else "as it is"


@dataclass(frozen=True, slots=True)
class Shaping:
    """Where the picture comes to lie.

    Attributes:
        mode: ``as it is``, ``stretch``, ``letterbox``, ``corner`` (a letterbox from the top left), ``crop``
            (scale, then the middle), ``cut`` (the middle without scaling) or ``cut corner`` (the top left).
        scale_to: For ``crop``: the size that is covered.
    """

    mode: str
    scale_to: Size | None = None

    def placement(self, had: Size, wanted: Size) -> Placement | None:
        """The geometry for a picture of `had` and an input of `wanted`; None when it cannot be."""
        if self.mode in ("as it is", "cut", "cut corner"):
            if had[0] < wanted[0] or had[1] < wanted[1]:
                return None
            middle = tuple(round((full - part) / 2) for full, part in zip(had, wanted, strict=True))
            top, left = middle if self.mode == "cut" else (0, 0)
            return Placement(had, (-top, -left), wanted)
        if self.mode == "crop":
            return place(had, self.scale_to or wanted, canvas=wanted, mode="crop")
        if self.mode == "stretch":
            return Placement(wanted, (0, 0), wanted)
        boxed = place(had, wanted, canvas=wanted, mode="letterbox")
        return boxed if self.mode == "letterbox" else replace(boxed, offset=(0, 0))

    def __str__(self) -> str:
        """In words."""
        if self.mode == "crop":
            size = self.scale_to or (0, 0)
            return f"scaled to cover {size[0]}x{size[1]}, middle cut out"
        return {
            "as it is": "not resized",
            "stretch": "stretched",
            "letterbox": "letterboxed, centred",
            "corner": "letterboxed, in the top left corner",
            "cut": "middle cut out without resizing",
            "cut corner": "top left corner cut out without resizing",
        }[self.mode]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """From an original to the picture that is made into numbers.

    Attributes:
        decoding: From the stored original to colours.
        shaping: Size and place.
        resampling: How pixels are mixed; does not matter where nothing is resized.
        rounded: Whether resized pixels are bytes again.
    """

    decoding: Decoding
    shaping: Shaping
    resampling: Resampling
    rounded: bool

    def apply(self, original: Array, wanted: Size) -> tuple[Array, Placement] | None:
        """The picture [height, width, channels] without its border, and where it lies; None when it cannot be."""
        try:
            pixels = self.decoding.apply(original)
        except BadInput:
            return None
        placement = self.shaping.placement((pixels.shape[0], pixels.shape[1]), wanted)
        if placement is None:
            return None
        if pixels.dtype == np.uint8 and not self.rounded:
            pixels = pixels.astype(np.float32)
        scaled = resized(pixels, placement.resized, self.resampling)
        if self.shaping.mode in ("letterbox", "corner"):
            return scaled, placement
        return placed(scaled, placement, pad=0), placement

    @property
    def resizes(self) -> bool:
        """Whether the size changes."""
        return self.shaping.mode in ("stretch", "letterbox", "corner", "crop")

    def words(self) -> tuple[str, ...]:
        """What is done, step by step."""
        steps = [] if self.decoding.color is None else [f"decoded as {self.decoding}"]
        steps.append(str(self.shaping))
        if self.resizes:
            steps.append(f"resized {self.resampling}, {'in bytes' if self.rounded else 'in float'}")
        return tuple(steps)


def decodings(original: Array) -> Iterator[Decoding]:
    """How an original [height, width, channels] may be read."""
    if original.shape[2] in (3, 4) or (original.shape[2] == 1 and original.shape[0] % 3):
        yield Decoding()
        return
    yield Decoding()
    for color in PACKED_FORMATS:
        if original.dtype == np.uint8 and original.shape[2] == (1 if "420" in color else 2):
            for matrix in MATRICES:
                yield Decoding(color, matrix)


def shapings(had: Size, wanted: Size) -> Iterator[Shaping]:
    """Sizes and places that bring a picture to the wanted size, the most usual first."""
    if had == wanted:
        yield Shaping("as it is")
        return
    yield Shaping("stretch")
    if had[0] * wanted[1] != had[1] * wanted[0]:
        yield from (Shaping("letterbox"), Shaping("corner"))
    sizes = {tuple(round(side * ratio) for side in wanted) for ratio in _CROP_RATIOS}
    for height, width in sorted(sizes):
        # Where nothing is scaled it is a plain cut.
        if place(had, (height, width), canvas=wanted, mode="crop").resized != had:
            yield Shaping("crop", (height, width))
    if had[0] >= wanted[0] and had[1] >= wanted[1]:
        yield from (Shaping("cut"), Shaping("cut corner"))
