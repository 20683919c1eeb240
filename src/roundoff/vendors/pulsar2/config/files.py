"""The formats beside JSON in which a configuration may be written: YAML, TOML and protobuf's text."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from roundoff.core import untrusted
from roundoff.core.files import read_small
from roundoff.core.names import shown
from roundoff.core.text_proto import FieldTable, TextMessage, TextValue, parse_text_proto
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.vendors.pulsar2.config.checks import contradictions
from roundoff.vendors.pulsar2.config.document import ConfigProblem, Document, Place, read_message, refuse
from roundoff.vendors.pulsar2.config.schema import BuildConfig, MessageField, message_fields

_DEEPEST = 64
_ROOT = FieldTable("the configuration", {}, open=True)


def parse_toml(text: str, *, name: str) -> Document:
    """Read TOML.

    Raises:
        BadInput: It is not TOML.
    """
    return Document(name, untrusted.parse_toml(text, name, fix=english("correct that line")))


def parse_yaml(text: str, *, name: str) -> Document:
    """Read YAML: plain values only, no tags, and no anchors, with which a small file can stand for a huge one.

    Raises:
        BadInput: It is not YAML, or says a key twice.
        MissingExtra: PyYAML is not installed.
    """
    loader, root = untrusted.yaml_node(text, name, wrong=partial(_wrong_yaml, name))
    try:
        return _Nodes(loader, name, {}).document(root)
    except BadInput:
        raise
    except ValueError as error:  # a date that is none, a number of thousands of digits
        raise BadInput(
            english("{name} is not YAML: {splitlines}.", name=name, splitlines=str(error).splitlines()[0]),
            fix=english("correct it"),
        ) from error


def _wrong_yaml(name: str, mark: Any, text: str, fix: str) -> BadInput:
    where = (
        ""
        if mark is None
        else english(", line {line}, column {column}", line=mark.line + 1, column=mark.column + 1)
    )
    return BadInput(english("{name}{where}: {text}.", name=name, where=where, text=text), fix=fix)


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
                self.name,
                node.start_mark,
                english("values are nested more than {deepest} deep", deepest=_DEEPEST),
                english("flatten it"),
            )
        self.origins[place] = f"line {node.start_mark.line + 1}"
        if node.id == "sequence":
            return [self.value(each, (*place, index)) for index, each in enumerate(node.value)]
        if node.id != "mapping":
            # "=" and "<<" are signs of YAML that its loader gives no value.
            sign = node.tag.endswith((":value", ":merge"))
            return str(node.value) if sign else self.loader.construct_object(node)
        found: dict[str, Any] = {}
        for key_node, each in node.value:
            key = str(key_node.value) if key_node.id == "scalar" else ""
            if not key or key in found:
                why = (
                    english("the key {key!r} stands twice", key=key)
                    if key in found
                    else english("a key must be a text")
                )
                raise _wrong_yaml(self.name, key_node.start_mark, why, english("correct that line"))
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


# JSON with what people add to it: ``//``, ``#`` and ``/* */`` comments, and a comma behind the last element.
#
# Everything else is as strict as JSON, and a key may stand only once in an object. Errors say the line and column.

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>[{}\[\],:])""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
_MOST_DIGITS = 400
"""A number of more digits is no setting of anything, and slow to read."""


def parse_relaxed_json(text: str, *, name: str) -> Document:
    """Read a document.

    Args:
        text: The text.
        name: What it is called in messages.

    Raises:
        BadInput: It is not JSON even so; the message says where.
    """
    parser = _JsonParser(text, name)
    value = parser.value((), depth=0)
    parser.end()
    return Document(name, value, parser.origins)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _JsonParser:
    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._at, self._line, self._counted = 0, 1, 0
        self.origins: dict[Place, str] = {}
        self._next = self._scan()

    def value(self, place: Place, *, depth: int) -> Any:
        token = self._take()
        if depth > _DEEPEST:
            raise self._wrong(token, english("values are nested more than {deepest} deep", deepest=_DEEPEST))
        if token.text == "{" and token.kind == "mark":
            return self._object(token, place, depth)
        if token.text == "[" and token.kind == "mark":
            found: list[Any] = []
            while not self._closes("]", token):
                inner = (*place, len(found))
                self.origins[inner] = f"line {self._line_of(self._next)}"
                found.append(self.value(inner, depth=depth + 1))
                self._separate("]")
            return found
        if token.kind == "text":
            return self._decoded(token)
        if token.kind == "number":
            if len(token.text) > _MOST_DIGITS:
                raise self._wrong(token, english("a number has absurdly many digits"))
            return float(token.text) if set(token.text) & set(".eE") else int(token.text)
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[token.text]
        raise self._wrong(token, english("a value is expected, not {token}", token=_quoted(token)))

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong(
                self._next, english("nothing may follow the value, but there is {next}", next=_quoted(self._next))
            )

    def _object(self, opening: _Token, place: Place, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._closes("}", opening):
            token = self._take()
            if token.kind != "text":
                raise self._wrong(
                    token, english("a key in double quotes is expected, not {token}", token=_quoted(token))
                )
            key = self._decoded(token)
            if key in found:
                raise self._wrong(token, english("the key {key!r} stands twice in one object", key=key))
            self.origins[(*place, key)] = f"line {self._line_of(token)}"
            colon = self._take()
            if colon.text != ":" or colon.kind != "mark":
                raise self._wrong(
                    colon,
                    english("a ':' is expected behind {text}, not {colon}", text=token.text, colon=_quoted(colon)),
                )
            found[key] = self.value((*place, key), depth=depth + 1)
            self._separate("}")
        return found

    def _closes(self, mark: str, opening: _Token) -> bool:
        if self._next.kind == "end":
            began = self._where(opening)
            raise self._wrong(
                self._next,
                english(
                    "the text ends inside what begins with {text!r} at {began}", text=opening.text, began=began
                ),
            )
        if self._next.kind == "mark" and self._next.text == mark:
            self._take()
            return True
        return False

    def _separate(self, closing: str) -> None:
        """Take the comma behind an element; the last one need not have one."""
        token = self._next
        if token.kind == "mark" and token.text == ",":
            self._take()
        elif token.kind != "end" and not (token.kind == "mark" and token.text == closing):
            raise self._wrong(
                token,
                english("a ',' or a {closing!r} is expected, not {token}", closing=closing, token=_quoted(token)),
            )

    def _decoded(self, token: _Token) -> str:
        try:
            text: str = json.loads(token.text)
            text.encode()
        except ValueError as error:
            raise self._wrong(token, english("a text holds an escape that means nothing")) from error
        return text

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = self._scan()
        return token

    def _scan(self) -> _Token:
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                stray = _Token("stray", self._text[self._at], self._at)
                open_text = english("a text does not end in its line") if stray.text == '"' else None
                raise self._wrong(stray, open_text or english("{text!r} is no part of JSON", text=stray.text))
            start, self._at = self._at, found.end()
            if found.lastgroup != "skip":
                return _Token(str(found.lastgroup), found[0], start)
        return _Token("end", "", len(self._text))

    def _line_of(self, token: _Token) -> int:
        """Lines are counted on from the last one asked for, which is seldom far."""
        if token.start < self._counted:
            self._line, self._counted = 1, 0
        self._line += self._text.count("\n", self._counted, token.start)
        self._counted = token.start
        return self._line

    def _where(self, token: _Token) -> str:
        column = token.start - self._text.rfind("\n", 0, token.start)
        return english("line {line_of}, column {column}", line_of=self._line_of(token), column=column)

    def _wrong(self, token: _Token, text: str) -> BadInput:
        return BadInput(
            english("{name}, {where}: {text}.", name=self._name, where=self._where(token), text=text),
            fix=english("correct that line"),
        )


def _quoted(token: _Token) -> str:
    return repr(token.text[:40]) if token.kind != "end" else english("the end of the text")


# A configuration from a file and from the command line, checked as a whole.

# Single settings given on the command line, by dotted names; they count more than the file.

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def override_names() -> dict[str, MessageField]:
    """Every setting that can be given as an option: all single values outside of lists."""
    return dict(_scalars(BuildConfig, ""))


def _scalars(message: type, prefix: str) -> Iterator[tuple[str, MessageField]]:
    for name, field in message_fields(message).items():
        if field.is_scalar:
            yield f"{prefix}{name}", field
        elif field.is_message and not field.repeated:
            yield from _scalars(field.kind, f"{prefix}{name}.")


def overridden(
    document: Document, overrides: Sequence[tuple[str, str | None]], *, problems: list[ConfigProblem]
) -> Document:
    """A document in which some settings are replaced.

    Args:
        document: What the file says.
        overrides: Dotted names and values; None for a switch that is given without one.
        problems: Takes what is wrong with them.
    """
    known = override_names()
    value, origins = document.value, dict(document.origins)
    for given, word in overrides:
        name = given.removeprefix("--")
        place: Place = tuple(name.split("."))
        if name not in known:
            what = (
                "is a list or a table, which the file has to give" if _exists(place) else "there is no such option"
            )
            hint = "" if _exists(place) else f"; {nearest(name, known)}"
            problems.append(ConfigProblem((f"--{name}",), f"{what}{hint}"))
            continue
        content, why = _flag_content(known[name], word)
        if why:
            problems.append(ConfigProblem((f"--{name}",), why))
            continue
        value = _with(value, place, content)
        origins[place] = "on the command line"
    return Document(document.name, value, origins)


def _exists(place: Place) -> bool:
    message: type | None = BuildConfig
    for part in place:
        field = message_fields(message).get(str(part)) if message is not None else None
        if field is None:
            return False
        message = field.kind if field.is_message else None
    return True


def _flag_content(field: MessageField, word: str | None) -> tuple[Any, str]:
    if field.kind is not bool:
        return word, "" if word is not None else "needs a value"
    if word is None or word.lower() in _TRUE:
        return True, ""
    return False, "" if word.lower() in _FALSE else f"takes true or false, not {word!r:.60}"


def _with(value: Any, place: Place, content: Any) -> Any:
    """A copy of nested tables with one value replaced; what is no table stays, to be complained about."""
    if not place:
        return content
    if not isinstance(value, dict):
        return value if value is not None else _with({}, place, content)
    return {**value, place[0]: _with(value.get(str(place[0])), place[1:], content)}


_PARSERS: dict[str, Callable[..., Document]] = {
    **dict.fromkeys((".json", ".jsonc", ".json5", ""), parse_relaxed_json),
    **dict.fromkeys((".yaml", ".yml"), parse_yaml),
    ".toml": parse_toml,
    **dict.fromkeys((".prototxt", ".pbtxt", ".textproto", ".txtpb"), parse_prototxt),
}


Check = Callable[[BuildConfig, bool], Sequence[ConfigProblem]]
"""Looks for more that is wrong with a configuration; told whether something is already."""


def _nothing_more(config: BuildConfig, wrong: bool) -> Sequence[ConfigProblem]:
    del config, wrong
    return ()


def load_config(
    path: Path | None, overrides: Sequence[tuple[str, str | None]] = (), *, check: Check = _nothing_more
) -> BuildConfig:
    """Read a configuration file and what the command line says on top of it.

    Args:
        path: The file; its ending says the format. None for none.
        overrides: Dotted names, with or without ``--``, and values; None for a switch given without one.
        check: Looks for more that is wrong, as what does not fit the model; all is listed together.

    Raises:
        BadInput: The file cannot be read, or something in it is wrong; all of it is listed.
        MissingExtra: It is YAML and PyYAML is not installed.
    """
    if path is None:
        return parse_config(Document("The command line", {}), overrides, check=check)
    parser = _PARSERS.get(path.suffix.lower())
    if parser is None:
        known = ", ".join(suffix for suffix in _PARSERS if suffix)
        raise BadInput(
            english(
                "{path} is of no known format: its ending is {suffix!r}.", path=shown(path), suffix=path.suffix
            ),
            fix=english("use {known}", known=known),
        )
    data = read_small(path, what=english("The configuration"))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            english("{path}, line {line}: the text is not UTF-8.", path=shown(path), line=line),
            fix=english("save it as UTF-8"),
        ) from error
    return parse_config(parser(text, name=shown(path)), overrides, check=check)


def parse_config(
    document: Document, overrides: Sequence[tuple[str, str | None]] = (), *, check: Check = _nothing_more
) -> BuildConfig:
    """Check what a document says, with what the command line says on top of it.

    Args:
        document: What a file says.
        overrides: What the command line says.
        check: Looks for more that is wrong.

    Raises:
        BadInput: Something is wrong; all of it is listed.
    """
    problems: list[ConfigProblem] = []
    document = overridden(document, overrides, problems=problems)
    config = read_message(BuildConfig, document.value, place=(), problems=problems)
    later = contradictions(config)
    later += check(config, bool(problems or later))
    refuse(document, [*problems, *(each for each in later if not _touched(each, problems))])
    return config


def _touched(problem: ConfigProblem, problems: Sequence[ConfigProblem]) -> bool:
    """Whether a contradiction may be there only because a value in it could not be read."""
    return any(
        each.place[: len(problem.place)] == problem.place or problem.place[: len(each.place)] == each.place
        for each in problems
    )
