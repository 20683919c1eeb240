"""Bringing an NPU tensor and its golden counterpart into one layout, by the vendor's decisions."""

import json
import math
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, map_bytes
from roundoff.core.files import write_bytes, write_text, writing
from roundoff.core.tensors import Array
from roundoff.errors import MissingExtra
from roundoff.messages.message import english
from roundoff.tensors.ascend_dump.header import FORMAT_NUMBERS, Dump, DumpTensor, read_dump
from roundoff.tensors.ascend_dump.layouts import (
    PLAIN,
    LaidOutValues,
    LayoutUndo,
    as_format,
    inverse_layout,
    relayout,
    restore,
)
from roundoff.tensors.ascend_dump.names import parse_dump_name, read_record, true_name
from roundoff.tensors.ascend_dump.source import device_shape, map_tensor
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.rules import Warn

Convert = Callable[[tuple[int, ...], tuple[int, ...], Array], Array]
"""A conversion of the user's: from the device's shape and the wanted shape to converted values."""

_NAMELESS = ("FRACTAL_ZZ", "NC", "NCL", "FRACTAL_Z_WINO", "C1HWC0")
"""Formats that the vendor's table has no name for."""

_FOUR = ("NCHW", "HWCN", "NHWC")
_FRACTAL_STEP = 16


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """The tensor under test: its values as the device laid them out, and in which format."""

    values: Array
    format: str
    original: tuple[int, ...] = ()
    groups: int = 0


@dataclass(frozen=True, slots=True)
class GoldenTensor:
    """The golden tensor: its values, and the layout and shape that the rule gives it."""

    values: Array
    format: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fitted:
    """Two flat vectors of equal length.

    Attributes:
        mine: The values under test.
        golden: The golden values.
        shape: The shape that the row shows.
        cut: What was left out of the comparison although it is no padding; empty for nothing.
    """

    mine: Array
    golden: Array
    shape: tuple[int, ...]
    cut: str = ""


def shown(shape: tuple[int, ...] | list[int]) -> str:
    """A shape as the vendor's messages write it."""
    return f"({', '.join(map(str, shape))})"


@dataclass(frozen=True, slots=True)
class ComparisonContext:
    """The circumstances of a comparison.

    Attributes:
        op: The operator, for messages.
        warn: Told of what is odd.
        strict: Do as the vendor does where that is wrong.
        conversions: The user's own, by ``convert_SRC_to_DST``.
        detail: Bring both into ``NCHW`` or ``NCDHW``, as single operators are shown.
    """

    op: str
    warn: Warn
    strict: bool = False
    conversions: dict[str, Convert] = field(default_factory=dict)
    detail: bool = False


def fit_equal(mine: Array, golden: Array, *, how: ComparisonContext) -> Fitted:
    """Two tensors of original models, whose shapes must be equal."""
    if mine.shape != golden.shape:
        raise _different(mine.shape, golden.shape, how=how)
    return Fitted(mine.reshape(-1), golden.reshape(-1), mine.shape)


def fit(mine: DeviceTensor, golden: GoldenTensor, *, how: ComparisonContext) -> Fitted:
    """Bring both tensors into one layout, cut off what is beyond the golden one, and flatten them.

    Raises:
        NotCompared: They do not fit.
    """
    # The dump's own original shape, where it tells one, counts before the rule's.
    shape = mine.original or golden.shape
    layout = _golden_layout(golden, shape) if golden.format else mine.format
    mine_to, golden_to = _detail_layouts(mine.format, layout) if how.detail else (layout, layout)
    tensor = any(size != 1 for size in mine.values.shape)
    if (mine_to == "ND" and mine.format not in ("FRACTAL_NZ", "NDC1HWC0")) or not tensor:
        left, right = mine.values.reshape(-1), golden.values.reshape(-1)
    else:
        left = _convert(mine, mine_to, shape=shape, how=how)
        right = _convert(DeviceTensor(golden.values, layout), golden_to, shape=golden.values.shape, how=how)
    whole = left.shape
    # A device pads channels to whole blocks; what lies beyond the golden shape is that padding, at the end.
    if mine.format != "ND" or (tensor and left.size != right.size):
        left = _cut(left, right.shape, how=how)
    if left.size != right.size:
        raise _different((left.size,), (right.size,), how=how)
    cut = "" if how.strict else _told_cut(mine, whole, left.shape)
    return Fitted(left.reshape(-1), right.reshape(-1), left.shape, cut)


def _golden_layout(golden: GoldenTensor, shape: tuple[int, ...]) -> str:
    """The golden layout; where the file's shape is the rule's with channels moved, the other one of the two."""
    if golden.format not in FORMAT_NUMBERS or golden.format in _NAMELESS:
        raise NotCompared(
            english('The format " {format} " is not supported.', format=golden.format), code=Code.FORMAT
        )
    found = golden.values.shape
    if golden.format not in ("NCHW", "NHWC") or not len(shape) == len(found) == 4 or shape == found:
        return golden.format
    if golden.format == "NHWC" and shape == (found[0], found[2], found[3], found[1]):
        return "NCHW"
    if golden.format == "NCHW" and shape == (found[0], found[3], found[1], found[2]):
        return "NHWC"
    return golden.format


def _detail_layouts(mine: str, golden: str) -> tuple[str, str]:
    if "D" in mine.replace("ND_", "").removeprefix("ND") and mine not in ("ND", "MD"):
        return "NCDHW", "NCDHW"
    return (golden, golden) if mine == "FRACTAL_Z" else ("NCHW", "NCHW")


def _convert(source: DeviceTensor, layout: str, *, shape: tuple[int, ...], how: ComparisonContext) -> Array:
    """Bring values from their format into a layout; padding of channels may stay, and is cut off later."""
    values, own = source.values, how.conversions.get(f"convert_{source.format}_to_{layout}")
    if own is not None:
        return own(values.shape, shape, values.reshape(-1))
    if source.format in ("ND", layout) or (source.format in _FOUR and values.ndim != 4):
        return values
    if source.format == "FRACTAL_NZ":
        return _from_fractal(values, layout, shape=shape, how=how)
    found = _restored(source, layout, shape)
    if found is None:
        how.warn(f"Not supported from {source.format} to {layout}.")
        what = english(
            "[{op}] There is no way from {format} {shape} to {layout}.",
            op=how.op,
            format=source.format,
            shape=shown(values.shape),
            layout=layout,
        )
        raise NotCompared("" if how.strict else what, code=Code.FORMAT)
    return found


def _restored(source: DeviceTensor, layout: str, shape: tuple[int, ...]) -> Array | None:
    values = source.values
    if source.format in _FOUR:
        return as_format(LaidOutValues(values, source.format), layout, block=_FRACTAL_STEP)
    # The padded original is enough where axes stand alone; else the wanted shape tells how to split them.
    wanted = shape if source.format.startswith("FRACTAL") else ()
    way = inverse_layout(source.format, values.shape, original=wanted, groups=source.groups, order=layout)
    if not way.restored:
        return None
    laid = restore(values, way)
    return laid.array if layout == "ND" else relayout(laid, layout)


def _from_fractal(values: Array, layout: str, *, shape: tuple[int, ...], how: ComparisonContext) -> Array:
    """Undo FRACTAL_NZ, whose wanted shape must fit to less than one block."""
    if values.ndim < 4 or not shape:
        raise _unfit_fractal(shape, values.shape, how=how)
    if layout == "ND" and len(shape) > 2 and values.size != math.prod(shape[:-2]) * math.prod(values.shape[-4:]):
        how.warn("Cannot convert FRACTAL_NZ to ND: the number of elements does not match the shape.")
        return values
    whole = (*values.shape[:-4], values.shape[-2] * values.shape[-3], values.shape[-1] * values.shape[-4])
    fits = len(shape) == len(whole) and shape[:-2] == whole[:-2]
    # The vendor takes every block for 16 wide; those of 8-bit types are 32.
    steps = (_FRACTAL_STEP, _FRACTAL_STEP) if how.strict else values.shape[-2:]
    for size, padded, step in zip(shape[-2:], whole[-2:], steps, strict=False):
        fits = fits and padded - step < size <= padded
    if not fits:
        raise _unfit_fractal(shape, whole, how=how)
    found = restore(values, inverse_layout("FRACTAL_NZ", values.shape, original=shape)).array
    return found.reshape(-1, *found.shape[-2:]) if how.strict and found.ndim > 3 else found


def _unfit_fractal(shape: tuple[int, ...], whole: tuple[int, ...], *, how: ComparisonContext) -> NotCompared:
    what = english(
        "The target shape {shape} is invalid. The recommended shape is {whole}.",
        shape=shown(shape),
        whole=shown(whole),
    )
    message = english("[{op}] {what}", op=how.op, what=what)
    how.warn(message)
    return NotCompared(message, code=Code.FRACTAL)


def _cut(mine: Array, golden: tuple[int, ...], *, how: ComparisonContext) -> Array:
    """Cut the tensor under test to the golden shape, as far as the vendor does."""
    if mine.ndim < len(golden):
        left, right = ([size for size in shape if size != 1] for shape in (mine.shape, golden))
        if left != right:
            raise _different(tuple(left or mine.shape), tuple(right or golden), how=how)
        return mine
    # The vendor pads both shapes to four axes with ones at the end before it compares them axis by axis.
    padded = (*mine.shape, *(1,) * (4 - mine.ndim))
    wanted = (*golden, *(1,) * (len(padded) - len(golden)))
    ones = sum(size == 1 for size in mine.shape)
    if math.prod(wanted) == mine.size and ones >= mine.ndim - 1:
        return mine
    for size, limit in zip(padded, wanted, strict=True):
        if size < limit:
            raise _different(padded, wanted, how=how)
        if size > limit:
            # Beyond five axes the vendor finds the difference, and then cuts nothing.
            cut = mine.reshape(padded)
            return cut[tuple(slice(limit) for limit in wanted)] if len(padded) <= 5 else cut
    return mine


def _different(mine: tuple[int, ...], golden: tuple[int, ...], *, how: ComparisonContext) -> NotCompared:
    message = english(
        "[{op}] Due to the different shapes on the left and right,the left dump data{mine} "
        "can not be compared to the right dump data{golden}. Please check the batch of the "
        "dump data or the shape may be changed due to optimization.",
        op=how.op,
        mine=shown(mine),
        golden=shown(golden),
    )
    how.warn(message)
    return NotCompared(message, code=Code.SHAPE)


def _told_cut(mine: DeviceTensor, whole: tuple[int, ...], kept: tuple[int, ...]) -> str:
    """Say when more was cut off than padding of the device."""
    before = math.prod(mine.original) if mine.original else 0
    after = math.prod(kept)
    if mine.original:
        lost = before > after
    else:
        # Without an original shape padding is told by its size: one axis of a blocked format, less than a block.
        block = mine.values.shape[-1] if mine.values.ndim else 1
        pairs = list(zip(whole, kept, strict=False))
        cut = [(size, left) for size, left in pairs if left < size]
        blocked = mine.format not in ("ND", *_FOUR)
        lost = len(cut) > (1 if blocked else 0) or any(size - left >= block for size, left in cut)
    if not lost:
        return ""
    return f"Only a part was compared: {shown(mine.original or whole)} was cut to the golden {shown(kept)}."


# Dump files into .npy or .bin files, as they are or in another format.

FILE_TYPES = ("npy", "bin", "msnpy", "pt")
ORIGINAL = "ORIGINAL"
"""Stands for the layout that a tensor had before the compiler changed it."""

FAILED_NAME = "convert_failed_file_list.txt"
_MAPPING = "mapping.csv"
_MAX_NAME = 254
_BLOCKS = {1: 32, 2: 16, 4: 16}
"""Elements per block by the bytes of an element."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What to convert to.

    Attributes:
        out: The folder for what is written.
        kind: One of `FILE_TYPES`.
        format: The memory format wanted; empty to keep what is there, `ORIGINAL` for that before the compiler.
        shape: The shape wanted of FRACTAL_NZ tensors; empty for that in the dump.
        only: ``input`` or ``output`` and a number, to convert one tensor.
        conversions: The user's own conversions.
    """

    out: Path
    kind: str = "npy"
    format: str = ""
    shape: tuple[int, ...] = ()
    only: tuple[str, int] | None = None
    conversions: dict[str, Convert] = field(default_factory=dict)


def convert_dumps(
    files: Sequence[Path], conversion: Conversion, *, warn: Callable[[str], None]
) -> tuple[list[Path], list[Path]]:
    """Convert dump files one by one.

    Args:
        files: The files.
        conversion: What to convert to.
        warn: Told of what could not be converted.

    Returns:
        What was written, and the files that failed, which are also listed in a file of their own.
    """
    if conversion.format and conversion.format not in (*FORMAT_NUMBERS, ORIGINAL):
        what = english("The format {format!r} is not known.", format=conversion.format)
        raise Refused(what, code=Code.FORMAT, fix=english("choose for example NCHW, NHWC, HWCN or ND"))
    written: list[Path] = []
    failed: list[Path] = []
    for path in files:
        try:
            written += _converted(path, conversion, warn=warn)
        except (Unreadable, NotCompared, OSError) as error:
            failed.append(path)
            warn(f"{path} could not be converted: {_told(error)}.")
    if failed:
        listing = "".join(f"{path}\n" for path in failed)
        write_text(conversion.out / FAILED_NAME, listing)
    return written, failed


def _told(error: Exception) -> str:
    if isinstance(error, Unreadable):
        return error.problem
    return str(error.strerror if isinstance(error, OSError) else error).rstrip(".")


def _converted(path: Path, conversion: Conversion, *, warn: Callable[[str], None]) -> Iterator[Path]:
    dump = read_dump(path)
    name = parse_dump_name(true_name(path))
    if name is not None and name.overflow and not conversion.format:
        yield from _records(path, dump, conversion)
        return
    tensors = [tensor for tensor in dump.tensors if _wanted(tensor, conversion)]
    if not tensors and conversion.only:
        role, index = conversion.only
        raise NotCompared(english("it has no {role} {index}", role=role, index=index), code=Code.INDEX)
    for tensor in tensors:
        way = _way(path, tensor, conversion, warn=warn)
        yield _write_tensor(path, dump, tensor, conversion=conversion, way=way)
    if not conversion.format:
        for kind, blobs in (("l1buffer", dump.buffers), ("space", dump.spaces)):
            for place, blob in enumerate(blobs):
                content = map_bytes(path, offset=blob.offset, length=blob.size).tobytes()
                yield _save(conversion.out, f"{path.name}.{kind}.{place}.bin", content)


def _wanted(tensor: DumpTensor, conversion: Conversion) -> bool:
    return conversion.only is None or (tensor.role, tensor.index) == conversion.only


def _way(path: Path, tensor: DumpTensor, conversion: Conversion, *, warn: Callable[[str], None]) -> LayoutUndo:
    """How to undo the format of a tensor; a shape that can be read in several ways is settled, or said."""
    original = conversion.shape if tensor.format == "FRACTAL_NZ" and conversion.shape else tensor.original_shape
    # The layout that is asked for settles it.
    order = conversion.format if conversion.format in PLAIN else ""
    shape = device_shape(tensor)
    way = inverse_layout(tensor.format, shape, original=original, groups=tensor.groups, order=order)
    if conversion.format and tensor.format != conversion.format and way.others:
        warn(
            english(
                "{tensor}: its original shape {shape} can be {axes} or {others}; it is read as {axes}.",
                tensor=f"{path.name}.{tensor.role}.{tensor.index}",
                shape=shown(original),
                axes=way.axes,
                others=" or ".join(way.others),
            )
        )
    return way


def _write_tensor(path: Path, dump: Dump, tensor: DumpTensor, *, conversion: Conversion, way: LayoutUndo) -> Path:
    values = map_tensor(path, tensor)
    stem = f"{path.name}.{tensor.role}.{tensor.index}"
    if conversion.format:
        found = _formatted(values, tensor, conversion=conversion, way=way)
        size = "x".join(map(str, found.shape)) or "1"
        return _save_array(conversion.out, f"{stem}.{size}.npy", found)
    if conversion.kind == "bin":
        name = f"{stem}.{values.size}.{values.dtype.name}.{tensor.format}.bin"
        return _save(conversion.out, name, values.tobytes())
    if conversion.kind == "msnpy":
        fields = path.name.split(".")
        if len(fields) == 5 and dump.op_name:
            fields[1] = dump.op_name.rpartition("/")[2]
        name = f"{'.'.join(fields)}.{tensor.role}.{tensor.index}.{tensor.format}.npy"
        return _save_array(conversion.out, name, values)
    if conversion.kind == "pt":
        return _save_torch(conversion.out, f"{stem}.pt", values)
    return _save_array(conversion.out, f"{stem}.npy", values)


def _formatted(values: Array, tensor: DumpTensor, *, conversion: Conversion, way: LayoutUndo) -> Array:
    """A tensor in the format wanted."""
    original = tensor.original_shape
    if tensor.format == "FRACTAL_NZ" and conversion.shape:
        original = conversion.shape
        _check_fractal(values.shape, original)
    own = conversion.conversions.get(f"convert_{tensor.format}_to_{conversion.format}")
    if own is not None:
        return own(values.shape, original, values.reshape(-1))
    if tensor.format == conversion.format:
        return values
    block = _BLOCKS.get(values.dtype.itemsize, 16)
    if conversion.format == ORIGINAL:
        return restore(values, way).array
    laid = restore(values, way)
    found = as_format(laid, conversion.format, block=block, groups=tensor.groups) if way.restored else None
    if found is None:
        what = english(
            "there is no way from {format} {shape} to {format2}",
            format=tensor.format,
            shape=shown(values.shape),
            format2=conversion.format,
        )
        raise NotCompared(what, code=Code.FORMAT)
    return found


def _check_fractal(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse a shape that the blocks cannot hold, or that leaves a whole block empty."""
    if len(shape) < 4:
        raise NotCompared(
            english("its shape {shape} is not that of FRACTAL_NZ", shape=shown(shape)), code=Code.SHAPE
        )
    whole = (*shape[:-4], shape[-2] * shape[-3], shape[-1] * shape[-4])
    steps = (*(1 for _ in shape[:-4]), shape[-2], shape[-1])
    fits = len(wanted) == len(whole) and all(
        limit - step < size <= limit for size, limit, step in zip(wanted, whole, steps, strict=True)
    )
    if not fits:
        what = english(
            "The target shape {wanted} is invalid. The recommended shape is {whole}.",
            wanted=shown(wanted),
            whole=shown(whole),
        )
        raise Refused(what, code=Code.PARAMETER, fix=english("give another shape with -s"))


def _records(path: Path, dump: Dump, conversion: Conversion) -> Iterator[Path]:
    for tensor in dump.outputs:
        record = read_record(map_tensor(path, tensor).tobytes())
        content = json.dumps(record, indent=4).encode()
        yield _save(conversion.out, f"{path.name}.{tensor.role}.{tensor.index}.json", content)


def _save_array(out: Path, name: str, values: Array) -> Path:
    path = _named(out, name)
    with writing(path, option="-out"):
        np.save(path, np.ascontiguousarray(values) if values.ndim else values)
    return path


def _save_torch(out: Path, name: str, values: Array) -> Path:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(english("writing .pt files"), package="torch", extra="train") from error
    path = _named(out, name)
    with writing(path, option="-out"):
        torch.save(torch.from_numpy(np.array(values)), path)
    return path


def _save(out: Path, name: str, content: bytes) -> Path:
    path = _named(out, name)
    write_bytes(path, content)
    return path


def _named(out: Path, name: str) -> Path:
    """The path of a file; a name too long for the disk becomes a hash, noted in a mapping."""
    with writing(out, option="-out"):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    if len(name.encode()) <= _MAX_NAME:
        return out / name
    suffix = re.search(r"\.[a-z]+$", name)
    short = f"{uuid.uuid3(uuid.NAMESPACE_DNS, name).hex}{suffix[0] if suffix else ''}"
    with writing(out, option="-out"), (out / _MAPPING).open("a", encoding="utf-8") as file:
        file.write(f"{short},{name}\n")
    return out / short
