"""The header of a dump file: its fields, and where in the file each tensor lies."""

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roundoff.core.mapped import MAX_AXES, map_bytes, stat_file
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.schema import ELEMENT_TYPES, NOWHERE, Blob, Dump, DumpTensor, format_name
from roundoff.formats.ascend_dump.tlv import MAGIC, read_small_header
from roundoff.formats.ascend_dump.wire import read_fields, read_numbers

__all__ = ["LENGTH_BYTES", "MAX_HEADER_BYTES", "read_dump", "read_head"]

LENGTH_BYTES = 8
"""The file begins with the length of its header."""

MAX_HEADER_BYTES = 16 * 2**20
"""A header takes some hundred bytes per tensor; FFTS+ slices are the longest with some hundred kilobytes."""

_MAX_ITEMS = 100_000
_AGAIN = "copy the dump from the device again"


@dataclass(slots=True)
class _Tensor:
    """What is collected of an input or output while its fields are read."""

    element_type: int = 0
    format: int = 0
    shape: list[int] = field(default_factory=list)
    original_shape: list[int] = field(default_factory=list)
    size: int = 0
    groups: int = 0
    address: int = 0
    origin: tuple[str, int] = ("", 0)


# Outputs and inputs number the same fields differently.
_OUTPUT = {1: "element_type", 2: "format", 3: "shape", 4: "origin", 6: "size", 7: "original_shape", 8: "groups",
           9: "address"}  # fmt: skip
_INPUT = {1: "element_type", 2: "format", 3: "shape", 5: "size", 6: "original_shape", 7: "groups",
          8: "address"}  # fmt: skip


def read_head(path: Path) -> tuple[memoryview, int]:
    """Map the header of a file; tell the size of the file, too.

    Raises:
        Unreadable: The file is too short, or its first eight bytes are no length of a header.
    """
    size = stat_file(path)
    if size <= LENGTH_BYTES:
        raise Unreadable(f"has {size} bytes, too few for a dump", fix=_AGAIN)
    (length,) = struct.unpack("<Q", map_bytes(path, offset=0, length=LENGTH_BYTES).tobytes())
    if not 0 < length <= size - LENGTH_BYTES:
        what = f"claims a header of {length} bytes, but has {size - LENGTH_BYTES} after the length"
        raise Unreadable(what, fix=f"{_AGAIN}, or check that it is one")
    if length > MAX_HEADER_BYTES:
        raise Unreadable(f"claims a header of {length} bytes, more than any dump has", fix=_AGAIN)
    return map_bytes(path, offset=LENGTH_BYTES, length=length).data, size


def read_dump(path: Path) -> Dump:
    """Read the header of a dump file, of either variant; no values are read.

    Raises:
        Unreadable: It is no dump, or damaged.
        OSError: The file cannot be read.
    """
    head, size = read_head(path)
    if bytes(head[: len(MAGIC)]) == MAGIC:
        return read_small_header(head, offset=LENGTH_BYTES + len(head), file_size=size)
    return _parse(head, file_size=size)


def _parse(head: memoryview, *, file_size: int) -> Dump:
    texts: dict[int, str] = {}
    attributes: dict[str, str] = {}
    time = 0
    items: dict[int, list[Any]] = {number: [] for number in (3, 4, 5, 8)}
    readers: Mapping[int, Callable[[memoryview], Any]] = {
        3: functools.partial(_tensor, names=_OUTPUT),
        4: functools.partial(_tensor, names=_INPUT),
        5: _blob_size,
        8: _blob_size,
    }
    for number, value in read_fields(head):
        if isinstance(value, int):
            time = value if number == 2 else time
        elif number in readers:
            if len(items[number]) == _MAX_ITEMS:
                raise Unreadable(f"claims more than {_MAX_ITEMS} tensors", fix=_AGAIN)
            items[number].append(readers[number](value))
        elif number == 7:
            name, text = _attribute(value)
            attributes[name] = text
        elif number in (1, 6, 9):
            texts[number] = _text(value)
    place = LENGTH_BYTES + len(head)
    blobs = sum(items[5]) + sum(items[8])
    absent = _absent([*items[4], *items[3]], room=file_size - place - blobs)
    inputs, place = _placed("input", items[4], place, absent=absent)
    outputs, place = _placed("output", items[3], place, absent=absent)
    buffers, place = _blobs(items[5], place)
    spaces, place = _blobs(items[8], place)
    return Dump(
        texts.get(6, ""), texts.get(1, ""), time, inputs, outputs, buffers, spaces, attributes, texts.get(9, ""),
        missing=max(0, place - file_size), extra=max(0, file_size - place),
    )  # fmt: skip


def _tensor(data: memoryview, *, names: Mapping[int, str]) -> _Tensor:
    found = _Tensor()
    for number, value in read_fields(data):
        name = names.get(number, "")
        if name in ("shape", "original_shape"):
            if not isinstance(value, int):
                getattr(found, name).extend(_dims(value))
        elif name == "origin":
            found.origin = ("", 0) if isinstance(value, int) else _origin(value)
        elif name and isinstance(value, int):
            setattr(found, name, value)
    return found


def _dims(data: memoryview) -> list[int]:
    dims: list[int] = []
    for number, value in read_fields(data):
        if number == 1:
            dims.extend(read_numbers(value, most=MAX_AXES - len(dims)))
        if len(dims) > MAX_AXES:
            raise Unreadable(f"claims a shape of more than {MAX_AXES} axes", fix=_AGAIN)
    return dims


def _origin(data: memoryview) -> tuple[str, int]:
    name, index = "", 0
    for number, value in read_fields(data):
        if number == 1 and not isinstance(value, int):
            name = _text(value)
        elif number == 2 and isinstance(value, int):
            index = value
    return name, index


def _attribute(data: memoryview) -> tuple[str, str]:
    texts = {number: _text(value) for number, value in read_fields(data) if not isinstance(value, int)}
    return texts.get(1, ""), texts.get(2, "")


def _blob_size(data: memoryview) -> int:
    return max((value for number, value in read_fields(data) if number == 3 and isinstance(value, int)), default=0)


def _text(data: memoryview) -> str:
    return bytes(data).decode(errors="replace")


def _absent(found: list[_Tensor], *, room: int) -> bool:
    """Whether tensors without an address were left out of the file: the device does so, and then the rest fits."""
    lacking = sum(item.size for item in found) - room
    unaddressed = sum(item.size for item in found if not item.address)
    return lacking > 0 and lacking == unaddressed and any(item.address for item in found)


def _placed(role: str, found: list[_Tensor], place: int, *, absent: bool) -> tuple[tuple[DumpTensor, ...], int]:
    tensors = []
    for index, item in enumerate(found):
        known = item.element_type < len(ELEMENT_TYPES)
        tensors.append(
            DumpTensor(
                role,
                index,
                ELEMENT_TYPES[item.element_type] if known else f"TYPE_{item.element_type}",
                format_name(item.format),
                tuple(item.shape),
                tuple(item.original_shape),
                item.groups,
                item.address,
                item.size,
                NOWHERE if (gone := absent and not item.address) else place,
                item.origin,
            )
        )
        place += 0 if gone else item.size
    return tuple(tensors), place


def _blobs(sizes: list[int], place: int) -> tuple[tuple[Blob, ...], int]:
    blobs = []
    for size in sizes:
        blobs.append(Blob(size, place))
        place += size
    return tuple(blobs), place
