"""The one parser of all commands: its help, what it says of wrong words, and --lang, in every language."""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from roundoff.cli.options import Command
from roundoff.errors import BadInput, nearest
from roundoff.messages.catalogue import LANGUAGES, Language, current_language, translate, translation
from roundoff.messages.message import english, shown

# What argparse says of options that are missing.
_MISSING = ("the following arguments are required: %s", "one of the arguments %s is required")


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong and where to read on, instead of repeating the whole usage."""

    def error(self, message: str) -> NoReturn:
        """End with what argparse says is wrong."""
        starts = tuple(said.partition("%s")[0] for each in _MISSING for said in (each, _help_text(each)))
        missing = message.startswith(starts)
        self.refuse(message, fix=self._set_target() if missing and "--target" in message else "")

    def _set_target(self) -> str:
        """How the chip that is missing is set in the project's file; empty where there is none."""
        from roundoff.api.project import target_hint

        hint = target_hint()
        if not hint:
            return ""
        return english("{hint}, or add --target NAME; see '{prog} --help'", hint=hint, prog=self.prog)

    def format_help(self) -> str:
        """The help in the language of the terminal."""
        self._translate()
        return super().format_help()

    def _translate(self) -> None:
        """Put all that the help shows into the language of the terminal."""
        if current_language() == "en":
            return
        described = (self, *self._action_groups)
        for each in described:
            each.description = each.description and _help_text(each.description)
        self.epilog = self.epilog and _help_text(self.epilog)
        for group in self._action_groups:
            group.title = group.title and _help_text(group.title)
        commands = [each for action in self._actions for each in getattr(action, "_choices_actions", ())]
        for action in (*self._actions, *commands):
            if action.help is not argparse.SUPPRESS:
                action.help = action.help and _help_text(action.help)

    def taught(self, command: Command, words: Sequence[str]) -> argparse.Namespace:
        """What words mean to a sub-command."""
        command.declare(self)
        return self.parse_args(words)

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """What words mean; what is wrong with them is said in the language of the terminal."""
        with translated_argparse():
            return super().parse_known_args(*given, **named)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            # What is wrong with a value is part of a longer text, where its language would be lost.
            error.message = shown(error.message)
            raise

    def refuse(self, message: str, *, wrong: str = "", known: Iterable[str] = (), fix: str = "") -> NoReturn:
        """End with an error.

        Args:
            message: What is wrong.
            wrong: A word that is not known.
            known: Words that are; one that is much like it is suggested.
            fix: What to do, if not to read the help.
        """
        # Where nothing is alike the help is the better list.
        meant = nearest(wrong, known) if wrong else ""
        if fix:
            pass
        elif meant.endswith("?"):
            fix = english("{meant} See '{prog} --help'", meant=meant, prog=self.prog)
        else:
            fix = english("see '{prog} --help'", prog=self.prog)
        error = translate("terminal.error", what=message, fix=fix)
        self.exit(BadInput.exit_code, f"{error}\n")


def help_formatter() -> type[argparse.HelpFormatter]:
    """Help in colours, with room for the longest command."""
    from rich_argparse import RawDescriptionRichHelpFormatter

    # Help is text: "[data]" is a section of a file, not a colour.
    RawDescriptionRichHelpFormatter.text_markup = RawDescriptionRichHelpFormatter.help_markup = False
    return RawDescriptionRichHelpFormatter


def in_groups(parser: argparse.ArgumentParser, groups: Mapping[str, Iterable[str]]) -> None:
    """Show the sub-commands of a parser under headings, which argparse has for options only.

    Args:
        parser: Has been told of its commands.
        groups: Names of commands by heading.
    """
    action = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    described = {each.dest: each for each in action._choices_actions}
    for title, names in groups.items():
        parser.add_argument_group(title)._group_actions.extend(described[name] for name in names)
    for group in parser._action_groups:
        if action in group._group_actions:
            group._group_actions.remove(action)


@contextmanager
def translated_argparse() -> Iterator[None]:
    """While it lasts, argparse speaks the language of the terminal of wrong options and in its titles.

    It asks gettext for each text by the English one. What it asks for is in our catalogue, which needs no files of
    gettext's own.
    """
    if current_language() == "en":
        yield
        return
    gettext, ngettext = argparse._, argparse.ngettext  # type: ignore[attr-defined]
    argparse._ = _help_text  # type: ignore[attr-defined]
    argparse.ngettext = lambda one, more, count: _help_text(one if count == 1 else more)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        argparse._, argparse.ngettext = gettext, ngettext  # type: ignore[attr-defined]


def _help_text(text: str) -> str:
    return translation(text) or text


# --lang ----------------------------------------------------------------------------------------------------------

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
