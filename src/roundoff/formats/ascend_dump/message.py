"""The message in which Ascend's header is stored, read by the protobuf runtime with a table of its fields."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from roundoff.core.unreadable import Unreadable

__all__ = ["parse_header_message"]

# One line per field: name, number, type (``*``: repeated). Texts are bytes, as devices write what is not UTF-8;
# enumerations are numbers, as newer devices know more values. What is not listed is skipped.
_MESSAGES: Mapping[str, str] = {
    "Shape": "dim 1 uint64*",
    "Origin": """
        name 1 bytes
        output_index 2 uint64""",
    "Output": """
        element_type 1 uint64
        format 2 uint64
        shape 3 Shape
        origin 4 Origin
        size 6 uint64
        original_shape 7 Shape
        groups 8 uint64
        address 9 uint64""",
    "Input": """
        element_type 1 uint64
        format 2 uint64
        shape 3 Shape
        size 5 uint64
        original_shape 6 Shape
        groups 7 uint64
        address 8 uint64""",
    "Memory": "size 3 uint64",
    "Attribute": """
        name 1 bytes
        value 2 bytes""",
    "Header": """
        version 1 bytes
        time 2 uint64
        outputs 3 Output*
        inputs 4 Input*
        buffers 5 Memory*
        op_name 6 bytes
        attributes 7 Attribute*
        spaces 8 Memory*
        message 9 bytes""",
}
_PACKAGE = "roundoff.ascend"


def parse_header_message(data: bytes) -> Any:
    """Read a header; its fields are attributes by the names of the table.

    Raises:
        Unreadable: The bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return _header_class().FromString(data)
    except DecodeError as error:
        fix = "copy the dump from the device again: its header is damaged"
        raise Unreadable("its header is cut short or damaged", fix=fix) from error


@cache
def _header_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="ascend.proto", package=_PACKAGE, syntax="proto2")
    for message, lines in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, words in (line.split() for line in lines.strip().splitlines()):
            label = field_type.LABEL_REPEATED if words.endswith("*") else field_type.LABEL_OPTIONAL
            field = made.field.add(name=name, number=int(number), label=label)
            kind = words.rstrip("*")
            if kind in _MESSAGES:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = field_type.TYPE_BYTES if kind == "bytes" else field_type.TYPE_UINT64
    pool = descriptor_pool.DescriptorPool()  # one of its own: names cannot clash with anyone's
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Header"))
