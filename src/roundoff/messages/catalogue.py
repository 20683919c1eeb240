"""Phrases by their keys. The files beside this one hold them, one table per key and one entry per language.

Errors, help and other texts that stand where they are said have no key but their English template; the files of
the folder ``zh`` hold what it is in Chinese.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
# All else is a template, which is its own key.
_KEY = re.compile(r"[a-z0-9_]+\.[\w-]+")
# Apart, because most commands need only one of them.
_TRANSLATED = ("errors", "help")
_SPOKEN: ContextVar[Language] = ContextVar("language of the terminal", default="en")


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


@contextmanager
def use_language(language: Language) -> Iterator[None]:
    """While it lasts, the terminal speaks this language."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def current_language() -> Language:
    """The language of the terminal."""
    return _SPOKEN.get()


def translate(key: str, /, **values: Any) -> str:
    """A phrase of the catalogue in the language of the terminal; see `bilingual`."""
    return _said(key, current_language(), values)


def bilingual(key: str, /, **values: Any) -> Phrase:
    """A phrase of the catalogue with its gaps filled.

    Args:
        key: Of the phrase, as ``layers.title``.
        values: What goes into ``{gaps}``; a phrase appears in its own language. A number may also choose a word:
            ``{gap:unit|units}`` is the first for one, the second for any other.
    """
    return Phrase(**{language: _said(key, language, values) for language in LANGUAGES})


def in_all_languages(text: Callable[[], str]) -> Phrase:
    """What a function that speaks the language of the terminal says in every one."""
    said = {}
    for language in LANGUAGES:
        with use_language(language):
            said[language] = text()
    return Phrase(**said)


def explained(name: str) -> Phrase | None:
    """What the glossary says of a column or a verdict; None when it says nothing.

    Args:
        name: Of its entry.
    """
    return bilingual(f"glossary.{name}") if name and name in _phrases("glossary") else None


def named(key: str) -> Phrase | None:
    """What a thing of an open set, such as a cause, is called or means; None for one that the catalogue lacks.

    Args:
        key: As for `bilingual`; it may end in a name as users type it, with dashes.
    """
    stem, _, name = key.partition(".")
    found = next((each for each in (name, name.replace("-", "_")) if each in _phrases(stem)), None)
    return None if found is None else bilingual(f"{stem}.{found}")


def english_of(name: str) -> tuple[str, ...]:
    """What phrases of another language, such as names of causes, verdicts and columns, are in English.

    Args:
        name: As it is printed; what follows it in brackets may be left out.
    """
    if name.isascii():
        return ()
    wanted = name.strip().partition("\uff08")[0]
    return tuple(
        dict.fromkeys(
            entry["en"] for entry in catalogue().values() if entry["zh"].partition("\uff08")[0] == wanted
        )
    )


def phrase_names(stem: str) -> tuple[str, ...]:
    """The names of all phrases of one file."""
    return tuple(_phrases(stem))


class _Count(int):
    """A number that also chooses between a singular and a plural."""

    def __format__(self, spec: str) -> str:
        one, choice, more = spec.partition("|")
        if choice:
            return one if self == 1 else more
        return super().__format__(spec)


class _Ratio(float):
    """A number that stands before a per cent sign with the space that `roundoff.messages.numbers` puts there."""

    def __format__(self, spec: str) -> str:
        text = super().__format__(spec)
        return f"{text[:-1]} %" if spec.endswith("%") else text


def _said(key: str, language: Language, values: Mapping[str, Any]) -> str:
    if is_key(key):
        stem, _, name = key.partition(".")
        open_text = _phrases(stem)[name][language]
    else:
        found = None if language == "en" else translation(key)
        # Half a sentence in another language is worse than none: its gaps stay English, too.
        language, open_text = ("en", key) if found is None else (language, found)
    return open_text.format(**{gap: _in(language, value) for gap, value in values.items()})


def _in(language: Language, value: Any) -> Any:
    if hasattr(value, "within"):  # a phrase, or a message
        return value.within(language)
    if isinstance(value, float):
        return _Ratio(value)
    return _Count(value) if type(value) is int else value


def is_key(text: str) -> bool:
    """Whether it is the key of a phrase, not a template."""
    return _KEY.fullmatch(text) is not None


def translation(text: str) -> str | None:
    """What an English template is in Chinese, with the same gaps; None when nobody has translated it."""
    return next((found[text] for found in map(_translations, _TRANSLATED) if text in found), None)


@cache
def _translations(stem: str) -> dict[str, str]:
    """Chinese templates by their English ones."""
    import tomllib

    path = Path(__file__).parent / "zh" / f"{stem}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def catalogue() -> dict[str, dict[Language, str]]:
    """All phrases; a key is the name of its file, or of the folder of its words.toml, a dot, and its name."""
    return {f"{stem}.{name}": entry for stem in sorted(_homes()) for name, entry in _phrases(stem).items()}


@cache
def _homes() -> dict[str, list[Path]]:
    """The files of phrases by their stems: those beside this module, and those in folders of questions."""
    package = Path(__file__).parents[1]
    homes: dict[str, list[Path]] = {path.stem: [path] for path in Path(__file__).parent.glob("*.toml")}
    places = (
        *package.glob("*/words.toml"),
        *package.glob("vendors/*/words.toml"),
        *package.glob("studies/*/*.toml"),
    )
    for path in places:
        # A folder that answers several questions has a file of words for each other one.
        homes.setdefault(path.parent.name if path.stem == "words" else path.stem, []).append(path)
    return homes


@cache
def _phrases(stem: str) -> dict[str, dict[Language, str]]:
    """The phrases of one stem, by their names there."""
    # Loaded with every command, most of which say little.
    import tomllib

    found: dict[str, dict[Language, str]] = {}
    for path in _homes().get(stem, ()):
        new = tomllib.loads(path.read_text(encoding="utf-8"))
        if twice := found.keys() & new.keys():
            raise ValueError(f"{path} has phrases that another file of {stem!r} has: {sorted(twice)}")
        found |= new
    return found


# Parts of sentences that all texts share, in the language of the reader.


def count_of(number: int, noun: str) -> str:
    """A number and its noun: ``1 tensor``, ``2 tensors``."""
    return translate(f"counts.{noun}", count=number)


def cause_name(cause: str) -> str:
    """What a cause of a loss is called."""
    name = named(f"diagnosis.cause_{cause}")
    return cause if name is None else name.within(current_language())


def cost_name(cost: str) -> str:
    """What a class of costs is called."""
    return translate(f"diagnosis.cost_{cost.replace(' ', '_')}")


def few(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return translate("terminal.and_more", names=shown, count=len(names) - most) if len(names) > most else shown


def commas(*parts: str) -> str:
    """Parts of a sentence with commas between them; empty ones are left out."""
    return _joined("terminal.comma", parts)


def semicolons(*parts: str) -> str:
    """Sentences with semicolons between them; empty ones are left out."""
    return _joined("terminal.semicolon", parts)


def sentences(*parts: str) -> str:
    """Whole sentences, one after the other; only some languages put a space between them."""
    return ("" if current_language() == "zh" else " ").join(parts)


def _joined(key: str, parts: Sequence[str]) -> str:
    text = ""
    for part in filter(None, parts):
        text = translate(key, before=text, after=part) if text else part
    return text
