"""A configuration from a file and from the command line, checked as a whole."""

from collections.abc import Callable, Sequence
from pathlib import Path

from roundoff.core.files import read_small
from roundoff.core.names import shown
from roundoff.errors import BadInput
from roundoff.vendors.pulsar2.config.checks import contradictions
from roundoff.vendors.pulsar2.config.documents import Document, Problem, refuse
from roundoff.vendors.pulsar2.config.other_formats import parse_prototxt, parse_toml, parse_yaml
from roundoff.vendors.pulsar2.config.overriding import overridden
from roundoff.vendors.pulsar2.config.reading import read_message
from roundoff.vendors.pulsar2.config.relaxed_json import parse_relaxed_json
from roundoff.vendors.pulsar2.config.schema import BuildConfig

__all__ = ["Check", "load_config", "parse_config"]

_PARSERS: dict[str, Callable[..., Document]] = {
    **dict.fromkeys((".json", ".jsonc", ".json5", ""), parse_relaxed_json),
    **dict.fromkeys((".yaml", ".yml"), parse_yaml),
    ".toml": parse_toml,
    **dict.fromkeys((".prototxt", ".pbtxt", ".textproto", ".txtpb"), parse_prototxt),
}


Check = Callable[[BuildConfig, bool], Sequence[Problem]]
"""Looks for more that is wrong with a configuration; told whether something is already."""


def _nothing_more(config: BuildConfig, wrong: bool) -> Sequence[Problem]:
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
    problems: list[Problem] = []
    document = overridden(document, overrides, problems=problems)
    config = read_message(BuildConfig, document.value, place=(), problems=problems)
    later = contradictions(config)
    later += check(config, bool(problems or later))
    refuse(document, [*problems, *(each for each in later if not _touched(each, problems))])
    return config


def _touched(problem: Problem, problems: Sequence[Problem]) -> bool:
    """Whether a contradiction may be there only because a value in it could not be read."""
    return any(
        each.place[: len(problem.place)] == problem.place or problem.place[: len(each.place)] == each.place
        for each in problems
    )
