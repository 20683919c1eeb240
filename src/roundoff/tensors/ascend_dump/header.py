"""The header of a dump file: its fields, and where in the file each tensor lies."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from roundoff.core.array_files import MAX_AXES, Unreadable, map_bytes, stat_file
from roundoff.messages.message import english

# The message in which Ascend's header is stored, read by the protobuf runtime with a table of its fields.

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
        fix = english("copy the dump from the device again: its header is damaged")
        raise Unreadable(english("its header is cut short or damaged"), fix=fix) from error


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


# What an Ascend dump says about itself: operator, tensors, formats and types by their numbers.

NOWHERE = -1
"""Offset of a tensor that the device left out of the file, because it had no address."""

ELEMENT_TYPES = (
    "UNDEFINED", "FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT32", "UINT64",
    "BOOL", "DOUBLE", "STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16",
    "QINT32", "QUINT8", "QUINT16", "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "INT4", "UINT1", "INT2",
    "UINT2", "COMPLEX32", "HIFLOAT8", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT6_E3M2",
    "FLOAT6_E2M3", "FLOAT4_E2M1", "FLOAT4_E1M2",
)  # fmt: skip
"""Element types by the number that a dump gives them."""

GE_TYPES = (
    "FLOAT", "FLOAT16", "INT8", "INT32", "UINT8", None, "INT16", "UINT16", "UINT32", "INT64", "UINT64", "DOUBLE",
    "BOOL", "STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16", "QINT32",
    "QUINT8", "QUINT16", "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "UNDEFINED", "INT4", "UINT1", "INT2",
    "UINT2", "COMPLEX32", "HIFLOAT8", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT6_E3M2", "FLOAT6_E2M3",
    "FLOAT4_E2M1", "FLOAT4_E1M2",
)  # fmt: skip
"""Element types by the number of the graph engine, which the small variant of the format uses."""

FORMATS = {
    **dict(enumerate((
        "NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW", "FRACTAL_DECONV",
        "C1HWNC0", "FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS", "NC1HWC0_C04", "FRACTAL_Z_C04",
        "CHWN", "FRACTAL_DECONV_SP_STRIDE8_TRANS", "HWCN", "NC1KHKWHWC0", "BN_WEIGHT", "FILTER_HWCK",
        "HASHTABLE_LOOKUP_LOOKUPS", "HASHTABLE_LOOKUP_KEYS", "HASHTABLE_LOOKUP_VALUE", "HASHTABLE_LOOKUP_OUTPUT",
        "HASHTABLE_LOOKUP_HITS", "C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW", "DHWCN",
        "NDC1HWC0", "FRACTAL_Z_3D", "CN", "NC", "DHWNC", "FRACTAL_Z_3D_TRANSPOSE", "FRACTAL_ZN_LSTM",
        "FRACTAL_Z_G", "RESERVED", "ALL", "NULL", "ND_RNN_BIAS", "FRACTAL_ZN_RNN", "YUV", "YUV_A", "NCL",
        "FRACTAL_Z_WINO", "C1HWC0",
    ))),
    255: "MAX",
}  # fmt: skip
"""Names of memory formats by their number."""

FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}


def format_name(number: int) -> str:
    """The name of a memory format; ``FORMAT_99`` for one that is not known."""
    return FORMATS.get(number, f"FORMAT_{number}")


@dataclass(frozen=True, slots=True)
class DumpTensor:
    """One input or output of the dumped operator, as the header describes it.

    Attributes:
        role: ``input`` or ``output``.
        index: Its place among the inputs or outputs.
        element_type: Name of its element type in `ELEMENT_TYPES`.
        format: Name of the memory format.
        shape: Shape in that format, padding included.
        original_shape: Shape before the compiler changed the format; empty when the dump does not say.
        groups: Groups of a grouped convolution; 0 and 1 mean none.
        address: Address on the device; 0 when unknown.
        size: Bytes it takes in the file.
        offset: Where they begin in the file; `NOWHERE` when the device left them out.
        origin: Name and output of the operator before fusion, when the dump says so.
    """

    role: str
    index: int
    element_type: str
    format: str
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    groups: int
    address: int
    size: int
    offset: int
    origin: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes without a type: a buffer or a workspace of the operator."""

    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Dump:
    """The header of one dump file.

    Attributes:
        op_name: The operator, in the model's own spelling; empty when the dump does not say.
        version: Version of the format.
        time: When it was dumped, in microseconds.
        inputs: Its inputs.
        outputs: Its outputs.
        buffers: Copies of the L1 buffer.
        spaces: Workspaces.
        attributes: Text by name; FFTS+ keeps its slices there.
        message: Free text of the runtime.
        missing: Bytes that the header promises and the file lacks.
        extra: Bytes behind the last one that the header speaks of.
    """

    op_name: str = ""
    version: str = ""
    time: int = 0
    inputs: tuple[DumpTensor, ...] = ()
    outputs: tuple[DumpTensor, ...] = ()
    buffers: tuple[Blob, ...] = ()
    spaces: tuple[Blob, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    message: str = ""
    missing: int = 0
    extra: int = 0

    @property
    def tensors(self) -> tuple[DumpTensor, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)


# The small variant of the header, of devices without protobuf: tags, lengths and values after a magic number.

MAGIC = b"\x5a" * 4
"""What such a header begins with."""

_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE, _ORIGINAL_NAME = 0, 1, 2
_MAX_TENSORS = 10_000
_FIX = english("copy the dump from the device again: its header is damaged")


@dataclass(slots=True)
class _HeaderReader:
    """A place in the header that moves on as values are taken."""

    data: memoryview
    place: int = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values: tuple[int, ...] = struct.unpack("<" + layout, self.part(struct.calcsize("<" + layout)))
        return values

    def part(self, length: int) -> memoryview:
        end = self.place + length
        if end > len(self.data):
            raise Unreadable(english("its header is cut short"), fix=_FIX)
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
    reader = _HeaderReader(head, len(MAGIC))
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
    reader = _HeaderReader(block)
    (count,) = reader.take("I")
    if count > _MAX_TENSORS:
        raise Unreadable(english("claims {count} {role}s", count=count, role=role), fix=_FIX)
    tensors = []
    for index in range(count):
        numbers = reader.take("iii" if role == "input" else "iiiiii")
        address, _, size = reader.take("QQQ")
        (length,) = reader.take("I")
        parts = _parts(_HeaderReader(reader.part(length)))
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


def _parts(reader: _HeaderReader) -> dict[int, memoryview]:
    parts: dict[int, memoryview] = {}
    while not reader.done:
        tag, length = reader.take("II")
        parts[tag] = reader.part(length)
    return parts


def _dims(data: memoryview | None) -> tuple[int, ...]:
    if data is None:
        return ()
    if len(data) % 8 or len(data) // 8 > MAX_AXES:
        raise Unreadable(english("its header holds a shape of {count} bytes", count=len(data)), fix=_FIX)
    return struct.unpack(f"<{len(data) // 8}Q", data)


LENGTH_BYTES = 8
"""The file begins with the length of its header."""

MAX_HEADER_BYTES = 4 * 2**20
"""A header takes some hundred bytes per tensor; FFTS+ slices are the longest with some hundred kilobytes.

Parsed, the worst of this length (nothing but empty tensors) takes 50 times as much memory.
"""

_MAX_ITEMS = 100_000
_AGAIN = english("copy the dump from the device again")


def read_head(path: Path) -> tuple[memoryview, int]:
    """Map the header of a file; tell the size of the file, too.

    Raises:
        Unreadable: The file is too short, or its first eight bytes are no length of a header.
    """
    size = stat_file(path)
    if size <= LENGTH_BYTES:
        raise Unreadable(english("has {size} bytes, too few for a dump", size=size), fix=_AGAIN)
    (length,) = struct.unpack("<Q", map_bytes(path, offset=0, length=LENGTH_BYTES).tobytes())
    if not 0 < length <= size - LENGTH_BYTES:
        what = english(
            "claims a header of {length} bytes, but has {number} after the length",
            length=length,
            number=size - LENGTH_BYTES,
        )
        raise Unreadable(what, fix=english("{again}, or check that it is one", again=_AGAIN))
    if length > MAX_HEADER_BYTES:
        raise Unreadable(
            english("claims a header of {length} bytes, more than any dump has", length=length), fix=_AGAIN
        )
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
        raise Unreadable(english("claims more than {max_items} tensors", max_items=_MAX_ITEMS), fix=_AGAIN)
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
        raise Unreadable(english("claims a shape of more than {max_axes} axes", max_axes=MAX_AXES), fix=_AGAIN)
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
