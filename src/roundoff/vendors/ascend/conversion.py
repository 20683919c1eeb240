"""Dump files into .npy or .bin files, as they are or in another format."""

import json
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
from roundoff.tensors.ascend_dump.layouts import PLAIN, LayoutUndo, as_format, inverse_layout, restore
from roundoff.tensors.ascend_dump.names import parse_dump_name, read_record, true_name
from roundoff.tensors.ascend_dump.source import device_shape, map_tensor
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.layouts import Convert, shown

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
            written += _convert(path, conversion, warn=warn)
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


def _convert(path: Path, conversion: Conversion, *, warn: Callable[[str], None]) -> Iterator[Path]:
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
