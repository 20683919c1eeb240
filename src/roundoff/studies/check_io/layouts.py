"""How the values of one side may lie in the array of the other: layouts, turned and mirrored pictures."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array, DType
from roundoff.messages.message import message, verbatim
from roundoff.studies.check_io.result import Correction, IoChange

_CHANNELS = (1, 3, 4)

View = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class ArrayReading:
    """One way to read an array as a picture [height, width, channels].

    Attributes:
        changes: What differs when it is read so.
        view: Reads an array so; makes no copy.
    """

    changes: tuple[IoChange, ...]
    view: View


def unbatched(array: Array) -> Array:
    """The array without leading axes of one, down to rank 3."""
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    return array


def squeezed(array: Array) -> Array:
    """The same; a plane gets a channel axis in front."""
    return array[np.newaxis] if array.ndim == 2 else unbatched(array)


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


def readings(layout: str, picture: tuple[int, int, int], shape: tuple[int, ...]) -> Iterator[ArrayReading]:
    """All ways in which an array of `shape` may hold the picture, the plainest first.

    Args:
        layout: Training's layout.
        picture: Height, width and channels of training's picture.
        shape: Shape of the deployed side's array.
    """
    for changes, view in _stored(layout, picture, shape):
        for transposed, mirrored, flipped in itertools.product((False, True), repeat=3):
            yield ArrayReading(
                (*changes, *_turns(transposed, mirrored, flipped)), _turning(view, transposed, mirrored, flipped)
            )


def _stored(
    layout: str, picture: tuple[int, int, int], shape: tuple[int, ...]
) -> Iterator[tuple[tuple[IoChange, ...], View]]:
    """By the array's own shape, then by its memory under another shape."""
    # A reshape where a transpose was meant leaves the memory as it was under a shape that looks right. Only
    # readings that the shape itself does not give are tried, so that no way is proposed twice.
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


def _turns(transposed: bool, mirrored: bool, flipped: bool) -> tuple[IoChange, ...]:
    changes = []
    if transposed:
        changes.append(
            IoChange(
                "transposed",
                message("check_io.transposed"),
                Correction(message("check_io.set_axes"), message("check_io.set_height_first")),
            )
        )
    flip = message("check_io.set_flip")
    if mirrored:
        correction = Correction(flip, message("check_io.set_no_horizontal"))
        changes.append(IoChange("mirrored", message("check_io.mirrored"), correction))
    if flipped:
        correction = Correction(flip, message("check_io.set_no_vertical"))
        changes.append(IoChange("upside-down", message("check_io.upside_down"), correction))
    return tuple(changes)


def layout_change(wanted: str, had: str) -> IoChange:
    """The deployed side has another layout than training."""
    value, facts = message("check_io.set_transpose", had=had, wanted=wanted), _layout_facts(wanted, had)
    correction = Correction(message("check_io.set_layout"), value, facts)
    return IoChange("layout", message("check_io.layouts", had=had, wanted=wanted), correction)


def _layout_facts(wanted: str, had: str) -> tuple[tuple[str, str], ...]:
    return (("layout", had), ("training's layout", wanted))


def _reshaped_change(wanted: str, had: str) -> IoChange:
    shape = verbatim(wanted) if had != wanted else message("check_io.another_layout")
    value, facts = message("check_io.set_no_reshape_to", had=had, wanted=wanted), _layout_facts(wanted, had)
    correction = Correction(message("check_io.set_layout"), value, facts)
    return IoChange("reshaped", message("check_io.order_of_layout", had=had, shape=shape), correction)


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


_PADDINGS: tuple[Literal["edge", "reflect", "symmetric", "wrap"], ...] = ("edge", "reflect", "symmetric", "wrap")


def is_padding(pixels: Array, box: Box) -> bool:
    """Whether what lies around a part of a picture is of one colour, or made of the part's edges."""
    outside = np.ones(pixels.shape[:2], bool)
    box.cut(outside)[:] = False
    around = pixels[outside].astype(np.float64)
    slack = _FLAT * float(np.ptp(pixels.astype(np.float64)))
    if not around.size or float(np.ptp(around, axis=0).max()) <= slack:
        return True
    height, width = pixels.shape[:2]
    widths = ((box.top, height - box.bottom), (box.left, width - box.right), (0, 0))
    made = (np.pad(box.cut(pixels), widths, mode=mode)[outside] for mode in _PADDINGS)
    return any(float(np.abs(each - around).max()) <= slack for each in made)


_TYPE, _STRIDE = message("check_io.set_type"), message("check_io.set_stride")
_CODES = 256
_TYPES = ("uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32", "int32", "float64")
_BFLOAT16 = "bfloat16"
# Rows are padded to multiples of these, by whoever pads them.
_ALIGNMENTS = (2, 4, 8, 16, 32, 64, 128, 256)
# A buffer that was cut off must hold so much of its rows.
_MOST_LOST = 0.5
# Values of a wrong type are mostly of this kind: not numbers, or of impossible size.
_LARGEST_SENSIBLE = 1e6


@dataclass(frozen=True, slots=True)
class Reinterpretation:
    """One way to read the stored values again.

    Attributes:
        changes: What was wrong when it is right.
        read: Reads an array so; what the bytes do not hold is NaN.
        partial: Whether the bytes do not hold all of it.
    """

    changes: tuple[IoChange, ...]
    read: Callable[[Array], Array]
    partial: bool = False


def is_whole(array: Array) -> bool:
    """Whether all values are whole numbers."""
    if array.dtype.kind in "iub":
        return True
    finite = array[np.isfinite(array)]
    return bool(finite.size) and bool(np.all(finite == np.rint(finite)))


def storages(training: Array, deployed: Array) -> Iterator[Reinterpretation]:
    """All ways to read the deployed side's bytes again that give as many values as training has.

    Args:
        training: One sample of training.
        deployed: The same sample of the deployed side.
    """
    if training.size == deployed.size:
        yield from _signs(deployed)
        if deployed.dtype.itemsize > 1 and deployed.dtype.kind in "iuf":
            swapped = deployed.dtype.newbyteorder()
            change = IoChange(
                "byte-order",
                message("check_io.big_endian"),
                Correction(message("check_io.set_bytes"), message("check_io.set_swap_bytes")),
            )
            yield Reinterpretation((change,), lambda array: _as_type(array, swapped).reshape(array.shape))
    for name in _TYPES:
        if _fits(training, deployed, name):
            yield _retyped(name, deployed.dtype, training.shape)
    yield from _padded_rows(training.shape, deployed)


def _signs(deployed: Array) -> Iterator[Reinterpretation]:
    if deployed.dtype.itemsize > 1 and not is_whole(deployed):
        return
    low, high = float(deployed.min(initial=0)), float(deployed.max(initial=0))
    if low < 0 and low >= -_CODES / 2 and high < _CODES / 2:
        change = IoChange(
            "signedness",
            message("check_io.read_int"),
            Correction(_TYPE, verbatim("uint8"), (("element type", "uint8"),)),
        )
        yield Reinterpretation(
            (change,), lambda array: np.where(array < 0, array.astype(np.float64) + _CODES, array)
        )
    elif low >= 0 and high >= _CODES / 2 and high < _CODES:
        change = IoChange(
            "signedness",
            message("check_io.read_uint"),
            Correction(_TYPE, verbatim("int8"), (("element type", "int8"),)),
        )
        yield Reinterpretation(
            (change,), lambda array: np.where(array >= _CODES // 2, array.astype(np.float64) - _CODES, array)
        )


def _fits(training: Array, deployed: Array, name: str) -> bool:
    width = 2 if name == _BFLOAT16 else np.dtype(name).itemsize
    same = name == deployed.dtype.name or (width == deployed.dtype.itemsize == 1)
    if same or deployed.nbytes != width * training.size or deployed.dtype.kind not in "iuf":
        return False
    # Whole values of any of the types.
    values = _as_type(np.ascontiguousarray(deployed).reshape(-1)[: 1 << 14], name)
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(values).all() and np.abs(values).max(initial=0) < _LARGEST_SENSIBLE)


def _retyped(name: str, had: DType, shape: tuple[int, ...]) -> Reinterpretation:
    text = message("check_io.stored_as", dtype=name, other=had.name)
    change = IoChange("element-type", text, Correction(_TYPE, verbatim(name)))
    return Reinterpretation((change,), lambda array: _as_type(array, name).reshape(shape))


def _as_type(array: Array, dtype: str | DType) -> Array:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if dtype == _BFLOAT16:
        wide: Array = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return wide
    values: Array = raw.view(dtype)
    return values.astype(values.dtype.newbyteorder("="))


def _padded_rows(shape: tuple[int, ...], deployed: Array) -> Iterator[Reinterpretation]:
    """Rows that are longer in memory than the picture is wide; what is longer is cut off."""
    # Drivers align rows, not pixels: a row takes `stride` values of which the first `row` count. Which axes make
    # up a row depends on the layout in memory, which need not be training's.
    core = tuple(size for size in shape if size > 1)
    if len(core) not in (2, 3) or deployed.size < math.prod(core):
        return
    seen = set()
    for count, row, arranged in _lines(core, shape):
        for stride in _strides(row, count, deployed.size):
            whole = stride * (count - 1) + row <= deployed.size
            if (count, stride, arranged) in seen or not (whole or _cut_off(deployed.size, count, row, stride)):
                continue
            seen.add((count, stride, arranged))
            if not whole:
                yield _truncated(count, row, stride, arranged)
                continue
            if picture_of(deployed.shape) and not _is_filled(deployed, count, row, stride):
                continue  # more of a picture, and no filling
            change = IoChange(
                "row-padding",
                message("check_io.rows_padded", stride=stride, more=stride - row, row=row),
                Correction(_STRIDE, message("check_io.set_copy", row=row, stride=stride)),
            )
            yield Reinterpretation((change,), _without_padding(count, row, stride, arranged))


def _is_filled(array: Array, count: int, row: int, stride: int) -> bool:
    """Whether what is behind each row holds nothing of its own."""
    flat = np.ascontiguousarray(array).reshape(-1)
    lines = flat[: min(count, flat.size // stride) * stride].reshape(-1, stride, 1)
    return is_padding(lines, Box(0, len(lines), 0, row))


def _cut_off(size: int, count: int, row: int, stride: int) -> bool:
    """Whether a buffer of padded rows was copied as if it had none: its end is lost, most of it is there."""
    return size == count * row and size // stride >= _MOST_LOST * count


def _truncated(count: int, row: int, stride: int, shape: tuple[int, ...]) -> Reinterpretation:
    there = count * row // stride
    rows = {"stride": stride, "more": stride - row, "row": row}
    text = message("check_io.rows_padded_lost", **rows, lost=count - there, all=count)
    value = message("check_io.set_copy_all", row=row, stride=stride, all=count * stride)
    change = IoChange("row-padding", text, Correction(_STRIDE, value))

    def read(array: Array) -> Array:
        found = np.full((count, row), np.nan, np.float32 if array.dtype.itemsize <= 4 else np.float64)
        found[:there] = np.ascontiguousarray(array).reshape(-1)[: there * stride].reshape(there, stride)[:, :row]
        return found.reshape(shape)

    return Reinterpretation((change,), read, partial=True)


def _lines(core: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Number of rows, length of a row, and the shape that they make, for every layout there may be."""
    yield math.prod(core[:-1]), core[-1], shape
    yield core[0], math.prod(core[1:]), shape
    if len(core) == 3:
        channels, height, width = core
        if channels <= 4:
            yield height, width * channels, (1, height, width, channels)
        height, width, channels = core
        if channels <= 4:
            yield channels * height, width, (1, channels, height, width)


def _strides(row: int, count: int, size: int) -> list[int]:
    aligned = [-(-row // unit) * unit for unit in _ALIGNMENTS]
    whole = [size // count] if size % count == 0 else []
    return [stride for stride in dict.fromkeys((*whole, *aligned)) if stride > row]


def _without_padding(count: int, row: int, stride: int, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    def read(array: Array) -> Array:
        flat = np.ascontiguousarray(array).reshape(-1)
        last = stride * (count - 1)
        rows = np.concatenate([flat[:last].reshape(-1, stride)[:, :row], flat[last : last + row][None]])
        return rows.reshape(shape)

    return read
