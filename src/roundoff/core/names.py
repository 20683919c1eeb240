"""Tensor names as file names and back, and the order in which people expect names to be listed.

A tensor may be called anything: ``/model/conv 1:0``, an empty string, three hundred bytes of Chinese. A file may
not. The stems made here are safe on every file system; which stem stands for which name is written down beside
the files, so nothing has to be guessed back.
"""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from roundoff.errors import BadInput
from roundoff.messages.message import english

ALIAS_HEADER = ["reference", "candidate"]
"""Columns of a file that says which tensor of one side is which of the other."""


MAX_STEM_BYTES = 150
"""Leaves room for suffixes, indexes and timestamps below the 255 bytes that file systems allow."""

NOT_PORTABLE = re.compile(r"[^A-Za-z0-9_.+-]")
"""Everything that some file system, shell or archive treats in its own way."""

# Windows opens a device for these, whatever the suffix.
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789")]
)
_DIGITS = re.compile(r"([0-9]+)")
_HASH_LENGTH = 8
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Python hands out bytes of a file name that are not UTF-8 as these, from 0x80 to 0xff.
_ESCAPED_BYTES = range(0xDC80, 0xDD00)


class FileNames:
    """Hands out one unique file stem per name and remembers which are taken.

    The same names in the same order always get the same stems. Stems that differ only by case count as equal,
    because on many disks they are.

    Args:
        illegal: Which characters to replace by ``_``.
        limit: Longest stem in bytes.
        reserved: Stems that are not to be handed out.
    """

    def __init__(
        self,
        *,
        illegal: re.Pattern[str] = NOT_PORTABLE,
        limit: int = MAX_STEM_BYTES,
        reserved: Iterable[str] = (),
    ) -> None:
        self._illegal = illegal
        self._limit = limit
        self._stems: dict[str, str] = {}
        self._taken = {stem.casefold() for stem in reserved}

    def stem(self, name: str) -> str:
        """Give the stem for a name: readable when possible, with a hash when it would clash or be too long."""
        if name not in self._stems:
            stem = next(stem for stem in self._candidates(name) if stem.casefold() not in self._taken)
            self._stems[name] = stem
            self._taken.add(stem.casefold())
        return self._stems[name]

    def _candidates(self, name: str) -> Iterator[str]:
        plain = _without_traps(self._illegal.sub("_", name))
        if len(plain.encode()) <= self._limit:
            yield plain
        head = plain.encode()[: self._limit - _HASH_LENGTH - 1].decode(errors="ignore")
        for attempt in itertools.count():
            digest = hashlib.sha256(f"{attempt}:{name}".encode("utf-8", "surrogatepass")).hexdigest()
            yield f"{head}-{digest[:_HASH_LENGTH]}"


def _without_traps(stem: str) -> str:
    """Disarm stems of legal characters that are special all the same: hidden, `..`, devices, empty."""
    stem = re.sub(r"^[.-]|[. ]\Z", "_", stem) or "_"
    return f"_{stem}" if stem.split(".")[0].casefold() in _DEVICES else stem


def names_by_stem(names: Collection[str]) -> dict[str, str]:
    """Tell which name a file stem means: the name itself counts most, then without leading /, then made safe."""
    safe = FileNames()
    known = {name: name for name in names}
    for name in names:
        known.setdefault(name.lstrip("/"), name)
    for name in names:
        known.setdefault(safe.stem(name), name)
    return known


def shown(path: Path | str) -> str:
    """Spell a path so that it can be printed and stored even when the disk's name for it is not valid Unicode."""
    return _SURROGATE.sub(_spelled, str(path))


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if code in _ESCAPED_BYTES else f"\\u{code:04x}"


def natural_key(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Sort key by which ``layer2`` comes before ``layer10``; works for digits of any length."""
    pieces = _DIGITS.split(name)
    # Longer numbers (without leading zeros) are larger; text takes part with length 0.
    parts = tuple(
        (len(piece.lstrip("0")), piece.lstrip("0")) if place % 2 else (0, piece)
        for place, piece in enumerate(pieces)
    )
    return parts, name


# Lists of names as people type them on a command line: ``[a,b]``, ``['a','b']``, ``[[a,b],[c]]``.

NameList = tuple["str | NameList", ...]
"""Names, and lists of names."""

_QUOTES = "'\""
_EXAMPLE = english("write it like [a,b] or [[a],[a,b]], in quotes so that the shell keeps it in one piece")


def parse_name_list(text: str) -> NameList:
    """Read a list of names; quotes around names, blanks and a comma at the end may be there or not.

    A text without brackets is one name, or several with commas between.

    Raises:
        BadInput: A bracket or a quote is not closed, or something follows the list.
    """
    stripped = text.strip()
    reader = _NameReader(stripped if stripped.startswith("[") else f"[{stripped}]", given=text)
    return reader.read()


class _NameReader:
    """Goes through a text once."""

    def __init__(self, text: str, *, given: str) -> None:
        self._text, self._given, self._at = text, given, 0

    def read(self) -> NameList:
        found = self._list()
        self._skip_blanks()
        if self._at < len(self._text):
            raise self._wrong(english("{text!r} follows the list", text=self._text[self._at :]))
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
                raise self._wrong(english("a comma is missing before {following!r}", following=following))

    def _name(self) -> str:
        quote = self._next()
        if quote in _QUOTES:
            end = self._text.find(quote, self._at + 1)
            if end < 0:
                raise self._wrong(english("the quote {quote} is not closed", quote=quote))
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
            raise self._wrong(english("a bracket is not closed"))
        return self._text[self._at]

    def _skip_blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _wrong(self, reason: str) -> BadInput:
        return BadInput(
            english("{given!r} is not a list of names: {reason}.", given=self._given, reason=reason), fix=_EXAMPLE
        )
