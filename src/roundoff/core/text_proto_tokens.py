"""The words of protocol buffers' text format, each with its line."""

import re
from dataclasses import dataclass
from typing import Literal

from roundoff.errors import BadInput

__all__ = ["Token", "Tokens", "token_text", "unescaped"]

MOST_CHARACTERS = 1 << 28
"""A text larger than this is none that people or tools write."""

_WORD = re.compile(
    r"(?P<skip>[ \t\r\f\v]+|\#[^\n]*)"
    r"|(?P<line>\n)"
    r"|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?)(?![\w.]))"
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
            what = f"{what} has {len(text)} characters, too many for a text of this kind."
            raise BadInput(what, fix="check that it is the right file")
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
                what = f"{self._what}, line {self._line}: {rest!r} has no meaning here."
                raise BadInput(what, fix="correct that line; texts stand in quotes on one line")
            self._position = match.end()
            if match.lastgroup == "line":
                self._line += 1
            elif match.lastgroup != "skip":
                return Token(match.lastgroup, match.group(), self._line)  # type: ignore[arg-type]
        return Token("end", "", self._line)


def token_text(token: Token) -> str:
    """A word as messages name it."""
    shown = token.text if len(token.text) <= _SHOWN else f"{token.text[:_SHOWN]}..."
    return "the end of the text" if token.kind == "end" else repr(shown)


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
                f"{what}, line {token.line}: the escape {escape!r} means nothing.", fix="correct that line"
            )
        return _SINGLE[char]

    return _ESCAPE.sub(byte, token.text[1:-1].encode())
