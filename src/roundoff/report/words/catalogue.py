"""Phrases by their keys. The files beside this one hold them, one table per key and one entry per language."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

__all__ = ["LANGUAGES", "Language", "Phrase", "catalogue", "explained", "plain", "say"]

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


@dataclass(frozen=True, slots=True)
class Phrase:
    """The same said in every language.

    Attributes:
        en: In English.
        zh: In Chinese.
    """

    en: str
    zh: str

    def within(self, language: Language) -> str:
        """What it is in one language."""
        return self.en if language == "en" else self.zh


def plain(text: str) -> Phrase:
    """A name or a number, which no language changes."""
    return Phrase(text, text)


def say(key: str, **values: Any) -> Phrase:
    """A phrase of the catalogue with its gaps filled.

    Args:
        key: Of the phrase, as ``layers.title``.
        values: What goes into ``{gaps}``; a phrase appears in its own language.
    """
    entry = catalogue()[key]
    filled = {language: entry[language].format(**_in(language, values)) for language in LANGUAGES}
    return Phrase(**filled)


def explained(name: str) -> Phrase | None:
    """What the glossary says of a column or a verdict; None when it says nothing.

    Args:
        name: Of its entry.
    """
    key = f"glossary.{name}"
    return say(key) if name and key in catalogue() else None


def _in(language: Language, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.within(language) if isinstance(value, Phrase) else value for name, value in values.items()}


@cache
def catalogue() -> dict[str, dict[Language, str]]:
    """All phrases; a key is the name of its file, a dot, and its name there."""
    found: dict[str, dict[Language, str]] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".toml"):
            stem = file.name.removesuffix(".toml")
            for name, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
                found[f"{stem}.{name}"] = entry
    return found
