"""Every exception roundoff raises for something a user can cause.

Each error says what failed (with the offending value) and how to go on. The command line prints both and
leaves with the error's exit code; nothing a user can do may end in a traceback.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from roundoff.messages.message import Translatable, english

EXIT_OK = 0
EXIT_THRESHOLD_MISSED = 1
EXIT_INTERRUPTED = 130

_MOST_LISTED = 10
"""A model has thousands of tensors; a message has room for a few."""


_LONGEST_REASON = 200
"""A reason is part of a line of a table."""


class RoundoffError(Exception):
    """Base of all errors meant for the user.

    Args:
        what: What failed, with the value that made it fail; one or two sentences. As `english` gives it, it is
            shown in the language of the terminal; it is English for everybody else.
        fix: What to type or change next; likewise.
        gaps: What goes into the gaps of `what`, which is then a template as `english` takes it.
    """

    exit_code = 2

    def __init__(self, what: str, /, *, fix: str, **gaps: Any) -> None:
        what = english(what, **gaps) if gaps else what
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\nfix: {self.fix}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Whole from another process, too: `BaseException` would call the class with what was said alone."""
        return _restored, (type(self), *self.args), self.__dict__


def _restored(kind: type[RoundoffError], *args: Any) -> RoundoffError:
    """An error as it was, for `pickle`, which then gives it its attributes."""
    return kind.__new__(kind, *args)


class BadInput(RoundoffError):
    """A file, folder, option or value cannot be used as given."""

    exit_code = 2


class MissingExtra(BadInput):
    """An optional package is needed for what was asked.

    Args:
        purpose: What needs it, as the start of a sentence ("reading images").
        package: The package as imported.
        extra: The roundoff extra that brings it.
    """

    def __init__(self, purpose: str, /, *, package: str, extra: str) -> None:
        super().__init__(
            english(
                "{purpose} needs the package {package!r}, which is not installed.",
                purpose=purpose,
                package=package,
            ),
            fix=english("pip install 'roundoff[{extra}]'", extra=extra),
        )


class CannotAlign(RoundoffError):
    """No tensor of one side could be paired with one of the other."""

    exit_code = 3


class ModelFailed(RoundoffError):
    """The model was readable but could not be run."""

    exit_code = 4


class StepFailed(RoundoffError):
    """A transform or a correction could not be carried out on a model.

    Args:
        name: The step.
        why: What went wrong in it.
    """

    exit_code = 4

    def __init__(self, name: str, why: str, /) -> None:
        super().__init__(
            english("{name} failed on this model: {why}.", name=name, why=why),
            fix=english("leave that step out, or limit it to other nodes with --nodes"),
        )
        self.why = why


_TYPED: ContextVar[tuple[str, ...] | None] = ContextVar("words that were typed", default=None)


@contextmanager
def on_the_command_line(words: Iterable[str] = ()) -> Iterator[None]:
    """While it lasts, errors name options as they are typed (``--max-memory``), and runs the words that were."""
    token = _TYPED.set(tuple(words))
    try:
        yield
    finally:
        _TYPED.reset(token)


def typed_words() -> tuple[str, ...] | None:
    """What was typed behind the program's name; None where a function was called."""
    return _TYPED.get()


def reason(error: Exception) -> str:
    """Why something failed, in a line, for whoever goes on without it."""
    if isinstance(error, StepFailed):
        return error.why
    if isinstance(error, RoundoffError):
        return error.what
    if isinstance(said := str(error), Translatable):
        return english("{error}: {said}", error=type(error).__name__, said=said)
    text = " ".join(said.split())
    return f"{type(error).__name__}: {text}"[:_LONGEST_REASON] if text else type(error).__name__


def nearest(name: str, choices: Iterable[str], *, listed: Sequence[str] = ()) -> str:
    """Say which known name was probably meant: ``"did you mean 'x'?"``; or list the choices, the nearest ones.

    Args:
        name: What was written.
        choices: What there is.
        listed: What to list, in this order, where nothing is near; the nearest choices by default.
    """
    # Only needed when something went wrong, and slow to import.
    import difflib

    known = list(choices)
    if not known:
        return english("there is nothing to choose from")
    folded = {choice.casefold(): choice for choice in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return english("did you mean {name!r}?", name=folded[close[0]])
    if listed:
        known, listed = list(listed), listed[:_MOST_LISTED]
    elif len(known) > _MOST_LISTED:
        likeness = difflib.SequenceMatcher(b=name.casefold())

        def unlike(choice: str) -> tuple[float, str]:
            likeness.set_seq1(choice)
            return -likeness.ratio(), choice

        # The nearest first, and those that are equally near by their letters.
        listed = [folded[choice] for choice in sorted(folded, key=unlike)[:_MOST_LISTED]]
    else:
        listed = known
    names, more = ", ".join(choice or "''" for choice in listed), len(known) - len(listed)
    if more:
        return english("choose one of: {names} ... and {more} more", names=names, more=more)
    return english("choose one of: {names}", names=names)
