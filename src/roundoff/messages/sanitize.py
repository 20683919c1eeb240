"""Names and messages as a terminal may show them: models come from strangers, and so do the names in them.

Control characters could move the cursor, forge a verdict or hide one. They are shown as escapes; files that
programs read keep them.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

_T = TypeVar("_T")

# Line separators, and what turns the direction of writing or cannot be seen.
_MISLEADING = (0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_SPOKEN = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
# Beyond the first 32, which JSON has escaped already, in a way that JSON understands.
_LATER = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_MISLEADING)}
_ALL = {code: f"\\x{code:02x}" for code in range(0x20)} | _LATER | _SPOKEN
_ALL_BUT_NEWLINES = {code: text for code, text in _ALL.items() if code != ord("\n")}

# Names in tables are cut to this many characters: four lines in the narrowest column. Both ends tell tensors of
# one block apart, the last more so.
_LONGEST_NAME, _KEPT_START = 84, 40


def escape_control(text: str, *, newlines: bool = False) -> str:
    """The text with control characters, and such as mislead the eye, shown as escapes.

    Args:
        text: Any text.
        newlines: Keep line feeds, in a text of several lines.
    """
    return text.translate(_ALL_BUT_NEWLINES if newlines else _ALL)


def sanitize_for_display(value: _T) -> _T:
    """A report with all its texts made harmless, for tables and verdicts; the same one where all of them are."""
    return _changed(value)  # type: ignore[no-any-return]


def _changed(value: Any) -> Any:
    if isinstance(value, str):
        shown = value if value.isprintable() else escape_control(value)
        return value if shown == value else shown
    if isinstance(value, Mapping):
        pairs = [(_changed(key), _changed(each)) for key, each in value.items()]
        same = all(new[0] is old[0] and new[1] is old[1] for new, old in zip(pairs, value.items(), strict=True))
        return value if same else dict(pairs)
    if type(value) in (tuple, list, set, frozenset):
        items = [_changed(each) for each in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        old = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        new = {name: _changed(each) for name, each in old.items()}
        other = {name: each for name, each in new.items() if each is not old[name]}
        return replace(value, **other) if other else value
    return value


def short_name(name: str) -> str:
    """A name that leaves room for the rest of a table's line: a long one without its middle."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_KEPT_START]}...{name[_KEPT_START + 3 - _LONGEST_NAME :]}"


# Text that is safe in a spreadsheet's cell.

# A cell that starts like this would be run as a formula; names come from strangers' files.
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(text: str) -> str:
    """The text, with the apostrophe before it that keeps spreadsheets from computing it."""
    return f"'{text}" if text.startswith(_FORMULA_START) else text
