"""The wire format in which Ascend's header is stored: numbered fields, read without any schema compiler."""

from collections.abc import Iterator
from typing import TypeAlias

from roundoff.core.unreadable import Unreadable

__all__ = ["Field", "read_fields", "read_numbers"]

Field: TypeAlias = tuple[int, "int | memoryview"]
"""A field's number and its value: an integer, or the bytes of a text, a message or packed numbers."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10
_UINT64 = 2**64 - 1

_FIX = "copy the dump from the device again: its header is damaged"


def read_fields(data: memoryview) -> Iterator[Field]:
    """Walk through the fields of one message.

    Raises:
        Unreadable: The bytes are no message: cut short, or of an unknown kind.
    """
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise Unreadable("its header holds a field without a number", fix=_FIX)
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise Unreadable(f"its header holds a field of the unknown kind {kind}", fix=_FIX)
        end = position + length
        if end > len(data):
            raise Unreadable("its header is cut short", fix=_FIX)
        part = data[position:end]
        yield number, part if kind == _BYTES else int.from_bytes(part, "little")
        position = end


def read_numbers(value: int | memoryview, *, most: int) -> list[int]:
    """Read a repeated number, packed into bytes or standing alone.

    Args:
        value: The field's value.
        most: How many there may be at most.
    """
    if isinstance(value, int):
        return [value]
    numbers: list[int] = []
    position = 0
    while position < len(value):
        if len(numbers) == most:
            raise Unreadable(f"its header claims a shape of more than {most} axes", fix=_FIX)
        number, position = _varint(value, position)
        numbers.append(number)
    return numbers


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & _UINT64, position
    raise Unreadable("its header is cut short or damaged", fix=_FIX)
