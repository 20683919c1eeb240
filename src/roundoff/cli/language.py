"""--lang of every command: the language in which the terminal speaks, help is shown and reports open."""

import argparse
import os
from collections.abc import Iterator, Sequence

from roundoff.errors import BadInput
from roundoff.messages.catalogue import LANGUAGES, Language
from roundoff.messages.message import english

__all__ = [
    "LANGUAGE_VARIABLE",
    "add_language_option",
    "chosen_command",
    "chosen_language",
    "with_language_first",
    "without_language",
]

LANGUAGE_VARIABLE = "ROUNDOFF_LANG"
"""What stands in this environment variable is the language where no option says another."""

_LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""The first of them that is set is the locale of messages, as everywhere on POSIX systems."""

_OPTION = "--lang"
# argparse takes beginnings of options; no other option begins so.
_SPELLINGS = ("--lan", _OPTION)


def add_language_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option; it may stand before the command and behind it."""
    parser.add_argument(
        _OPTION,
        choices=LANGUAGES,
        default=argparse.SUPPRESS,
        help=f"language of texts and reports (default: {LANGUAGE_VARIABLE}, else LANG)",
    )


def chosen_language(words: Sequence[str]) -> Language:
    """The language that words ask for, or else the environment: our own variable, or else the locale.

    A word that is none is left to the parser, which says so in English.

    Raises:
        BadInput: The environment asks for none that there is.
    """
    given = [value for is_language, value in _told_apart(words) if is_language]
    asked = given[-1] if given else os.environ.get(LANGUAGE_VARIABLE, "")
    for language in LANGUAGES:
        if language == asked:
            return language
    if asked and not given:
        fix = english("set it to {languages}, or unset it", languages="/".join(LANGUAGES))
        what = "{language_variable} is {asked!r}, which is no language that is spoken here."
        raise BadInput(english(what, language_variable=LANGUAGE_VARIABLE, asked=asked), fix=fix)
    return "en" if given else _locale_language()


def _locale_language() -> Language:
    """Chinese wherever it is spoken (zh_CN.UTF-8, zh_TW, zh); all else, and no locale at all, is English."""
    locale = next(filter(None, map(os.environ.get, _LOCALE_VARIABLES)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def chosen_command(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor a language."""
    return next((word for word in without_language(words) if not word.startswith("-")), None)


def without_language(words: Sequence[str]) -> list[str]:
    """Words without the option: what was done does not depend on the language it is told in."""
    return [word for is_language, word in _told_apart(words) if not is_language]


def with_language_first(words: Sequence[str]) -> list[str]:
    """Words with the option in front, where it is understood whatever a command does with words of its own."""
    given = [value for is_language, value in _told_apart(words) if is_language]
    return [*(f"{_OPTION}={value}" for value in given), *without_language(words)]


def _told_apart(words: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Each word, or the language that an option asks for, and whether it is one."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option not in _SPELLINGS:
            yield False, word
        else:
            yield True, value if equals else next(rest, "")
