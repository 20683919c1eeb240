"""Errors of the kinds that Horizon's functions raise; the command line knows them as its own."""

from roundoff.vendors.errors import WrongType, WrongValue

__all__ = ["WrongType", "WrongValue"]
