"""Text format of protocol buffers, read and written by field tables of our own.

``field: value``, ``message { ... }``, ``message: < ... >``, lists ``[a, b]``, enumerations by name or number,
texts in pieces with escapes, comments behind ``#``. Reading is strict: a field the table does not have, a value of
another type and a second value of a single field are refused, each with its line. Nesting and size are limited.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

# The words of protocol buffers' text format, each with its line.

MOST_CHARACTERS = 1 << 28
"""A text larger than this is none that people or tools write."""

# Numbers are matched without steps back, which would take the square of their length.
_WORD = re.compile(
    r"(?P<skip>[ \t\r\f\v]+|\#[^\n]*)"
    r"|(?P<line>\n)"
    r"|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+[fF]?+)(?![\w.]))"
    r"|(?P<text>\"(?:[^\"\\\n]|\\[^\n])*\"|'(?:[^'\\\n]|\\[^\n])*')"
    r"|(?P<mark>[{}<>\[\]:;,-])"
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SINGLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_SAME = frozenset((b"\\", b'"', b"'", b"?"))
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Token:
    """One word: what it is, how it is written, and its line."""

    kind: Literal["name", "number", "text", "mark", "end"]
    text: str
    line: int


class Tokens:
    """The words of a text, one after the other.

    Args:
        text: The text.
        what: What it is called in messages.

    Raises:
        BadInput: It is larger than any such text.
    """

    def __init__(self, text: str, what: str) -> None:
        if len(text) > MOST_CHARACTERS:
            what = english(
                "{what} has {count} characters, too many for a text of this kind.", what=what, count=len(text)
            )
            raise BadInput(what, fix=english("check that it is the right file"))
        self._text, self._what = text.removeprefix("\ufeff"), what
        self._position, self._line = 0, 1
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next word; it stays the next."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """The next word."""
        token, self._next = self.peek(), None
        return token

    def take_signed(self) -> Token:
        """The next word, with the minus in front of it if there is one."""
        token = self.take()
        if token.kind == "mark" and token.text == "-":
            number = self.take()
            return Token(number.kind, f"-{number.text}", number.line)
        return token

    def skip(self, mark: str) -> bool:
        """Take the next word if it is this mark."""
        token = self.peek()
        found = token.kind == "mark" and token.text == mark
        if found:
            self.take()
        return found

    def _read(self) -> Token:
        while self._position < len(self._text):
            match = _WORD.match(self._text, self._position)
            if match is None:
                rest = self._text[self._position :].split("\n", 1)[0][:_SHOWN]
                what = english(
                    "{what}, line {line}: {rest!r} has no meaning here.",
                    what=self._what,
                    line=self._line,
                    rest=rest,
                )
                raise BadInput(what, fix=english("correct that line; texts stand in quotes on one line"))
            self._position = match.end()
            if match.lastgroup == "line":
                self._line += 1
            elif match.lastgroup != "skip":
                return Token(match.lastgroup, match.group(), self._line)  # type: ignore[arg-type]
        return Token("end", "", self._line)


def token_text(token: Token) -> str:
    """A word as messages name it."""
    shown = token.text if len(token.text) <= _SHOWN else f"{token.text[:_SHOWN]}..."
    return english("the end of the text") if token.kind == "end" else repr(shown)


def unescaped(token: Token, what: str) -> bytes:
    """The bytes that a text in quotes stands for.

    Raises:
        BadInput: It holds an escape that means nothing.
    """

    def byte(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, char = match.groups()
        try:
            if octal is not None:
                return bytes([int(octal, 8)])
            if hexadecimal is not None:
                return bytes([int(hexadecimal, 16)])
            if short is not None or long is not None:
                return chr(int(short or long, 16)).encode()
        except (ValueError, UnicodeEncodeError, OverflowError):
            char = b""
        if char in _SAME:
            return char
        if char not in _SINGLE:
            escape = match.group().decode(errors="replace")
            raise BadInput(
                english(
                    "{what}, line {line}: the escape {escape!r} means nothing.",
                    what=what,
                    line=token.line,
                    escape=escape,
                ),
                fix=english("correct that line"),
            )
        return _SINGLE[char]

    return _ESCAPE.sub(byte, token.text[1:-1].encode())


Kind = Literal["bool", "int", "float", "string", "bytes", "enum", "message"]
TextValue: TypeAlias = "bool | int | float | str | bytes | Array | TextMessage"
"""One value of a field; an array stands for many values of a repeated one."""

_TRUE, _FALSE = frozenset({"true", "True", "t", "1"}), frozenset({"false", "False", "f", "0"})
_NOT_FINITE = frozenset({"inf", "infinity", "nan"})
_OPENING = {"{": "}", "<": ">"}
_DEEPEST = 64
MOST_FIELDS = 1 << 22
"""A text with more values than this would take more memory than it can be worth."""
_FLOAT_DIGITS = 9
"""Digits with which a float32 can be read back exactly."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        kind: What its values are.
        repeated: Whether it may have several.
        table: The fields of the message, where it is one.
        names: The names of an enumeration with their numbers, where it is one.
        required: Whether it must be there.
    """

    kind: Kind
    repeated: bool = False
    table: "FieldTable | None" = None
    names: Mapping[str, int] = field(default_factory=dict)
    required: bool = False


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of a kind of message.

    Attributes:
        name: What the message is called.
        fields: By name.
        one_of: Fields of which at most one may be there, in groups.
        open: Whether fields that are not in the table are kept, with the type they look like, instead of refused.
    """

    name: str
    fields: Mapping[str, Field]
    one_of: tuple[tuple[str, ...], ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True)
class TextEntry:
    """One value of one field, and the line it stands in."""

    name: str
    value: TextValue
    line: int = 0


@dataclass(frozen=True, slots=True)
class TextMessage:
    """The values of a message's fields in the order of the file; enumerations as their names."""

    entries: tuple[TextEntry, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(entry.name == name for entry in self.entries)

    def all(self, name: str) -> "list[TextValue]":
        """Every value of a field."""
        return [entry.value for entry in self.entries if entry.name == name]

    def get(self, name: str, default: "TextValue | None" = None) -> "TextValue | None":
        """The value of a single field."""
        return next((entry.value for entry in self.entries if entry.name == name), default)

    def messages(self, name: str) -> "list[TextMessage]":
        """Every value of a field of messages."""
        return [value for value in self.all(name) if isinstance(value, TextMessage)]

    def message(self, name: str) -> "TextMessage | None":
        """The value of a single field that is a message."""
        return next(iter(self.messages(name)), None)

    def line(self, name: str) -> int:
        """The line of a field's first value; 0 when it has none."""
        return next((entry.line for entry in self.entries if entry.name == name), 0)


def parse_text_proto(text: str, table: FieldTable, *, what: str, most_fields: int = MOST_FIELDS) -> TextMessage:
    """Read a message.

    Args:
        text: The text.
        table: The fields it may have.
        what: What it is called in messages, e.g. the path of its file.
        most_fields: How many values it may have, in all depths.

    Raises:
        BadInput: It does not follow the format or the table, or is absurdly large.
    """
    return _TextParser(Tokens(text, what), what, most_fields).message(table, end="", depth=0)


class _TextParser:
    """Reads one text from its start to its end."""

    def __init__(self, tokens: Tokens, what: str, most_fields: int) -> None:
        self._tokens, self._what = tokens, what
        self._fields_left = most_fields

    def message(self, table: FieldTable, *, end: str, depth: int) -> TextMessage:
        if depth > _DEEPEST:
            raise self._wrong(
                self._tokens.peek(), english("messages are nested more than {deepest} deep", deepest=_DEEPEST)
            )
        opened = self._tokens.peek().line
        entries: list[TextEntry] = []
        while not self._ends(end, table, opened):
            for entry in self._field(table, depth):
                self._check_single(entry, table, entries)
                entries.append(entry)
                self._fields_left -= 1
                if self._fields_left < 0:
                    raise self._wrong(self._tokens.peek(), english("there are absurdly many values"))
            if self._tokens.peek().text in (";", ",") and self._tokens.peek().kind == "mark":
                self._tokens.take()
        self._check_required(table, entries, opened)
        return TextMessage(tuple(entries))

    def _ends(self, end: str, table: FieldTable, opened: int) -> bool:
        token = self._tokens.peek()
        if token.kind == "end":
            if not end:
                return True
            raise self._wrong(
                token,
                english(
                    "the text ends inside {name}, which begins at line {opened}", name=table.name, opened=opened
                ),
            )
        if token.kind == "mark" and token.text in _OPENING.values():
            if token.text != end:
                raise self._wrong(token, english("there is a {text!r} too many", text=token.text))
            self._tokens.take()
            return True
        return False

    def _field(self, table: FieldTable, depth: int) -> Iterator[TextEntry]:
        token = self._tokens.take()
        if token.kind != "name":
            raise self._wrong(
                token, english("the name of a field is expected, not {token_text}", token_text=token_text(token))
            )
        known = table.fields.get(token.text)
        if known is None and not table.open:
            what = english(
                "{what}, line {line}: {name} has no field {text!r}.",
                what=self._what,
                line=token.line,
                name=table.name,
                text=token.text,
            )
            raise BadInput(what, fix=nearest(token.text, table.fields))
        colon = self._tokens.skip(":")
        following = self._tokens.peek()
        is_message = following.kind == "mark" and following.text in _OPENING
        if not colon and not is_message:
            raise self._wrong(following, english("a ':' is expected behind {text!r}", text=token.text))
        if following.kind == "mark" and following.text == "[":
            yield from self._list(token, known, depth)
        else:
            yield TextEntry(token.text, self._value(token, known, depth), token.line)

    def _list(self, name: Token, known: Field | None, depth: int) -> Iterator[TextEntry]:
        opening = self._tokens.take()
        if known is not None and not known.repeated:
            raise self._wrong(opening, english("{text!r} has one value, not a list", text=name.text))
        if self._tokens.skip("]"):
            return
        while True:
            yield TextEntry(name.text, self._value(name, known, depth), self._tokens.peek().line)
            if self._tokens.skip("]"):
                return
            if not self._tokens.skip(","):
                raise self._wrong(self._tokens.peek(), english("a ',' or a ']' is expected in a list"))

    def _value(self, name: Token, known: Field | None, depth: int) -> TextValue:
        token = self._tokens.peek()
        opens = token.kind == "mark" and token.text in _OPENING
        if opens != (known.kind == "message" if known is not None else opens):
            expected = (
                english("a message in braces")
                if known is not None and known.kind == "message"
                else english("a value")
            )
            raise self._wrong(
                token,
                english(
                    "{text!r} takes {expected}, not {token_text}",
                    text=name.text,
                    expected=expected,
                    token_text=token_text(token),
                ),
            )
        if opens:
            self._tokens.take()
            table = known.table if known is not None and known.table is not None else _anything(name.text)
            return self.message(table, end=_OPENING[token.text], depth=depth + 1)
        return self._scalar(name, known)

    def _scalar(self, name: Token, known: Field | None) -> TextValue:
        kind = known.kind if known is not None else None
        first = self._tokens.peek()
        if first.kind == "text":
            pieces = []
            while self._tokens.peek().kind == "text":
                pieces.append(unescaped(self._tokens.take(), self._what))
            joined = b"".join(pieces)
            if kind not in (None, "string", "bytes"):
                raise self._wrong(
                    first, english("{text!r} takes {article}, not a text", text=name.text, article=_ARTICLE[kind])
                )
            return joined if kind == "bytes" else self._utf8(first, joined)
        token = self._tokens.take_signed()
        value = _READERS[kind](token, known) if kind in _READERS else None if kind else _guessed(token)
        if value is None:
            raise self._wrong(
                token,
                english(
                    "{text!r} takes {expected}, not {token_text}",
                    text=name.text,
                    expected=_expected(kind, known),
                    token_text=token_text(token),
                ),
            )
        return value

    def _utf8(self, token: Token, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._wrong(token, english("the text is not UTF-8")) from None

    def _check_single(self, entry: TextEntry, table: FieldTable, entries: Sequence[TextEntry]) -> None:
        known = table.fields.get(entry.name)
        if known is None or known.repeated:
            return
        others = {other for group in table.one_of if entry.name in group for other in group}
        for earlier in entries:
            if earlier.name == entry.name:
                self._refuse(
                    entry.line,
                    english("{name!r} is given twice (also in line {line})", name=entry.name, line=earlier.line),
                )
            if earlier.name in others:
                self._refuse(
                    entry.line,
                    english("{name!r} and {name2!r} exclude each other", name=entry.name, name2=earlier.name),
                )

    def _check_required(self, table: FieldTable, entries: Sequence[TextEntry], opened: int) -> None:
        given = {entry.name for entry in entries}
        for name, known in table.fields.items():
            if known.required and name not in given:
                self._refuse(opened, english("{name} needs {name2!r}", name=table.name, name2=name))

    def _refuse(self, line: int, text: str) -> None:
        raise BadInput(
            english("{what}, line {line}: {text}.", what=self._what, line=line, text=text),
            fix=english("correct that line"),
        )

    def _wrong(self, token: Token, text: str) -> BadInput:
        return BadInput(
            english("{what}, line {line}: {text}.", what=self._what, line=token.line, text=text),
            fix=english("correct that line"),
        )


def _anything(name: str) -> FieldTable:
    return FieldTable(name, {}, open=True)


_ARTICLE = {
    "bool": english("true or false"),
    "int": english("a whole number"),
    "float": english("a number"),
    "string": english("a text in quotes"),
    "bytes": english("a text in quotes"),
    "enum": english("one of its names"),
}


def _expected(kind: Kind | None, known: Field | None) -> str:
    if kind == "enum" and known is not None:
        return english("one of {names}", names=", ".join(known.names))
    return _ARTICLE[kind or "float"]


def _read_bool(token: Token, _: Field | None) -> bool | None:
    return True if token.text in _TRUE else False if token.text in _FALSE else None


def _read_int(token: Token, _: Field | None) -> int | None:
    digits = token.text.lstrip("-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") and len(digits) > 1 else 10
    try:
        return int(token.text, base) if token.kind == "number" else None
    except ValueError:
        return None


def _read_float(token: Token, _: Field | None) -> float | None:
    if token.kind == "name":
        return float(token.text) if token.text.lower().lstrip("-") in _NOT_FINITE else None
    try:
        if "x" in token.text.lower():
            return float(int(token.text, 16))
        return float(token.text.rstrip("fF")) if token.kind == "number" else None
    except (ValueError, OverflowError):
        return None


def _read_enum(token: Token, known: Field | None) -> str | None:
    names = known.names if known is not None else {}
    if token.kind == "name":
        return token.text if token.text in names else None
    number = _read_int(token, None)
    return next((name for name, value in names.items() if value == number), None)


_READERS = {"bool": _read_bool, "int": _read_int, "float": _read_float, "enum": _read_enum}


def _guessed(token: Token) -> "TextValue | None":
    """The value of a field that no table knows: a number if it looks like one, otherwise its name."""
    if token.text in ("true", "false"):
        return token.text == "true"
    if token.kind == "name":
        return token.text
    whole = _read_int(token, None)
    return whole if whole is not None else _read_float(token, None)


# Writing -------------------------------------------------------------------------------------------------------


def text_proto_text(message: TextMessage, table: FieldTable) -> str:
    """A message as text: one field in a line, two blanks for every level; ends with a line end.

    Args:
        message: What to write.
        table: The fields it has; it tells names of enumerations from texts.
    """
    return "".join(f"{line}\n" for line in _lines(message, table, ""))


def _lines(message: TextMessage, table: FieldTable, indent: str) -> Iterator[str]:
    for entry in message.entries:
        known = table.fields.get(entry.name)
        if isinstance(entry.value, TextMessage):
            inner = known.table if known is not None and known.table is not None else _anything(entry.name)
            yield f"{indent}{entry.name} {{"
            yield from _lines(entry.value, inner, f"{indent}  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{entry.name}: {_written(entry.value, known)}"


def _written(value: TextValue, known: Field | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.{_FLOAT_DIGITS}g}"
    if isinstance(value, np.ndarray):
        return "[" + ", ".join(_written(number, known) for number in value.ravel().tolist()) + "]"
    if isinstance(value, bytes):
        return '"' + "".join(_escaped_byte(byte) for byte in value) + '"'
    # A number that needs more digits than others comes as it is to be written.
    if isinstance(value, str) and not (known is not None and known.kind in ("enum", "float")):
        return '"' + "".join(_ESCAPES.get(char, char) for char in value) + '"'
    return str(value)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped_byte(byte: int) -> str:
    char = chr(byte)
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
