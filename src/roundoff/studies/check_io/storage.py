"""How bytes may have been misread: another element type or byte order, another sign, rows with padding."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array, DType
from roundoff.messages.message import message, verbatim
from roundoff.studies.check_io.result import Correction, InputChange

__all__ = ["Storage", "is_whole", "storages"]

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
class Storage:
    """One way to read the stored values again.

    Attributes:
        changes: What was wrong when it is right.
        read: Reads an array so; what the bytes do not hold is NaN.
        partial: Whether the bytes do not hold all of it.
    """

    changes: tuple[InputChange, ...]
    read: Callable[[Array], Array]
    partial: bool = False


def is_whole(array: Array) -> bool:
    """Whether all values are whole numbers."""
    if array.dtype.kind in "iub":
        return True
    finite = array[np.isfinite(array)]
    return bool(finite.size) and bool(np.all(finite == np.rint(finite)))


def storages(training: Array, deployed: Array) -> Iterator[Storage]:
    """All ways to read the deployed side's bytes again that give as many values as training has.

    Args:
        training: One sample of training.
        deployed: The same sample of the deployed side.
    """
    if training.size == deployed.size:
        yield from _signs(deployed)
        if deployed.dtype.itemsize > 1 and deployed.dtype.kind in "iuf":
            swapped = deployed.dtype.newbyteorder()
            change = InputChange(
                "byte-order",
                message("check_io.big_endian"),
                Correction(message("check_io.set_bytes"), message("check_io.set_swap_bytes")),
            )
            yield Storage((change,), lambda array: _as_type(array, swapped).reshape(array.shape))
    for name in _TYPES:
        if _fits(training, deployed, name):
            yield _retyped(name, deployed.dtype, training.shape)
    yield from _padded_rows(training.shape, deployed)


def _signs(deployed: Array) -> Iterator[Storage]:
    if deployed.dtype.itemsize > 1 and not is_whole(deployed):
        return
    low, high = float(deployed.min(initial=0)), float(deployed.max(initial=0))
    if low < 0 and low >= -_CODES / 2 and high < _CODES / 2:
        change = InputChange(
            "signedness",
            message("check_io.read_int"),
            Correction(_TYPE, verbatim("uint8"), (("element type", "uint8"),)),
        )
        yield Storage((change,), lambda array: np.where(array < 0, array.astype(np.float64) + _CODES, array))
    elif low >= 0 and high >= _CODES / 2 and high < _CODES:
        change = InputChange(
            "signedness",
            message("check_io.read_uint"),
            Correction(_TYPE, verbatim("int8"), (("element type", "int8"),)),
        )
        yield Storage(
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


def _retyped(name: str, had: DType, shape: tuple[int, ...]) -> Storage:
    text = message("check_io.stored_as", dtype=name, other=had.name)
    change = InputChange("element-type", text, Correction(_TYPE, verbatim(name)))
    return Storage((change,), lambda array: _as_type(array, name).reshape(shape))


def _as_type(array: Array, dtype: str | DType) -> Array:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if dtype == _BFLOAT16:
        wide: Array = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return wide
    values: Array = raw.view(dtype)
    return values.astype(values.dtype.newbyteorder("="))


def _padded_rows(shape: tuple[int, ...], deployed: Array) -> Iterator[Storage]:
    """Rows that are longer in memory than the picture is wide; what is longer is cut off."""
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
            change = InputChange(
                "row-padding",
                message("check_io.rows_padded", stride=stride, more=stride - row, row=row),
                Correction(_STRIDE, message("check_io.set_copy", row=row, stride=stride)),
            )
            yield Storage((change,), _without_padding(count, row, stride, arranged))


def _cut_off(size: int, count: int, row: int, stride: int) -> bool:
    """Whether a buffer of padded rows was copied as if it had none: its end is lost, most of it is there."""
    return size == count * row and size // stride >= _MOST_LOST * count


def _truncated(count: int, row: int, stride: int, shape: tuple[int, ...]) -> Storage:
    there = count * row // stride
    rows = {"stride": stride, "more": stride - row, "row": row}
    text = message("check_io.rows_padded_lost", **rows, lost=count - there, all=count)
    value = message("check_io.set_copy_all", row=row, stride=stride, all=count * stride)
    change = InputChange("row-padding", text, Correction(_STRIDE, value))

    def read(array: Array) -> Array:
        found = np.full((count, row), np.nan, np.float32 if array.dtype.itemsize <= 4 else np.float64)
        found[:there] = np.ascontiguousarray(array).reshape(-1)[: there * stride].reshape(there, stride)[:, :row]
        return found.reshape(shape)

    return Storage((change,), read, partial=True)


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
