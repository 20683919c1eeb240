"""How the values of one side may lie in the array of the other: layouts, turned and mirrored pictures."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import message, verbatim
from roundoff.studies.check_io.result import Correction, InputChange

__all__ = [
    "Box",
    "Reading",
    "content_box",
    "layout_change",
    "other_layout",
    "picture_of",
    "readings",
    "squeezed",
]


_CHANNELS = (1, 3, 4)

View = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read an array as a picture [height, width, channels].

    Attributes:
        changes: What differs when it is read so.
        view: Reads an array so; makes no copy.
    """

    changes: tuple[InputChange, ...]
    view: View


def squeezed(array: Array) -> Array:
    """The array without leading axes of one, down to rank 3; a plane gets a channel axis."""
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    return array[np.newaxis] if array.ndim == 2 else array


def picture_of(shape: tuple[int, ...]) -> list[tuple[str, View]]:
    """How an array of training's may be read as a picture; empty when it is none."""
    if len(shape) == 2:
        shape = (1, *shape)
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != 3 or min(shape) < 1:
        return []
    found: list[tuple[str, View]] = []
    if shape[0] in _CHANNELS and min(shape[1:]) > 1:
        found.append(("NCHW", lambda array: squeezed(array).transpose(1, 2, 0)))
    if shape[2] in _CHANNELS and min(shape[:2]) > 1:
        found.append(("NHWC", squeezed))
    return found


def other_layout(array: Array) -> Array | None:
    """The same memory with the channels at the other end; None where they are nowhere, at both or alone."""
    layouts = picture_of(array.shape)
    if len(layouts) != 1:
        return None
    layout, view = layouts[0]
    height, width, channels = view(array).shape
    if channels == 1:
        return None
    shape = (1, height, width, channels) if layout == "NCHW" else (1, channels, height, width)
    return np.ascontiguousarray(array).reshape(shape)


def readings(layout: str, picture: tuple[int, int, int], shape: tuple[int, ...]) -> Iterator[Reading]:
    """All ways in which an array of `shape` may hold the picture, the plainest first.

    Args:
        layout: Training's layout.
        picture: Height, width and channels of training's picture.
        shape: Shape of the deployed side's array.
    """
    for changes, view in _stored(layout, picture, shape):
        for transposed, mirrored, flipped in itertools.product((False, True), repeat=3):
            yield Reading(
                (*changes, *_turns(transposed, mirrored, flipped)), _turning(view, transposed, mirrored, flipped)
            )


def _stored(
    layout: str, picture: tuple[int, int, int], shape: tuple[int, ...]
) -> Iterator[tuple[tuple[InputChange, ...], View]]:
    """By the array's own shape, then by its memory under another shape."""
    shown = [
        (name, view)
        for name, view in picture_of(shape)
        if _sizes(view, shape)[:2] in (picture[:2], picture[1::-1])
    ]
    for name, view in shown:
        yield (() if name == layout else (layout_change(layout, name),)), view
    if np.prod(shape) != np.prod(picture) or picture[2] == 1:
        return
    height, width, channels = picture
    for rows, columns in dict.fromkeys(((height, width), (width, height))):
        for name, memory in (("NHWC", (rows, columns, channels)), ("NCHW", (channels, rows, columns))):
            if not any(name == seen and _sizes(view, shape)[:2] == (rows, columns) for seen, view in shown):
                yield (_reshaped_change(layout, name),), _in_memory(name, memory)


def _in_memory(name: str, memory: tuple[int, int, int]) -> View:
    if name == "NHWC":
        return lambda array: np.ascontiguousarray(array).reshape(memory)
    return lambda array: np.ascontiguousarray(array).reshape(memory).transpose(1, 2, 0)


def _sizes(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    return view(np.broadcast_to(np.float32(0), shape)).shape


def _turning(view: View, transposed: bool, mirrored: bool, flipped: bool) -> View:
    def turned(array: Array) -> Array:
        pixels = view(array)
        pixels = pixels.transpose(1, 0, 2) if transposed else pixels
        pixels = pixels[:, ::-1] if mirrored else pixels
        return pixels[::-1] if flipped else pixels

    return turned


def _turns(transposed: bool, mirrored: bool, flipped: bool) -> tuple[InputChange, ...]:
    changes = []
    if transposed:
        changes.append(
            InputChange(
                "transposed",
                message("check_io.transposed"),
                Correction(message("check_io.set_axes"), message("check_io.set_height_first")),
            )
        )
    flip = message("check_io.set_flip")
    if mirrored:
        correction = Correction(flip, message("check_io.set_no_horizontal"))
        changes.append(InputChange("mirrored", message("check_io.mirrored"), correction))
    if flipped:
        correction = Correction(flip, message("check_io.set_no_vertical"))
        changes.append(InputChange("upside-down", message("check_io.upside_down"), correction))
    return tuple(changes)


def layout_change(wanted: str, had: str) -> InputChange:
    """The deployed side has another layout than training."""
    value, facts = message("check_io.set_transpose", had=had, wanted=wanted), _layout_facts(wanted, had)
    correction = Correction(message("check_io.set_layout"), value, facts)
    return InputChange("layout", message("check_io.layouts", had=had, wanted=wanted), correction)


def _layout_facts(wanted: str, had: str) -> tuple[tuple[str, str], ...]:
    return (("layout", had), ("training's layout", wanted))


def _reshaped_change(wanted: str, had: str) -> InputChange:
    shape = verbatim(wanted) if had != wanted else message("check_io.another_layout")
    value, facts = message("check_io.set_no_reshape_to", had=had, wanted=wanted), _layout_facts(wanted, had)
    correction = Correction(message("check_io.set_layout"), value, facts)
    return InputChange("reshaped", message("check_io.order_of_layout", had=had, shape=shape), correction)


# Constant borders: where a letterboxed picture lies, and what surrounds it.

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
