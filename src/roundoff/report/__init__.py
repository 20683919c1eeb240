"""Turning run documents into text, tables and files; nothing is computed here."""

from roundoff.core import make_callable

__all__ = ()

make_callable(__name__)
