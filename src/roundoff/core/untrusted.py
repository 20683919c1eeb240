"""Documents of strangers: JSON, TOML, YAML and CSV, parsed within limits that no honest file comes near.

Every text that a user, a tool or another machine wrote goes through here, and nothing else calls those parsers on
one (`tests/core/test_untrusted.py` looks). Arrays are read by `array_files`, protobuf's text by `text_proto`,
pickles by `tensors.pickled`, archives by `samples.files`. What the parsers of the standard library raise, or would
take minutes for, becomes one `BadInput` that names the file: integers of thousands of digits, values nested
without end, keys of thousands of parts, half a surrogate pair, bytes that are no text.
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
from roundoff.errors import BadInput, MissingExtra
from roundoff.messages.message import cell_text, english

DEEPEST = 100
"""Values in values in values: files of tools have less than ten."""

_LARGEST = 2**64
_MOST_DIGITS = len(str(_LARGEST))
# PyYAML takes some 20,000 pieces a second; configurations have hundreds.
_MOST_YAML, _MOST_TOKENS = 2**20, 100_000
# What only documents with very large integers, or with escaped surrogates, can hold; they alone are looked at
# value by value.
_MANY_DIGITS = re.compile(rb"\d{19}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# TOML's time grows with the square of the parts of a key; strings with that many dots are none that people write.
_WORD = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_MANY_PARTS = re.compile(rf"(?<![\w\-\"']){_WORD}(?:[ \t]*+\.[ \t]*+{_WORD}){{{DEEPEST}}}")
_BLANK = re.compile(r"[ \t\r\n]*")
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
        raise _not_json(name, error, fix) from error
    except BadInput:  # what `twice` and `pairs` raise may be a ValueError, too
        raise
    except (ValueError, RecursionError) as error:
        raise _beyond(name, error, fix) from error
    return _within(content, text, name, fix, surrogates=surrogates)


def parse_json_sequence(data: bytes | str, name: object, *, fix: str = _RIGHT_FILE) -> list[Any]:
    """What JSON texts hold that stand one behind the other in a file; as `parse_json`.

    Raises:
        BadInput: One of them is no JSON within the limits.
    """
    text = _text(data, name)
    decoder, found, position = json.JSONDecoder(), [], len(text) - len(text.lstrip())
    try:
        while position < len(text):
            content, end = decoder.raw_decode(text, position)
            found.append(_within(content, text[position:end], name, fix))
            blank = _BLANK.match(text, end)
            position = end if blank is None else blank.end()
    except json.JSONDecodeError as error:
        raise _not_json(name, error, fix) from error
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise _beyond(name, error, fix) from error
    return found


def _not_json(name: object, error: json.JSONDecodeError, fix: str) -> BadInput:
    what = english(
        "{name} is not JSON: {msg} (line {line}, column {column}).",
        name=name, msg=error.msg, line=error.lineno, column=error.colno,
    )  # fmt: skip
    return BadInput(what, fix=fix)


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
    """The rows of a CSV text, empty lines left out, and the apostrophes that keep cells from being computed.

    Args:
        data: The text, or its bytes in UTF-8; cells in quotes may contain line ends.
        name: The file, for messages.
        separator: What stands between cells.
        strict: Refuse quotes in odd places; and blanks behind a separator are no part of a cell.
        fix: What to do when it is damaged.

    Raises:
        BadInput: It is no CSV.
    """
    lines = numbered_rows(_text(data, name), name, separator=separator, strict=strict, blanks=strict, fix=fix)
    return [[cell_text(cell) for cell in row] for _, row in lines]


def numbered_rows(
    text: str,
    name: object,
    *,
    separator: str = ",",
    strict: bool = False,
    blanks: bool = False,
    fix: str = _RIGHT_FILE,
) -> list[tuple[int, list[str]]]:
    """The rows of a CSV text with the number of the line where each ends, empty lines left out; as `parse_csv`.

    Raises:
        BadInput: It is no CSV.
    """
    try:
        lines = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, strict=strict, skipinitialspace=blanks
        )
        return [(lines.line_num, row) for row in lines if row]
    except csv.Error as error:
        what = english("{name} cannot be read as CSV: {error}.", name=name, error=error)
        raise BadInput(what, fix=fix) from error


def csv_records(data: bytes, name: object) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a table, and its rows by column with their lines; a cell that is not there is empty.

    Bytes that are no text are shown as such: a table is a tool's, and its names may be anything.

    Raises:
        BadInput: It is no CSV.
    """
    rows = numbered_rows(data.decode("utf-8-sig", errors="replace"), name)
    header = rows[0][1] if rows else []
    records = []
    for line, row in rows[1:]:
        full = [*row, *[""] * (len(header) - len(row))]
        records.append((line, dict(zip(header, full, strict=False))))
    return header, records


def whole_number(text: str) -> int | None:
    """A whole number that is not negative and fits 64 bits, of plain digits; None for anything else."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else _LARGEST
    return number if number < _LARGEST else None


def yaml_node(text: str, name: str, *, wrong: Callable[[Any, str, str], BadInput]) -> tuple[Any, Any]:
    """PyYAML's loader and the root node of a text: plain values only, no tags, and no anchors.

    With anchors a small file can stand for a huge one. The scanner is slow, so it is asked for pieces and stopped
    where they are more, or deeper, than those of any configuration.

    Args:
        text: The text.
        name: The file, for messages.
        wrong: Makes the error of a place (a mark, or None), what is wrong there, and what to do.

    Raises:
        BadInput: It is no YAML within the limits.
        MissingExtra: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(english("Reading YAML"), package="yaml", extra="yaml") from error
    refuse_nested(text, name)
    if len(text) > _MOST_YAML:
        raise BadInput(english("{name} is larger than any configuration.", name=name), fix=_RIGHT_FILE)
    begins = (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken)
    depth = 0
    try:
        for count, token in enumerate(yaml.scan(text, Loader=yaml.SafeLoader)):
            depth += isinstance(token, begins) - isinstance(token, yaml.BlockEndToken)
            if depth > DEEPEST or count > _MOST_TOKENS:
                raise _nested(name, _RIGHT_FILE)
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                why = english("anchors, aliases and tags are not taken")
                raise wrong(token.start_mark, why, english("write it out"))
        loader = yaml.SafeLoader(text)
        return loader, loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise wrong(mark, str(error.problem or error.context), english("correct that line")) from error
    except yaml.YAMLError as error:
        why = str(error).splitlines()[0]
        raise BadInput(
            english("{name} is not YAML: {splitlines}.", name=name, splitlines=why), fix=english("correct it")
        ) from error
    except RecursionError as error:
        raise _nested(name, _RIGHT_FILE) from error


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
