"""Which fields Caffe's messages have: names, numbers, types and defaults, read from `fields.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from roundoff.core import text_proto

__all__ = [
    "FieldSpec",
    "MessageSpec",
    "WireKind",
    "layer_types_v1",
    "message_names",
    "message_spec",
    "text_table",
]


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath("fields.toml").read_text("utf-8"))


def message_names() -> tuple[str, ...]:
    """Names of all messages that are known."""
    return tuple(_tables()["messages"])


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
    specs = [_field(line) for line in _tables()["messages"][name].splitlines() if line.strip()]
    return MessageSpec(
        name, {spec.name: spec for spec in specs}, {spec.number: spec for spec in specs if spec.number}
    )


def _field(line: str) -> FieldSpec:
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
