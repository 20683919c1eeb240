"""Errors of the kinds that Horizon's functions raise; the command line knows them as its own."""

from roundoff.errors import BadInput

__all__ = ["WrongType", "WrongValue"]


class WrongValue(BadInput, ValueError):
    """An argument has a value that means nothing."""


class WrongType(BadInput, TypeError):
    """An argument is of a kind that cannot be used."""
