"""Messages as the bytes of Caffe's binary files."""

from collections.abc import Iterator

import numpy as np

from roundoff.core.text_proto import TextMessage, TextValue
from roundoff.graph.caffe.tables import FieldSpec, MessageSpec, message_spec
from roundoff.graph.caffe.varints import packed_varints, varint

__all__ = ["encode"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def encode(message: TextMessage, table: str) -> list[bytes]:
    """The bytes of a message, in pieces; fields without a number in the table are left out, as readers demand.

    Args:
        message: What to write.
        table: The name of its table.
    """
    return list(_message(message, message_spec(table)))


def _message(message: TextMessage, spec: MessageSpec) -> Iterator[bytes]:
    for entry in message.entries:
        known = spec.by_name.get(entry.name)
        if known is not None and known.number:
            yield from _field(entry.value, known)


def _field(value: TextValue, spec: FieldSpec) -> Iterator[bytes]:
    if isinstance(value, TextMessage):
        pieces = list(_message(value, message_spec(spec.message)))
        yield _head(spec, _LENGTH) + varint(sum(map(len, pieces)))
        yield from pieces
        return
    if isinstance(value, np.ndarray):
        if spec.kind in ("float", "double"):
            body = np.ascontiguousarray(value, "<f4" if spec.kind == "float" else "<f8").tobytes()
        else:
            body = packed_varints(value)
        yield _head(spec, _LENGTH) + varint(len(body))
        yield body
        return
    yield _single(value, spec)


def _single(value: bool | int | float | str | bytes, spec: FieldSpec) -> bytes:
    if spec.kind in ("float", "double"):
        wire, dtype = (_FIXED32, "<f4") if spec.kind == "float" else (_FIXED64, "<f8")
        return _head(spec, wire) + np.array(float(value), dtype).tobytes()
    if isinstance(value, bytes) or (isinstance(value, str) and spec.kind != "enum"):
        raw = value if isinstance(value, bytes) else value.encode()
        return _head(spec, _LENGTH) + varint(len(raw)) + raw
    return _head(spec, _VARINT) + varint(spec.values[value] if isinstance(value, str) else int(value))


def _head(spec: FieldSpec, wire: int) -> bytes:
    return varint(spec.number << 3 | wire)
