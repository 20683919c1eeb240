"""Documents of strangers: JSON, TOML, YAML and CSV, parsed within limits that no honest file comes near.

Every file that a user, a tool or another machine wrote goes through here. What the parsers of the standard library
raise, or would take minutes for, becomes one `BadInput` that names the file: integers of thousands of digits,
values nested without end, keys of thousands of parts, half a surrogate pair, bytes that are no text.
"""

import csv
import io
import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roundoff.core.files import read_small
from roundoff.errors import BadInput
from roundoff.messages.message import english

DEEPEST = 100
"""Values in values in values: files of tools have less than ten."""

_LARGEST = 2**64
# What only documents with very large integers, or with escaped surrogates, can hold; they alone are looked at
# value by value.
_MANY_DIGITS = re.compile(rb"\d{19}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# TOML's time grows with the square of the parts of a key; strings with that many dots are none that people write.
_WORD = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_MANY_PARTS = re.compile(rf"(?<![\w\-\"']){_WORD}(?:[ \t]*+\.[ \t]*+{_WORD}){{{DEEPEST}}}")
_BRACKETS = re.compile(r"[\[\]{}]")
_RIGHT_FILE = english("check that it is the right file")

Pairs = Callable[[list[tuple[str, Any]]], Any]


def read_json(path: Path, *, what: str, fix: str = _RIGHT_FILE) -> Any:
    """What a JSON file holds.

    Args:
        path: The file.
        what: What it is, as the start of a sentence ("The plan").
        fix: What to do when it is damaged.

    Raises:
        BadInput: It cannot be read, or is no JSON within the limits.
    """
    return parse_json(read_small(path, what=what), path, fix=fix)


def read_toml(path: Path, *, what: str, fix: str = english("correct it")) -> dict[str, Any]:
    """What a TOML file holds; as `read_json`."""
    return parse_toml(read_small(path, what=what), path, fix=fix)


def parse_json(
    data: bytes | str,
    name: object,
    *,
    fix: str = _RIGHT_FILE,
    pairs: Pairs | None = None,
    twice: type[BadInput] | None = None,
    surrogates: bool = False,
) -> Any:
    """What a JSON text holds.

    Args:
        data: The text, or its bytes in UTF-8.
        name: The file, for messages.
        fix: What to do when it is damaged.
        pairs: Makes something of the keys and values of an object, instead of a dictionary.
        twice: What to raise when a key stands twice in one object; else the last one counts.
        surrogates: Take texts with half a surrogate pair, for who shows them escaped.

    Raises:
        BadInput: It is no JSON within the limits; or what `pairs` raises.
    """
    text = _text(data, name)

    def unique(given: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(given)
        if twice is not None and len(found) < len(given):
            key = next(key for key, count in Counter(key for key, _ in given).items() if count > 1)
            what = english("{name}: the key {key!r} stands twice in one object.", name=name, key=key)
            raise twice(what, fix=english("remove one of them"))
        return found

    try:
        content = json.loads(text, object_pairs_hook=pairs if twice is None else unique)
    except json.JSONDecodeError as error:
        what = english(
            "{name} is not JSON: {msg} (line {line}, column {column}).",
            name=name, msg=error.msg, line=error.lineno, column=error.colno,
        )  # fmt: skip
        raise BadInput(what, fix=fix) from error
    except BadInput:  # what `twice` and `pairs` raise may be a ValueError, too
        raise
    except (ValueError, RecursionError) as error:
        raise _beyond(name, error, fix) from error
    return _within(content, text, name, fix, surrogates=surrogates)


def parse_toml(data: bytes | str, name: object, *, fix: str = english("correct it")) -> dict[str, Any]:
    """What a TOML text holds; as `parse_json`."""
    text = _text(data, name)
    if _MANY_PARTS.search(text):
        raise _nested(name, fix)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = str(error).rstrip(".")
        raise BadInput(english("{name} is not valid TOML: {error}.", name=name, error=why), fix=fix) from error
    except (ValueError, RecursionError) as error:
        raise _beyond(name, error, fix) from error
    found: dict[str, Any] = _within(content, text, name, fix)
    return found


def refuse_nested(text: str, name: object, *, fix: str = _RIGHT_FILE) -> None:
    """Refuse a text whose brackets are nested deeper than those of any document; before a slow parser sees it.

    Raises:
        BadInput: They are.
    """
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += 1 if found.group() in "[{" else -1
        if depth > DEEPEST:
            raise _nested(name, fix)
        depth = max(depth, 0)


def parse_csv(
    data: bytes | str, name: object, *, separator: str = ",", strict: bool = False, fix: str = _RIGHT_FILE
) -> list[list[str]]:
    """The rows of a CSV text, empty lines left out.

    Args:
        data: The text, or its bytes in UTF-8; cells in quotes may contain line ends.
        name: The file, for messages.
        separator: What stands between cells.
        strict: Refuse quotes in odd places; and blanks behind a separator are no part of a cell.
        fix: What to do when it is damaged.

    Raises:
        BadInput: It is no CSV.
    """
    text = _text(data, name)
    try:
        lines = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, strict=strict, skipinitialspace=strict
        )
        return [row for row in lines if row]
    except csv.Error as error:
        what = english("{name} cannot be read as CSV: {error}.", name=name, error=error)
        raise BadInput(what, fix=fix) from error


def _text(data: bytes | str, name: object) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            english("{name} is not UTF-8 text: byte {start}.", name=name, start=error.start), fix=_RIGHT_FILE
        ) from error


def _beyond(name: object, error: Exception, fix: str) -> BadInput:
    if isinstance(error, RecursionError):
        return _nested(name, fix)
    # The only other thing that these parsers refuse: Python's limit of digits.
    return BadInput(english("{name} holds a number of too many digits.", name=name), fix=fix)


def _nested(name: object, fix: str) -> BadInput:
    return BadInput(english("{name} is nested too deep.", name=name), fix=fix)


def _within(content: Any, text: str, name: object, fix: str, *, surrogates: bool = False) -> Any:
    """The content, whose depth is looked at always, and whose texts and numbers where the text gives reason to."""
    raw = text.encode("utf-8", "surrogatepass")
    digits, halves = bool(_MANY_DIGITS.search(raw)), not surrogates and bool(_SURROGATE.search(raw))
    level = [content]
    for _ in range(DEEPEST):
        parts = [list(each.values()) if isinstance(each, dict) else each for each in level if _is_container(each)]
        if digits or halves:
            names = [list(each) for each in level if isinstance(each, dict)]
            for value in itertools.chain([content], *parts, *names):
                _check_value(value, name, fix, surrogates=surrogates)
        level = [value for part in parts for value in part if type(value) not in _PLAIN]
        if not level:
            return content
    raise _nested(name, fix)


_PLAIN = frozenset((str, int, float, bool, type(None)))


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | tuple)


def _check_value(value: Any, name: object, fix: str, *, surrogates: bool) -> None:
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise BadInput(english("{name} holds a number of too many digits.", name=name), fix=fix)
    if isinstance(value, str) and not surrogates and not _is_text(value):
        raise BadInput(english("{name} holds half a surrogate pair.", name=name), fix=fix)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
