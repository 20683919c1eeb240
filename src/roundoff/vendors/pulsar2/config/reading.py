"""From plain values to a message, by the vendor's rules: those of protobuf's JSON.

A key is a field's name, or its name in camelCase. ``null`` means "not given". Numbers may be given as texts, and
members of an enumeration as numbers. All that is wrong is collected, so that it can be said at once.
"""

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from roundoff.errors import nearest
from roundoff.vendors.pulsar2.config.documents import Place, Problem
from roundoff.vendors.pulsar2.config.enums import UNPUBLISHED
from roundoff.vendors.pulsar2.config.fields import MessageField, message_fields

__all__ = ["read_message"]

_Message = TypeVar("_Message")
_WRONG = object()
_SHOWN = 60
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_INT32 = range(-(2**31), 2**31)
# From here on a number is rounded to infinity, when it is stored in the 32 bits that the vendor has for it.
_BEYOND_FLOAT32 = float.fromhex("0x1.ffffffp+127")


def read_message(message: type[_Message], value: Any, *, place: Place, problems: list[Problem]) -> _Message:
    """Read one message.

    Args:
        message: Its class.
        value: What the document says.
        place: Where that is.
        problems: Takes whatever is wrong; the field in question then has its default.
    """
    known = message_fields(message)
    given: dict[str, Any] = {}
    if not isinstance(value, dict):
        problems.append(Problem(place, f"takes a table of keys and values, not {_said(value)}"))
        return message()
    for key, content in value.items():
        name = key if key in known else _HUMP.sub(r"_\1", str(key)).lower()
        if name not in known:
            problems.append(Problem((*place, str(key)), f"unknown key; {nearest(str(key)[:_SHOWN], known)}"))
        elif name in given:
            problems.append(Problem((*place, str(key)), f"is given twice, also as {name!r}"))
        elif content is not None:
            given[name] = _field(known[name], content, (*place, str(key)), problems)
    for name, each in known.items():
        if each.required and given.get(name, "") == "":
            problems.append(Problem((*place, name), "must be given"))
    return message(**{name: content for name, content in given.items() if content is not _WRONG})


def _field(field: MessageField, value: Any, place: Place, problems: list[Problem]) -> Any:
    if not field.repeated:
        return _one(field, value, place, problems)
    if field.bare and isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        problems.append(Problem(place, f"takes a list, not {_said(value)}"))
        return _WRONG
    read = [_one(field, each, (*place, index), problems) for index, each in enumerate(value)]
    return _WRONG if any(each is _WRONG for each in read) else tuple(read)


def _one(field: MessageField, value: Any, place: Place, problems: list[Problem]) -> Any:
    if field.is_message:
        return read_message(field.kind, value, place=place, problems=problems)
    if issubclass(field.kind, Enum):
        read, why = _member(field, value)
    else:
        read, why = _READERS[field.kind](value), _EXPECTED[field.kind]
    if read is _WRONG:
        problems.append(
            Problem(place, why if issubclass(field.kind, Enum) else f"takes {why}, not {_said(value)}")
        )
    return read


def _member(field: MessageField, value: Any) -> tuple[Any, str]:
    """The member that is meant, or what is wrong."""
    members: dict[str, Enum] = field.kind.__members__  # type: ignore[attr-defined]
    number = _whole(value)
    if number is not _WRONG and number < UNPUBLISHED:
        found = next((member for member in members.values() if member.value == number), None)
    else:
        found = members.get(value) if isinstance(value, str) else None
    offered = field.only or tuple(member for member in members.values() if not _is_default(member))
    allowed = [member.name for member in offered]
    if found is not None and _is_default(found):
        return field.default, ""
    if found is not None and found.name in allowed:
        return found, ""
    return _WRONG, f"cannot be {_said(value)}; {nearest(str(value)[:_SHOWN], allowed)}"


def _is_default(member: Enum) -> bool:
    """Whether a member stands for whatever is the default."""
    return member.name.startswith("Default")


def _bool(value: Any) -> Any:
    return value if isinstance(value, bool) else _WRONG


def _whole(value: Any) -> Any:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT32 else _WRONG


def _number(value: Any) -> Any:
    try:
        read = _WRONG if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return _WRONG
    return read if read is _WRONG or abs(read) < _BEYOND_FLOAT32 else _WRONG  # type: ignore[arg-type]


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _table(value: Any) -> Any:
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else _WRONG


_READERS: dict[type, Callable[[Any], Any]] = {bool: _bool, int: _whole, float: _number, str: _text, dict: _table}
_EXPECTED: dict[type, str] = {
    bool: "true or false",
    int: "a whole number of 32 bits",
    float: "a finite number of 32 bits",
    str: "a text",
    dict: "a table of keys and values",
}


def _said(value: Any) -> str:
    text = f"{value!r}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
