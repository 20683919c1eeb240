"""The small variant of the header, of devices without protobuf: tags, lengths and values after a magic number."""

import struct
from dataclasses import dataclass

from roundoff.core.mapped import MAX_AXES
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.schema import GE_TYPES, Dump, DumpTensor, format_name

__all__ = ["MAGIC", "read_small_header"]

MAGIC = b"\x5a" * 4
"""What such a header begins with."""

_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE, _ORIGINAL_NAME = 0, 1, 2
_MAX_TENSORS = 10_000
_FIX = "copy the dump from the device again: its header is damaged"


@dataclass(slots=True)
class _Reader:
    """A place in the header that moves on as values are taken."""

    data: memoryview
    place: int = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values: tuple[int, ...] = struct.unpack("<" + layout, self.part(struct.calcsize("<" + layout)))
        return values

    def part(self, length: int) -> memoryview:
        end = self.place + length
        if end > len(self.data):
            raise Unreadable("its header is cut short", fix=_FIX)
        part = self.data[self.place : end]
        self.place = end
        return part

    @property
    def done(self) -> bool:
        return self.place >= len(self.data)


def read_small_header(head: memoryview, *, offset: int, file_size: int) -> Dump:
    """Read the header.

    Args:
        head: Its bytes, the magic number included.
        offset: Where in the file the values begin.
        file_size: Bytes of the whole file.
    """
    reader = _Reader(head, len(MAGIC))
    (version,) = reader.take("I")
    blocks: dict[int, memoryview] = {}
    while not reader.done:
        tag, length = reader.take("II")
        blocks[tag] = reader.part(length)
    inputs, offset = _tensors(blocks.get(_INPUTS), role="input", offset=offset)
    outputs, offset = _tensors(blocks.get(_OUTPUTS), role="output", offset=offset)
    return Dump(
        version=str(version),
        inputs=inputs,
        outputs=outputs,
        missing=max(0, offset - file_size),
        extra=max(0, file_size - offset),
    )


def _tensors(block: memoryview | None, *, role: str, offset: int) -> tuple[tuple[DumpTensor, ...], int]:
    if block is None:
        return (), offset
    reader = _Reader(block)
    (count,) = reader.take("I")
    if count > _MAX_TENSORS:
        raise Unreadable(f"claims {count} {role}s", fix=_FIX)
    tensors = []
    for index in range(count):
        numbers = reader.take("iii" if role == "input" else "iiiiii")
        address, _, size = reader.take("QQQ")
        (length,) = reader.take("I")
        parts = _parts(_Reader(reader.part(length)))
        known = 0 <= numbers[0] < len(GE_TYPES)
        name = bytes(parts.get(_ORIGINAL_NAME, b"")).rstrip(b"\0").decode(errors="replace")
        tensors.append(
            DumpTensor(
                role,
                index,
                (GE_TYPES[numbers[0]] if known else None) or f"TYPE_{numbers[0]}",
                format_name(numbers[1]),
                _dims(parts.get(_SHAPE)),
                _dims(parts.get(_ORIGINAL_SHAPE)),
                0,
                address,
                size,
                offset,
                (name, numbers[3] if role == "output" else 0),
            )
        )
        offset += size
    return tuple(tensors), offset


def _parts(reader: _Reader) -> dict[int, memoryview]:
    parts: dict[int, memoryview] = {}
    while not reader.done:
        tag, length = reader.take("II")
        parts[tag] = reader.part(length)
    return parts


def _dims(data: memoryview | None) -> tuple[int, ...]:
    if data is None:
        return ()
    if len(data) % 8 or len(data) // 8 > MAX_AXES:
        raise Unreadable(f"its header holds a shape of {len(data)} bytes", fix=_FIX)
    return struct.unpack(f"<{len(data) // 8}Q", data)
