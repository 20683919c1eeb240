"""Values out of the JSON in which a compiler prints a model: everything is a list of keys and typed values."""

from pathlib import Path
from typing import Any

from roundoff.vendors.ascend.errors import Code, Refused

__all__ = ["attribute", "items_of", "listed", "text"]

_KINDS: dict[str, tuple[type, str]] = {
    "s": (str, "a string"), "i": (int, "an integer"), "b": (bool, "a bool"), "list": (dict, "a list"),
}  # fmt: skip
_AGAIN = "make it again: atc --mode=1 --om=MODEL.om --json=FILE"


def listed(found: dict[str, Any], key: str, path: Path, *, optional: bool = False) -> list[dict[str, Any]]:
    """A list of objects; empty when there is none and it is optional."""
    if key not in found and optional:
        return []
    value = found.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        what = f'{path}: the "{key}" element is {"missing" if key not in found else "not an array of objects"}.'
        raise Refused(what, code=Code.JSON, fix=_AGAIN)
    return value


def text(found: dict[str, Any], key: str, path: Path) -> str:
    """A text that must be there."""
    value = found.get(key)
    if not isinstance(value, str):
        raise Refused(f'{path}: the "{key}" element is missing or not a string.', code=Code.JSON, fix=_AGAIN)
    return value


def items_of(attributes: list[dict[str, Any]], key: str, kind: str, path: Path) -> list[Any] | None:
    """The items of an attribute that is a list of texts (``s``) or integers (``i``); None when there is none."""
    found = attribute(attributes, key, "list", path)
    if found is None:
        return None
    items = found.get(kind) or []
    wanted, _ = _KINDS[kind]
    if not isinstance(items, list) or not all(isinstance(item, wanted) for item in items):
        raise Refused(f"{path}: the attribute {key!r} holds other values.", code=Code.JSON, fix=_AGAIN)
    return items


def attribute(attributes: list[dict[str, Any]], key: str, kind: str, path: Path) -> Any:
    """The value of an attribute; None when there is none.

    Args:
        attributes: Pairs of ``key`` and ``value``.
        key: Its name.
        kind: Under which letter its value stands: ``s``, ``i``, ``b`` or ``list``.
        path: The file, for messages.
    """
    for pair in attributes:
        if pair.get("key") != key:
            continue
        value = pair.get("value")
        found = value.get(kind) if isinstance(value, dict) else None
        wanted, called = _KINDS[kind]
        if not isinstance(found, wanted) or (wanted is int and isinstance(found, bool)):
            raise Refused(f"{path}: the attribute {key!r} is not {called}.", code=Code.JSON, fix=_AGAIN)
        return found
    return None
