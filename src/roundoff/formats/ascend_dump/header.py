"""The header of a dump file: its fields, and where in the file each tensor lies."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roundoff.core.mapped import MAX_AXES, map_bytes, stat_file
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.message import parse_header_message
from roundoff.formats.ascend_dump.schema import ELEMENT_TYPES, NOWHERE, Blob, Dump, DumpTensor, format_name
from roundoff.formats.ascend_dump.tlv import MAGIC, read_small_header

__all__ = ["LENGTH_BYTES", "MAX_HEADER_BYTES", "read_dump", "read_head"]

LENGTH_BYTES = 8
"""The file begins with the length of its header."""

MAX_HEADER_BYTES = 4 * 2**20
"""A header takes some hundred bytes per tensor; FFTS+ slices are the longest with some hundred kilobytes.

Parsed, the worst of this length (nothing but empty tensors) takes 50 times as much memory.
"""

_MAX_ITEMS = 100_000
_AGAIN = "copy the dump from the device again"


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
    message = parse_header_message(bytes(head))
    parts = (message.inputs, message.outputs, message.buffers, message.spaces)
    if any(len(part) > _MAX_ITEMS for part in parts):
        raise Unreadable(f"claims more than {_MAX_ITEMS} tensors", fix=_AGAIN)
    place = LENGTH_BYTES + len(head)
    buffer_sizes, space_sizes = ([item.size for item in part] for part in (message.buffers, message.spaces))
    room = file_size - place - sum(buffer_sizes) - sum(space_sizes)
    absent = _absent([*message.inputs, *message.outputs], room=room)
    inputs, place = _placed("input", message.inputs, place, absent=absent)
    outputs, place = _placed("output", message.outputs, place, absent=absent)
    buffers, place = _blobs(buffer_sizes, place)
    spaces, place = _blobs(space_sizes, place)
    attributes = {_text(each.name): _text(each.value) for each in message.attributes}
    return Dump(
        _text(message.op_name), _text(message.version), message.time, inputs, outputs, buffers, spaces, attributes,
        _text(message.message), missing=max(0, place - file_size), extra=max(0, file_size - place),
    )  # fmt: skip


def _axes(shape: Any) -> tuple[int, ...]:
    if len(shape.dim) > MAX_AXES:
        raise Unreadable(f"claims a shape of more than {MAX_AXES} axes", fix=_AGAIN)
    return tuple(shape.dim)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _absent(found: Sequence[Any], *, room: int) -> bool:
    """Whether tensors without an address were left out of the file: the device does so, and then the rest fits."""
    lacking = sum(item.size for item in found) - room
    unaddressed = sum(item.size for item in found if not item.address)
    return lacking > 0 and lacking == unaddressed and any(item.address for item in found)


def _placed(role: str, found: Sequence[Any], place: int, *, absent: bool) -> tuple[tuple[DumpTensor, ...], int]:
    tensors = []
    for index, item in enumerate(found):
        known = item.element_type < len(ELEMENT_TYPES)
        tensors.append(
            DumpTensor(
                role,
                index,
                ELEMENT_TYPES[item.element_type] if known else f"TYPE_{item.element_type}",
                format_name(item.format),
                _axes(item.shape),
                _axes(item.original_shape),
                item.groups,
                item.address,
                item.size,
                NOWHERE if (gone := absent and not item.address) else place,
                (_text(item.origin.name), item.origin.output_index) if role == "output" else ("", 0),
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
