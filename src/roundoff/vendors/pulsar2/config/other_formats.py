"""The formats beside JSON in which a configuration may be written: YAML, TOML and protobuf's text."""

import tomllib
from dataclasses import dataclass
from typing import Any

from roundoff.core.text_proto import FieldTable, TextMessage, TextValue, parse_text_proto
from roundoff.errors import BadInput, MissingExtra
from roundoff.vendors.pulsar2.config.documents import Document, Place
from roundoff.vendors.pulsar2.config.fields import MessageField, message_fields
from roundoff.vendors.pulsar2.config.schema import BuildConfig

__all__ = ["parse_prototxt", "parse_toml", "parse_yaml"]

_DEEPEST = 64
_ROOT = FieldTable("the configuration", {}, open=True)


def parse_toml(text: str, *, name: str) -> Document:
    """Read TOML.

    Raises:
        BadInput: It is not TOML.
    """
    try:
        return Document(name, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BadInput(f"{name} is not TOML: {str(error).rstrip('.')}.", fix="correct that line") from error


def parse_yaml(text: str, *, name: str) -> Document:
    """Read YAML: plain values only, no tags, and no anchors, with which a small file can stand for a huge one.

    Raises:
        BadInput: It is not YAML, or says a key twice.
        MissingExtra: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra("Reading YAML", package="yaml", extra="yaml") from error
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                raise _wrong_yaml(
                    name, token.start_mark, "anchors, aliases and tags are not taken", "write it out"
                )
        loader = yaml.SafeLoader(text)
        return _Nodes(loader, name, {}).document(loader.get_single_node())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _wrong_yaml(name, mark, str(error.problem or error.context), "correct that line") from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{name} is not YAML: {str(error).splitlines()[0]}.", fix="correct it") from error
    except RecursionError as error:
        raise BadInput(f"{name} is nested too deep.", fix="check that it is the right file") from error


def _wrong_yaml(name: str, mark: Any, text: str, fix: str) -> BadInput:
    where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
    return BadInput(f"{name}{where}: {text}.", fix=fix)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Turns the nodes of a YAML document into plain values."""

    loader: Any
    name: str
    origins: dict[Place, str]

    def document(self, node: Any) -> Document:
        return Document(self.name, {} if node is None else self.value(node, ()), self.origins)

    def value(self, node: Any, place: Place) -> Any:
        if len(place) > _DEEPEST:
            raise _wrong_yaml(
                self.name, node.start_mark, f"values are nested more than {_DEEPEST} deep", "flatten it"
            )
        self.origins[place] = f"line {node.start_mark.line + 1}"
        if node.id == "sequence":
            return [self.value(each, (*place, index)) for index, each in enumerate(node.value)]
        if node.id != "mapping":
            return self.loader.construct_object(node)
        found: dict[str, Any] = {}
        for key_node, each in node.value:
            key = str(key_node.value) if key_node.id == "scalar" else ""
            if not key or key in found:
                why = f"the key {key!r} stands twice" if key in found else "a key must be a text"
                raise _wrong_yaml(self.name, key_node.start_mark, why, "correct that line")
            found[key] = self.value(each, (*place, key))
            self.origins[(*place, key)] = f"line {key_node.start_mark.line + 1}"
        return found


def parse_prototxt(text: str, *, name: str) -> Document:
    """Read protobuf's text format.

    Raises:
        BadInput: It is not that format.
    """
    message = parse_text_proto(text, _ROOT, what=name)
    origins: dict[Place, str] = {}
    return Document(name, _plain(message, BuildConfig, (), origins), origins)


def _plain(message: TextMessage, kind: type, place: Place, origins: dict[Place, str]) -> dict[str, Any]:
    """A message as a table; a field that the message does not have stays, to be complained about."""
    known = message_fields(kind)
    found: dict[str, Any] = {}
    for name in dict.fromkeys(entry.name for entry in message.entries):
        field, values = known.get(name), message.all(name)
        origins[(*place, name)] = f"line {message.line(name)}"
        if field is None or (len(values) == 1 and not field.repeated):
            found[name] = _content(values[0], field, (*place, name), origins)
        else:
            read = [_content(each, field, (*place, name, index), origins) for index, each in enumerate(values)]
            # A single field with several values is a list, which its reader refuses.
            found[name] = read
    return found


def _content(value: TextValue, field: MessageField | None, place: Place, origins: dict[Place, str]) -> Any:
    if isinstance(value, TextMessage):
        if field is not None and field.is_message:
            return _plain(value, field.kind, place, origins)
        return _struct(value) if "fields" in value or not value.entries else _free(value)
    if field is not None and field.kind is bool and value in (0, 1):
        return bool(value)
    return value


def _free(message: TextMessage) -> dict[str, Any]:
    """A message that no class describes."""
    return {
        name: [_free(each) if isinstance(each, TextMessage) else each for each in message.all(name)]
        for name in dict.fromkeys(entry.name for entry in message.entries)
    }


def _struct(message: TextMessage) -> dict[str, Any]:
    """What protobuf's Struct, a table of free values, stands for."""
    pairs = message.messages("fields")
    return {str(pair.get("key", "")): _struct_value(pair.message("value") or TextMessage()) for pair in pairs}


def _struct_value(message: TextMessage) -> Any:
    for entry in message.entries:
        if isinstance(entry.value, TextMessage):
            if entry.name == "list_value":
                return [_struct_value(each) for each in entry.value.messages("values")]
            return _struct(entry.value)
        if entry.name == "number_value" and isinstance(entry.value, int | float):
            return entry.value
        if entry.name in ("string_value", "bool_value"):
            return entry.value
    return None
