"""JSON with what people add to it: ``//``, ``#`` and ``/* */`` comments, and a comma behind the last element.

Everything else is as strict as JSON, and a key may stand only once in an object. Errors say the line and column.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from roundoff.errors import BadInput
from roundoff.vendors.pulsar2.config.documents import Document, Place

__all__ = ["parse_relaxed_json"]

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>[{}\[\],:])""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
_DEEPEST = 64
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
    parser = _Parser(text, name)
    value = parser.value((), depth=0)
    parser.end()
    return Document(name, value, parser.origins)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._at, self._line, self._counted = 0, 1, 0
        self.origins: dict[Place, str] = {}
        self._next = self._scan()

    def value(self, place: Place, *, depth: int) -> Any:
        token = self._take()
        if depth > _DEEPEST:
            raise self._wrong(token, f"values are nested more than {_DEEPEST} deep")
        if token.text == "{" and token.kind == "mark":
            return self._object(token, place, depth)
        if token.text == "[" and token.kind == "mark":
            return self._array(token, place, depth)
        return self._scalar(token)

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong(self._next, f"nothing may follow the value, but there is {_quoted(self._next)}")

    def _object(self, opening: _Token, place: Place, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._closes("}", opening):
            token = self._take()
            if token.kind != "text":
                raise self._wrong(token, f"a key in double quotes is expected, not {_quoted(token)}")
            key = self._decoded(token)
            if key in found:
                raise self._wrong(token, f"the key {key!r} stands twice in one object")
            self.origins[(*place, key)] = f"line {self._line_of(token)}"
            colon = self._take()
            if colon.text != ":" or colon.kind != "mark":
                raise self._wrong(colon, f"a ':' is expected behind {token.text}, not {_quoted(colon)}")
            found[key] = self.value((*place, key), depth=depth + 1)
            self._separate("}")
        return found

    def _array(self, opening: _Token, place: Place, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._closes("]", opening):
            inner = (*place, len(found))
            self.origins[inner] = f"line {self._line_of(self._next)}"
            found.append(self.value(inner, depth=depth + 1))
            self._separate("]")
        return found

    def _closes(self, mark: str, opening: _Token) -> bool:
        if self._next.kind == "end":
            began = self._where(opening)
            raise self._wrong(self._next, f"the text ends inside what begins with {opening.text!r} at {began}")
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
            raise self._wrong(token, f"a ',' or a {closing!r} is expected, not {_quoted(token)}")

    def _scalar(self, token: _Token) -> Any:
        if token.kind == "text":
            return self._decoded(token)
        if token.kind == "number":
            if len(token.text) > _MOST_DIGITS:
                raise self._wrong(token, "a number has absurdly many digits")
            return float(token.text) if set(token.text) & set(".eE") else int(token.text)
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[token.text]
        raise self._wrong(token, f"a value is expected, not {_quoted(token)}")

    def _decoded(self, token: _Token) -> str:
        try:
            text: str = json.loads(token.text)
            text.encode()
        except ValueError as error:
            raise self._wrong(token, "a text holds an escape that means nothing") from error
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
                open_text = "a text does not end in its line" if stray.text == '"' else None
                raise self._wrong(stray, open_text or f"{stray.text!r} is no part of JSON")
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
        return f"line {self._line_of(token)}, column {column}"

    def _wrong(self, token: _Token, text: str) -> BadInput:
        return BadInput(f"{self._name}, {self._where(token)}: {text}.", fix="correct that line")


def _quoted(token: _Token) -> str:
    return repr(token.text[:40]) if token.kind != "end" else "the end of the text"
