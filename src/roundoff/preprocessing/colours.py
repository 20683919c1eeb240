"""Colour spaces: how many channels, in which order, and how YUV is packed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.messages.message import english

PackedFormat = Literal["YUV420SP", "YVU420SP", "YUYV422", "UYVY422"]
PlainFormat = Literal["BGR", "RGB", "GRAY", "RGBA", "BGRA", "RAW"]
ColorFormat: TypeAlias = PlainFormat | PackedFormat

PACKED_FORMATS: tuple[PackedFormat, ...] = get_args(PackedFormat)
"""YUV with chroma of half the width: YUV420SP is NV12, YVU420SP is NV21."""

_CHANNELS = {"BGR": 3, "RGB": 3, "GRAY": 1, "RGBA": 4, "BGRA": 4}
# Bytes of two neighbouring pixels: first luma, U, second luma, V.
_ORDERS_422 = {"YUYV422": (0, 1, 2, 3), "UYVY422": (1, 0, 3, 2)}
_LUMA = np.array((0.299, 0.587, 0.114))  # BT.601


def channel_count(color: ColorFormat) -> int | None:
    """Channels of a format once it is unpacked; None for RAW, which may have any number."""
    return 3 if color in PACKED_FORMATS else _CHANNELS.get(color)


def reordered(pixels: Array, had: ColorFormat, wanted: ColorFormat) -> Array:
    """Bring channels (the last axis) from one order of red, green, blue and alpha to another.

    Alpha is dropped where it is not wanted; gray becomes three equal channels.

    Raises:
        BadInput: One side has no red, green and blue.
    """
    if had == wanted:
        return pixels
    if wanted == "GRAY":
        return to_gray(pixels, had)
    if had == "GRAY" and wanted in ("RGB", "BGR"):
        return np.repeat(pixels, 3, axis=-1)
    if not set(wanted) <= set(had) or "U" in had + wanted:
        raise BadInput(
            english("{had} cannot become {wanted} by moving channels.", had=had, wanted=wanted),
            fix=english("convert the colours first"),
        )
    return pixels[..., [had.index(letter) for letter in wanted]]


def to_gray(pixels: Array, had: ColorFormat) -> Array:
    """Luma of BT.601 as one channel; bytes are rounded."""
    color = reordered(pixels, had, "RGB")
    luma: Array = (color @ _LUMA)[..., np.newaxis]
    return np.rint(luma).astype(np.uint8) if pixels.dtype == np.uint8 else luma.astype(pixels.dtype)


def packed_shape(height: int, width: int, color: PackedFormat) -> tuple[int, int, int]:
    """Height, width and channels of the stored array for a picture of so many pixels.

    Raises:
        BadInput: Chroma cannot be halved.
    """
    _check_even(height, width, color)
    return (height * 3 // 2, width, 1) if _is_420(color) else (height, width, 2)


def unpacked(stored: Array, color: PackedFormat) -> Array:
    """YUV as three full planes; each chroma value is repeated for the pixels that share it.

    Args:
        stored: [..., height * 3/2, width, 1] for 4:2:0, [..., height, width, 2] for 4:2:2.
        color: How it is packed.

    Returns:
        [..., height, width, 3] of the same type: Y, U, V.

    Raises:
        BadInput: The shape is none of this format.
    """
    *_, rows, width, last = stored.shape if stored.ndim >= 3 else (0, 0, 0)
    height = rows * 2 // 3 if _is_420(color) else rows
    if last != (1 if _is_420(color) else 2) or (_is_420(color) and rows % 3) or height < 1:
        expected = english("[height * 3/2, width, 1]") if _is_420(color) else english("[height, width, 2]")
        raise BadInput(
            "An array of {shape} is no picture in {color}, which is stored as {expected}.",
            fix=english("give the height, width and format that the picture was written with"),
            shape=list(stored.shape),
            color=color,
            expected=expected,
        )
    _check_even(height, width, color)
    if _is_420(color):
        luma = stored[..., :height, :, 0]
        pairs = stored[..., height:, :, 0].reshape(*stored.shape[:-3], height // 2, width // 2, 2)
        chroma = pairs.repeat(2, axis=-3).repeat(2, axis=-2)
        u, v = (0, 1) if color == "YUV420SP" else (1, 0)
        return np.stack([luma, chroma[..., u], chroma[..., v]], axis=-1)
    quads = stored.reshape(*stored.shape[:-2], width // 2, 4)[..., list(_ORDERS_422[color])]
    luma = quads[..., [0, 2]].reshape(*stored.shape[:-1])
    return np.stack([luma, quads[..., 1].repeat(2, axis=-1), quads[..., 3].repeat(2, axis=-1)], axis=-1)


def packed(planes: Array, color: PackedFormat) -> Array:
    """The inverse of `unpacked`: shared chroma is the mean of the pixels that share it, rounded half up.

    Args:
        planes: [..., height, width, 3]: Y, U, V; uint8 or float.
        color: How to pack them.
    """
    *lead, height, width, _ = planes.shape
    _check_even(height, width, color)
    high = 2 if _is_420(color) else 1
    cells = planes[..., 1:].reshape(*lead, height // high, high, width // 2, 2, 2).astype(np.float64)
    chroma = cells.mean(axis=(-4, -2))
    if planes.dtype.kind in "iu":
        chroma = np.floor(chroma + 0.5)
    chroma = chroma.astype(planes.dtype)
    if _is_420(color):
        pairs = chroma if color == "YUV420SP" else chroma[..., ::-1]
        joined = np.concatenate([planes[..., 0], pairs.reshape(*lead, height // 2, width)], axis=-2)
        return joined[..., np.newaxis]
    luma = planes[..., 0].reshape(*lead, height, width // 2, 2)
    quads = np.stack([luma[..., 0], chroma[..., 0], luma[..., 1], chroma[..., 1]], axis=-1)
    places = list(_ORDERS_422[color])
    return quads[..., [places.index(place) for place in range(4)]].reshape(*lead, height, width, 2)


def _is_420(color: PackedFormat) -> bool:
    return color in ("YUV420SP", "YVU420SP")


def _check_even(height: int, width: int, color: PackedFormat) -> None:
    if width % 2 or (_is_420(color) and height % 2):
        raise BadInput(
            "A picture of {height}x{width} pixels cannot be {color}: its chroma has half the size.",
            fix=english("use an even height and width"),
            height=height,
            width=width,
            color=color,
        )


# From YUV to red, green and blue: ranges, matrices, and what a chip accepts.

CscMode = Literal["none", "matrix", "full-range", "limited-range"]

MATRICES: dict[str, tuple[float, ...]] = {
    # Rows R, G, B; columns Y, U, V and an offset in units of pixels.
    "BT.601 limited range": (1.164, 0, 1.596, -222.912, 1.164, -0.392, -0.813, 135.616, 1.164, 2.017, 0, -276.8),
    "BT.601 full range": (1, 0, 1.402, -179.456, 1, -0.344136, -0.714136, 135.458816, 1, 1.772, 0, -226.816),
    "BT.709 limited range": (1.164, 0, 1.793, -248.128, 1.164, -0.213, -0.533, 76.864, 1.164, 2.112, 0, -288.96),
    "BT.709 full range": (1, 0, 1.5748, -201.5744, 1, -0.187324, -0.468124, 83.897344, 1, 1.8556, 0, -237.5168),
}
"""Full range of BT.601 as JFIF defines it; limited range with the three digits that drivers and chips use."""


def yuv_to_rgb(red: float, blue: float, *, limited: bool) -> tuple[float, ...]:
    """The exact matrix of a standard, as `MATRICES` has it.

    Args:
        red: Weight of red in luma.
        blue: Weight of blue in luma.
        limited: Whether luma spans 16..235 and chroma 16..240.
    """
    green = 1 - red - blue
    luma, chroma = (255 / 219, 255 / 224) if limited else (1.0, 1.0)
    first, last = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma
    rows = ((0.0, first), (-last * blue / green, -first * red / green), (last, 0.0))
    black = 16 * luma if limited else 0.0
    return tuple(number for u, v in rows for number in (luma, u, v, -black - 128 * (u + v)))


# Weights of red and blue in luma, ITU-R BT.601 and BT.709.
_LUMA_WEIGHTS = {"BT.601": (0.299, 0.114), "BT.709": (0.2126, 0.0722)}
# OpenCV's own digits of BT.601 in limited range.
_OPENCV = (1.164, 0, 1.596, -222.912, 1.164, -0.391, -0.813, 135.488, 1.164, 2.018, 0, -276.928)

MATRIX_DIGITS: dict[str, tuple[tuple[float, ...], ...]] = {
    name: (
        yuv_to_rgb(*_LUMA_WEIGHTS[name[:6]], limited="limited" in name),
        *((rounded,) if "limited" in name else ()),
        *((_OPENCV,) if name == "BT.601 limited range" else ()),
    )
    for name, rounded in MATRICES.items()
}
"""Each of `MATRICES` exactly, as float pipelines compute it, then with the digits that others round it to."""

GRAY_WEIGHTS: dict[str, tuple[float, float, float]] = {
    "0.299 R + 0.587 G + 0.114 B": (0.299, 0.587, 0.114),
    "0.2126 R + 0.7152 G + 0.0722 B": (0.2126, 0.7152, 0.0722),
    "(R + G + B) / 3": (1 / 3, 1 / 3, 1 / 3),
}
"""How gray is made of red, green and blue: luma of BT.601 (OpenCV, Pillow), of BT.709, the mean."""


def _srgb_decoded(coded: Array) -> Array:
    """IEC 61966-2-1: values of files from 0 to 1 as linear light."""
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def _srgb_encoded(light: Array) -> Array:
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


def _power(exponent: float) -> Callable[[Array], Array]:
    return lambda values: np.asarray(values**exponent)


_EXPONENTS = {"22": 2.2, "18": 1.8, "20": 2.0, "24": 2.4}

TRANSFER_CURVES: dict[str, Callable[[Array], Array]] = {
    "srgb_decoded": _srgb_decoded,
    "srgb_encoded": _srgb_encoded,
    **{f"power_{name}": _power(exponent) for name, exponent in _EXPONENTS.items()},
    **{f"root_{name}": _power(1 / exponent) for name, exponent in _EXPONENTS.items()},
}
"""Curves from 0..1 to 0..1 by which pixels become linear light or come from it."""

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
                what = english(
                    "A colour matrix was given, but the conversion is {mode!r}, which does not use it.",
                    mode=self.mode,
                )
                raise BadInput(what, fix=english("set the conversion to matrix, or leave the matrix out"))
            return
        if len(self.matrix) != 12:
            what = english("The colour matrix has {count} numbers.", count=len(self.matrix))
            raise BadInput(what, fix=english("give 12: three rows of Y, U, V and an offset"))
        wrong = [_complaint(place, value) for place, value in enumerate(self.matrix)]
        if any(wrong):
            raise BadInput(
                "The colour matrix is out of its limits: {filter}.",
                fix=english(
                    "offsets count in units of {offset_unit}: write -222.912 as -0.871", offset_unit=_OFFSET_UNIT
                ),
                filter="; ".join(filter(None, wrong)),
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
    return converted(values, conversion_rows(csc, reverse=reverse))


def converted(planes: Array, rows: Array) -> Array:
    """Convert [..., 3] of Y, U, V by a matrix [3, 4], offsets in units of pixels; cut to 0..255, not rounded."""
    colors: Array = np.clip(planes.astype(np.float64) @ rows[:, :3].T + rows[:, 3], 0, 255)
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
