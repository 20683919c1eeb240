"""The one parser of all commands and facades: its help, and what it says of wrong words, in every language."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from roundoff.errors import BadInput, nearest
from roundoff.messages.catalogue import current_language, translate, translation
from roundoff.messages.message import english, shown

__all__ = ["CommandParser", "help_formatter", "translated_argparse"]


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong and where to read on, instead of repeating the whole usage."""

    def error(self, message: str) -> NoReturn:
        """End with what argparse says is wrong."""
        self.refuse(message)

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

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            # What is wrong with a value is part of a longer text, where its language would be lost.
            error.message = shown(error.message)
            raise

    def refuse(self, message: str, *, wrong: str = "", known: Iterable[str] = ()) -> NoReturn:
        """End with an error.

        Args:
            message: What is wrong.
            wrong: A word that is not known.
            known: Words that are; one that is much like it is suggested.
        """
        # Where nothing is alike the help is the better list.
        meant = nearest(wrong, known) if wrong else ""
        if meant.endswith("?"):
            fix = english("{meant} See '{prog} --help'", meant=meant, prog=self.prog)
        else:
            fix = english("see '{prog} --help'", prog=self.prog)
        error = translate("terminal.error", what=message, fix=fix)
        self.exit(BadInput.exit_code, f"{error}\n")


def help_formatter() -> type[argparse.HelpFormatter]:
    """Help in colours, with room for the longest command."""
    from rich_argparse import RawDescriptionRichHelpFormatter

    class Formatter(RawDescriptionRichHelpFormatter):
        def add_argument(self, action: argparse.Action) -> None:
            super().add_argument(action)
            # argparse forgets that commands are indented when it measures them.
            if isinstance(action, argparse._SubParsersAction):
                self._action_max_length += self._indent_increment

    return Formatter


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
