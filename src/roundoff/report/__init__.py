"""Turning run documents into text, tables and files; nothing is computed here."""

from roundoff.core.callable_module import make_callable

make_callable(__name__)
