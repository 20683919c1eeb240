"""A configuration from a file and from the command line, checked as a whole."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from roundoff.core.files import read_small
from roundoff.core.names import shown
from roundoff.errors import BadInput, nearest
from roundoff.vendors.pulsar2.config.checks import contradictions
from roundoff.vendors.pulsar2.config.formats import parse_prototxt, parse_relaxed_json, parse_toml, parse_yaml
from roundoff.vendors.pulsar2.config.reading import ConfigProblem, Document, Place, read_message, refuse
from roundoff.vendors.pulsar2.config.schema import BuildConfig, MessageField, message_fields

__all__ = [
    "Check",
    "load_config",
    "overridden",
    "override_names",
    "parse_config",
]


# Single settings given on the command line, by dotted names; they count more than the file.

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
    document: Document, overrides: Sequence[tuple[str, str | None]], *, problems: list[ConfigProblem]
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
            problems.append(ConfigProblem((f"--{name}",), f"{what}{hint}"))
            continue
        content, why = _content(known[name], word)
        if why:
            problems.append(ConfigProblem((f"--{name}",), why))
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


_PARSERS: dict[str, Callable[..., Document]] = {
    **dict.fromkeys((".json", ".jsonc", ".json5", ""), parse_relaxed_json),
    **dict.fromkeys((".yaml", ".yml"), parse_yaml),
    ".toml": parse_toml,
    **dict.fromkeys((".prototxt", ".pbtxt", ".textproto", ".txtpb"), parse_prototxt),
}


Check = Callable[[BuildConfig, bool], Sequence[ConfigProblem]]
"""Looks for more that is wrong with a configuration; told whether something is already."""


def _nothing_more(config: BuildConfig, wrong: bool) -> Sequence[ConfigProblem]:
    del config, wrong
    return ()


def load_config(
    path: Path | None, overrides: Sequence[tuple[str, str | None]] = (), *, check: Check = _nothing_more
) -> BuildConfig:
    """Read a configuration file and what the command line says on top of it.

    Args:
        path: The file; its ending says the format. None for none.
        overrides: Dotted names, with or without ``--``, and values; None for a switch given without one.
        check: Looks for more that is wrong, as what does not fit the model; all is listed together.

    Raises:
        BadInput: The file cannot be read, or something in it is wrong; all of it is listed.
        MissingExtra: It is YAML and PyYAML is not installed.
    """
    if path is None:
        return parse_config(Document("The command line", {}), overrides, check=check)
    parser = _PARSERS.get(path.suffix.lower())
    if parser is None:
        known = ", ".join(suffix for suffix in _PARSERS if suffix)
        raise BadInput(f"{shown(path)} is of no known format: its ending is {path.suffix!r}.", fix=f"use {known}")
    data = read_small(path, what="The configuration")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{shown(path)}, line {line}: the text is not UTF-8.", fix="save it as UTF-8") from error
    return parse_config(parser(text, name=shown(path)), overrides, check=check)


def parse_config(
    document: Document, overrides: Sequence[tuple[str, str | None]] = (), *, check: Check = _nothing_more
) -> BuildConfig:
    """Check what a document says, with what the command line says on top of it.

    Args:
        document: What a file says.
        overrides: What the command line says.
        check: Looks for more that is wrong.

    Raises:
        BadInput: Something is wrong; all of it is listed.
    """
    problems: list[ConfigProblem] = []
    document = overridden(document, overrides, problems=problems)
    config = read_message(BuildConfig, document.value, place=(), problems=problems)
    later = contradictions(config)
    later += check(config, bool(problems or later))
    refuse(document, [*problems, *(each for each in later if not _touched(each, problems))])
    return config


def _touched(problem: ConfigProblem, problems: Sequence[ConfigProblem]) -> bool:
    """Whether a contradiction may be there only because a value in it could not be read."""
    return any(
        each.place[: len(problem.place)] == problem.place or problem.place[: len(each.place)] == each.place
        for each in problems
    )
