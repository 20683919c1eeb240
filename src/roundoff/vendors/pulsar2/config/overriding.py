"""Single settings given on the command line, by dotted names; they count more than the file."""

from collections.abc import Iterator, Sequence
from typing import Any

from roundoff.errors import nearest
from roundoff.vendors.pulsar2.config.documents import Document, Place, Problem
from roundoff.vendors.pulsar2.config.fields import MessageField, message_fields
from roundoff.vendors.pulsar2.config.schema import BuildConfig

__all__ = ["overridden", "override_names"]

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def override_names() -> dict[str, MessageField]:
    """Every setting that can be given as an option: all single values outside of lists."""
    return dict(_scalars(BuildConfig, ""))


def _scalars(message: type, prefix: str) -> Iterator[tuple[str, MessageField]]:
    for name, field in message_fields(message).items():
        if field.is_scalar:
            yield f"{prefix}{name}", field
        elif field.is_message and not field.repeated:
            yield from _scalars(field.kind, f"{prefix}{name}.")


def overridden(
    document: Document, overrides: Sequence[tuple[str, str | None]], *, problems: list[Problem]
) -> Document:
    """A document in which some settings are replaced.

    Args:
        document: What the file says.
        overrides: Dotted names and values; None for a switch that is given without one.
        problems: Takes what is wrong with them.
    """
    known = override_names()
    value, origins = document.value, dict(document.origins)
    for given, word in overrides:
        name = given.removeprefix("--")
        place: Place = tuple(name.split("."))
        if name not in known:
            what = (
                "is a list or a table, which the file has to give" if _exists(place) else "there is no such option"
            )
            hint = "" if _exists(place) else f"; {nearest(name, known)}"
            problems.append(Problem((f"--{name}",), f"{what}{hint}"))
            continue
        content, why = _content(known[name], word)
        if why:
            problems.append(Problem((f"--{name}",), why))
            continue
        value = _with(value, place, content)
        origins[place] = "on the command line"
    return Document(document.name, value, origins)


def _exists(place: Place) -> bool:
    message: type | None = BuildConfig
    for part in place:
        field = message_fields(message).get(str(part)) if message is not None else None
        if field is None:
            return False
        message = field.kind if field.is_message else None
    return True


def _content(field: MessageField, word: str | None) -> tuple[Any, str]:
    if field.kind is not bool:
        return word, "" if word is not None else "needs a value"
    if word is None or word.lower() in _TRUE:
        return True, ""
    return False, "" if word.lower() in _FALSE else f"takes true or false, not {word!r:.60}"


def _with(value: Any, place: Place, content: Any) -> Any:
    """A copy of nested tables with one value replaced; what is no table stays, to be complained about."""
    if not place:
        return content
    if not isinstance(value, dict):
        return value if value is not None else _with({}, place, content)
    return {**value, place[0]: _with(value.get(str(place[0])), place[1:], content)}
