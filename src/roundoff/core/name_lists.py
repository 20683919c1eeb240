"""Lists of names as people type them on a command line: ``[a,b]``, ``['a','b']``, ``[[a,b],[c]]``."""

from collections.abc import Iterator

from roundoff.errors import BadInput

__all__ = ["NameList", "parse_name_list"]

NameList = tuple["str | NameList", ...]
"""Names, and lists of names."""

_QUOTES = "'\""
_EXAMPLE = "write it like [a,b] or [[a],[a,b]], in quotes so that the shell keeps it in one piece"


def parse_name_list(text: str) -> NameList:
    """Read a list of names; quotes around names, blanks and a comma at the end may be there or not.

    A text without brackets is one name, or several with commas between.

    Raises:
        BadInput: A bracket or a quote is not closed, or something follows the list.
    """
    stripped = text.strip()
    reader = _Reader(stripped if stripped.startswith("[") else f"[{stripped}]", given=text)
    return reader.read()


class _Reader:
    """Goes through a text once."""

    def __init__(self, text: str, *, given: str) -> None:
        self._text, self._given, self._at = text, given, 0

    def read(self) -> NameList:
        found = self._list()
        self._skip_blanks()
        if self._at < len(self._text):
            raise self._wrong(f"{self._text[self._at :]!r} follows the list")
        return found

    def _list(self) -> NameList:
        self._at += 1
        return tuple(self._entries())

    def _entries(self) -> Iterator["str | NameList"]:
        while True:
            self._skip_blanks()
            mark = self._next()
            if mark == "]":
                self._at += 1
                return
            if mark == "[":
                yield self._list()
            elif mark != ",":
                yield self._name()
            self._skip_blanks()
            following = self._next()
            if following == ",":
                self._at += 1
            elif following != "]":
                raise self._wrong(f"a comma is missing before {following!r}")

    def _name(self) -> str:
        quote = self._next()
        if quote in _QUOTES:
            end = self._text.find(quote, self._at + 1)
            if end < 0:
                raise self._wrong(f"the quote {quote} is not closed")
            name = self._text[self._at + 1 : end]
            self._at = end + 1
            return name
        start = self._at
        depth = 0
        # A name may hold brackets of its own, as in block[3].
        while depth or self._next() not in ",]":
            depth += {"[": 1, "]": -1}.get(self._next(), 0)
            self._at += 1
        return self._text[start : self._at].rstrip()

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("a bracket is not closed")
        return self._text[self._at]

    def _skip_blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _wrong(self, reason: str) -> BadInput:
        return BadInput(f"{self._given!r} is not a list of names: {reason}.", fix=_EXAMPLE)
