"""Caffe's binary files by the field tables: weights stay windows on the file, damage is told with its place.

By hand, because the protobuf runtime copies all weights and says of damage no place (ADR 16); it judges in tests.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, NoReturn

import numpy as np

from roundoff.core import text_proto
from roundoff.core.tensors import Array, DType
from roundoff.core.text_proto import TextEntry, TextMessage, TextValue
from roundoff.errors import BadInput
from roundoff.messages.message import english


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath("fields.toml").read_text("utf-8"))


@cache
def layer_types_v1() -> dict[str, tuple[int, str]]:
    """The types of layers before they were texts: their numbers, and what they are called now."""
    return {name: (number, now) for name, (number, now) in _tables()["layer_types_v1"].items()}


WireKind = Literal["int", "uint", "bool", "float", "double", "string", "bytes", "enum", "message"]

_SCALARS: Mapping[str, WireKind] = {
    "int": "int", "uint": "uint", "bool": "bool", "float": "float", "double": "double", "string": "string",
    "bytes": "bytes",
}  # fmt: skip
_TEXT_KINDS: Mapping[WireKind, Any] = {"uint": "int", "double": "float"}
# Fields of messages that steer training alone: what a fork adds to them changes no result.
_OPEN = ("LayerParameter", "V1LayerParameter", "ParamSpec", "FillerParameter", "TransformationParameter",
         "LossParameter", "DataParameter", "ImageDataParameter", "AccuracyParameter",
         "SaveOutputParameter")  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field.

    Attributes:
        name: Its name.
        number: Its number in files; 0 when forks do not agree on one.
        kind: What its values are.
        repeated: Whether it may have several.
        message: The name of the message that it holds, where it is one.
        values: The names of an enumeration with their numbers, where it is one.
        default: What it is when it is not given; None when there is no such value.
    """

    name: str
    number: int
    kind: WireKind
    repeated: bool
    message: str = ""
    values: Mapping[str, int] = field(default_factory=dict)
    default: bool | int | float | str | None = None


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The fields of a message, by name and by number."""

    name: str
    by_name: Mapping[str, FieldSpec]
    by_number: Mapping[int, FieldSpec]


@cache
def message_spec(name: str) -> MessageSpec:
    """The fields of a message of this name."""
    specs = [_field_spec(line) for line in _tables()["messages"][name].splitlines() if line.strip()]
    return MessageSpec(
        name, {spec.name: spec for spec in specs}, {spec.number: spec for spec in specs if spec.number}
    )


def _field_spec(line: str) -> FieldSpec:
    name, number, kind, *default = line.split()
    repeated = kind.endswith("*")
    kind = kind.rstrip("*")
    if kind in _SCALARS:
        given = _value(default[0], _SCALARS[kind]) if default else None
        return FieldSpec(name, int(number), _SCALARS[kind], repeated, default=given)
    if kind in _tables()["messages"]:
        return FieldSpec(name, int(number), "message", repeated, message=kind)
    return FieldSpec(
        name, int(number), "enum", repeated, values=_values(kind), default=default[0] if default else None
    )


def _values(enumeration: str) -> Mapping[str, int]:
    if enumeration == "V1LayerType":
        return {name: number for name, (number, _) in layer_types_v1().items()}
    pairs = (word.split("=") for word in _tables()["enumerations"][enumeration].split())
    return {name: int(number) for name, number in pairs}


def _value(text: str, kind: WireKind) -> bool | int | float | str:
    if kind == "bool":
        return text == "true"
    if kind in ("float", "double"):
        return float(text)
    return text if kind == "string" else int(text)


@cache
def text_table(name: str) -> text_proto.FieldTable:
    """The same fields for reading and writing text."""
    fields = {
        spec.name: text_proto.Field(
            _TEXT_KINDS.get(spec.kind, spec.kind),
            repeated=spec.repeated,
            table=text_table(spec.message) if spec.message else None,
            names=spec.values,
        )
        for spec in message_spec(name).by_name.values()
    }
    return text_proto.FieldTable(name, fields, open=name in _OPEN)


# The wire format.


# Whole numbers in groups of seven bits, as protocol buffers store them.

LONGEST_VARINT = 10
"""Bytes of the longest number, one of 64 bits."""

_MORE = 0x80
_BITS = 7
_MASK = 2**64 - 1


def varint(number: int) -> bytes:
    """The bytes of a number; negative ones as those of 64 bits."""
    rest, out = number & _MASK, bytearray()
    while rest >= _MORE:
        out.append(rest & (_MORE - 1) | _MORE)
        rest >>= _BITS
    out.append(rest)
    return bytes(out)


def to_signed(number: int) -> int:
    """A number of 64 bits as one with a sign."""
    return number - 2**64 if number >= 2**63 else number


def packed_varints(numbers: Array) -> bytes:
    """The bytes of many numbers."""
    return b"".join(varint(int(number)) for number in numbers.ravel().tolist())


def varints(data: Array) -> Array:
    """All numbers of a run of bytes, as uint64; as fast as arrays go, however many there are.

    Args:
        data: uint8 values.

    Raises:
        ValueError: The last number is cut short, or one is longer than any can be.
    """
    ends = np.flatnonzero(data < _MORE)
    if data.size and (not ends.size or ends[-1] != data.size - 1):
        raise ValueError("the last number is cut short")
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if ends.size else ends
    lengths = ends - starts + 1
    if lengths.size and lengths.max() > LONGEST_VARINT:
        raise ValueError("a number has more than 64 bits")
    numbers = np.zeros(ends.size, np.uint64)
    for place in range(int(lengths.max()) if lengths.size else 0):
        has = lengths > place
        bits = (data[starts[has] + place] & (_MORE - 1)).astype(np.uint64)
        numbers[has] |= bits << np.uint64(_BITS * place)
    return numbers


_VARINT, _FIXED64, _LENGTH, _GROUP, _END_GROUP, _FIXED32 = range(6)
_DEEPEST = 32
# A large net has some thousands of layers with some tens of fields; weights count as one each.
_MOST_FIELDS = 1 << 18
_FLOATS: Mapping[str, tuple[DType, int]] = {
    "float": (np.dtype("<f4"), _FIXED32),
    "double": (np.dtype("<f8"), _FIXED64),
}
# By this tag a blob is known to be of the fork that stores raw bytes; elsewhere the field holds bytes.
_RAW_DATA_TYPE = 10 << 3 | _VARINT
# And by this one to be of C3D, where it is the fifth size; elsewhere it holds values.
_FIFTH_SIZE = 5 << 3 | _VARINT
# What is read of a file; in the other messages, which the .prototxt has too, forks gave numbers other meanings.
_READ = ("NetParameter", "LayerParameter", "V1LayerParameter", "V0LayerParameter")
# Gradients are never used.
_NOT_KEPT = ("diff", "double_diff")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message, and how many of its fields no table knows, in all depths."""

    message: TextMessage
    unknown: int


def decode(data: Array, table: str, *, what: str) -> Decoded:
    """Read a message.

    Args:
        data: The bytes, as uint8; weights in the result are windows on it.
        table: The name of the message's table.
        what: What the bytes are called in messages, e.g. the path of the file.

    Raises:
        BadInput: It is cut short, damaged, nested too deeply, or has absurdly many fields.
    """
    reader = _WireReader(data, what)
    message = reader.message(message_spec(table), 0, data.size, 0)
    return Decoded(message, reader.unknown)


@dataclass(slots=True)
class _Gathered:
    """The fields of one message as they come; a single field keeps its last value, as the format says."""

    entries: list[TextEntry] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, spec: FieldSpec, value: TextValue) -> None:
        place = self.places.get(spec.name)
        if spec.repeated or place is None:
            self.places[spec.name] = len(self.entries)
            self.entries.append(TextEntry(spec.name, value))
            return
        before = self.entries[place].value
        if isinstance(before, TextMessage) and isinstance(value, TextMessage):
            value = TextMessage(before.entries + value.entries)
        self.entries[place] = TextEntry(spec.name, value)

    def renamed(self, before: MessageSpec, now: MessageSpec) -> MessageSpec:
        """Give the fields so far the names that their numbers have in another message; gives that message."""
        for place, entry in enumerate(self.entries):
            name = now.by_number[before.by_name[entry.name].number].name
            self.entries[place] = TextEntry(name, entry.value)
        self.places = {entry.name: place for place, entry in enumerate(self.entries)}
        return now


class _WireReader:
    """Walks over the bytes once."""

    def __init__(self, data: Array, what: str) -> None:
        self._data = data
        self._bytes = memoryview(data.data)  # single bytes come faster from it
        self._what = what
        self._fields = 0
        self.unknown = 0

    def message(self, spec: MessageSpec, start: int, end: int, depth: int) -> TextMessage:
        if depth > _DEEPEST:
            self._fail(start, english("messages are nested more than {deepest} deep", deepest=_DEEPEST))
        gathered, position = _Gathered(), start
        while position < end:
            self._fields += 1
            if self._fields > _MOST_FIELDS:
                self._fail(position, english("there are more than {most_fields} fields", most_fields=_MOST_FIELDS))
            tag, after = self._varint(position, end)
            if tag == _RAW_DATA_TYPE and spec.name == "BlobProto":
                spec = message_spec("RawBlobProto")
            elif tag == _FIFTH_SIZE and spec.name == "BlobProto":
                spec = gathered.renamed(spec, message_spec("VolumeBlobProto"))
            known = spec.by_number.get(tag >> 3)
            steers = spec.name.endswith("Parameter") and spec.name not in _READ
            if known is None or (steers and not _stored_so(known, tag & 7)):
                self.unknown += 1
                position = self._skip(tag, after, end, depth)
            else:
                position = self._field(gathered, known, position, end, depth)
        return TextMessage(tuple(gathered.entries))

    def _field(self, gathered: _Gathered, spec: FieldSpec, position: int, end: int, depth: int) -> int:
        tag, after = self._varint(position, end)
        wire = tag & 7
        if spec.kind in _FLOATS:
            return self._floats(gathered, spec, position, end)
        if wire == _LENGTH:
            start, stop = self._span(after, end)
            gathered_value = self._delimited(spec, start, stop, depth)
            if isinstance(gathered_value, np.ndarray) and not _is_weights(spec):
                for number in gathered_value.tolist():
                    gathered.add(spec, _enumerated(spec, int(number)))
            else:
                gathered.add(spec, gathered_value)
            return stop
        if wire != _VARINT or spec.kind in ("string", "bytes", "message"):
            self._fail(
                position, english("field {name!r} is stored in another way than its type asks for", name=spec.name)
            )
        number, stop = self._varint(after, end)
        gathered.add(spec, _enumerated(spec, number if spec.kind == "uint" else to_signed(number)))
        return stop

    def _delimited(self, spec: FieldSpec, start: int, stop: int, depth: int) -> TextValue:
        if spec.kind == "message":
            return self.message(message_spec(spec.message), start, stop, depth + 1)
        if spec.kind in ("string", "bytes"):
            raw = self._data[start:stop].tobytes()
            return raw if spec.kind == "bytes" else self._text(raw, start)
        if stop - start > _MOST_FIELDS and not _is_weights(spec):
            self._fail(
                start,
                english("field {name!r} has {number} bytes, absurdly many", name=spec.name, number=stop - start),
            )
        try:
            numbers = varints(self._data[start:stop])
        except ValueError as error:
            self._fail(start, str(error))
        return numbers if spec.kind == "uint" else numbers.view(np.int64)

    def _floats(self, gathered: _Gathered, spec: FieldSpec, position: int, end: int) -> int:
        """Values in one piece, or each with a tag of its own, as old files have them: read as one array."""
        dtype, single = _FLOATS[spec.kind]
        tag, after = self._varint(position, end)
        if tag & 7 == _LENGTH:
            start, stop = self._span(after, end)
            if (stop - start) % dtype.itemsize:
                self._fail(
                    start,
                    english(
                        "the {number} bytes of {name!r} are no whole number of values",
                        number=stop - start,
                        name=spec.name,
                    ),
                )
            values = self._data[start:stop].view(dtype)
        elif tag & 7 == single:
            head = after - position
            count = self._run(position, end, head, dtype.itemsize)
            stop = position + count * (head + dtype.itemsize)
            rows = self._data[position:stop].reshape(count, -1)[:, head:]
            values = np.ascontiguousarray(rows).view(dtype).ravel()
        else:
            self._fail(
                position, english("field {name!r} is stored in another way than its type asks for", name=spec.name)
            )
        if spec.name not in _NOT_KEPT:
            if _is_weights(spec):
                gathered.add(spec, values)
            else:
                for value in values.tolist():
                    gathered.add(spec, float(value))
        return stop

    def _run(self, position: int, end: int, head: int, size: int) -> int:
        """How many values of one size stand one behind the other, each with the same tag."""
        step = head + size
        most = (end - position) // step
        if not most:
            self._fail(position, english("the file ends in the middle of a value"))
        rows = self._data[position : position + most * step].reshape(most, step)
        differs = np.flatnonzero((rows[:, :head] != rows[0, :head]).any(axis=1))
        return int(differs[0]) if differs.size else most

    def _text(self, raw: bytes, offset: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._fail(offset, english("a name is not UTF-8 text"))

    def _skip(self, tag: int, position: int, end: int, depth: int) -> int:
        wire = tag & 7
        if wire == _VARINT:
            return self._varint(position, end)[1]
        if wire == _LENGTH:
            return self._span(position, end)[1]
        if wire in (_FIXED32, _FIXED64):
            stop = position + (4 if wire == _FIXED32 else 8)
            if stop > end:
                self._fail(position, english("the file ends in the middle of a value"))
            return stop
        if wire == _GROUP and depth < _DEEPEST:
            while True:
                inner, position = self._varint(position, end)
                if inner & 7 == _END_GROUP:
                    return position
                position = self._skip(inner, position, end, depth + 1)
        self._fail(
            position,
            english("field {tag} is of the unknown kind {wire}, or nested too deeply", tag=tag >> 3, wire=wire),
        )
        return None

    def _span(self, position: int, end: int) -> tuple[int, int]:
        length, start = self._varint(position, end)
        if length > end - start:
            self._fail(
                position,
                english(
                    "{length} bytes should follow, but only {number} are left", length=length, number=end - start
                ),
            )
        return start, start + length

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        number, shift = 0, 0
        for place in range(position, min(end, position + LONGEST_VARINT)):
            byte = self._bytes[place]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & (2**64 - 1), place + 1
            shift += 7
        cut = end - position < LONGEST_VARINT
        self._fail(
            position,
            english("the file ends in the middle of a number")
            if cut
            else english("a number has more than 64 bits"),
        )
        return None

    def _fail(self, offset: int, text: str) -> NoReturn:
        raise BadInput(
            english(
                "{what} is damaged, cut short or no such file: at byte {offset} of {size}, {text}.",
                what=self._what,
                offset=offset,
                size=self._data.size,
                text=text,
            ),
            fix=english("check that it is a .caffemodel (not its text) and was copied whole"),
        )


def _stored_so(spec: FieldSpec, wire: int) -> bool:
    """Whether values of a field are stored in this way."""
    if spec.kind in ("string", "bytes", "message"):
        return wire == _LENGTH
    single = _FLOATS[spec.kind][1] if spec.kind in _FLOATS else _VARINT
    return wire == single or (spec.repeated and wire == _LENGTH)


def _is_weights(spec: FieldSpec) -> bool:
    return spec.name in ("data", "double_data", "int32_data", "uint64_data", *_NOT_KEPT)


def _enumerated(spec: FieldSpec, number: int) -> bool | int | str:
    if spec.kind == "bool":
        return bool(number)
    if spec.kind == "enum":
        return next((name for name, value in spec.values.items() if value == number), number)
    return number


# Messages as the bytes of Caffe's binary files.

_VARINT_WIRE_WRITING, _FIXED64_WIRE_WRITING, _LENGTH_WIRE_WRITING, _FIXED32_WIRE_WRITING = 0, 1, 2, 5


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
        yield _head(spec, _LENGTH_WIRE_WRITING) + varint(sum(map(len, pieces)))
        yield from pieces
        return
    if isinstance(value, np.ndarray):
        if spec.kind in ("float", "double"):
            body = np.ascontiguousarray(value, "<f4" if spec.kind == "float" else "<f8").tobytes()
        else:
            body = packed_varints(value)
        yield _head(spec, _LENGTH_WIRE_WRITING) + varint(len(body))
        yield body
        return
    yield _single(value, spec)


def _single(value: bool | int | float | str | bytes, spec: FieldSpec) -> bytes:
    if spec.kind in ("float", "double"):
        wire, dtype = (_FIXED32_WIRE_WRITING, "<f4") if spec.kind == "float" else (_FIXED64_WIRE_WRITING, "<f8")
        return _head(spec, wire) + np.array(float(value), dtype).tobytes()
    if isinstance(value, bytes) or (isinstance(value, str) and spec.kind != "enum"):
        raw = value if isinstance(value, bytes) else value.encode()
        return _head(spec, _LENGTH_WIRE_WRITING) + varint(len(raw)) + raw
    return _head(spec, _VARINT_WIRE_WRITING) + varint(spec.values[value] if isinstance(value, str) else int(value))


def _head(spec: FieldSpec, wire: int) -> bytes:
    return varint(spec.number << 3 | wire)
