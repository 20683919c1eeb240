"""Errors of the kinds that vendors' functions raise; the command line knows them as its own."""

from roundoff.errors import BadInput

__all__ = ["CannotRun", "WrongType", "WrongValue"]


class WrongValue(BadInput, ValueError):
    """An argument has a value that means nothing."""


class WrongType(BadInput, TypeError):
    """An argument is of a kind that cannot be used."""


class CannotRun(BadInput, RuntimeError):
    """What was asked for cannot be done in this state."""
