"""Values of options that are more than a word: each function is an argparse ``type``."""

import argparse

from roundoff.core.sizes import parse_size
from roundoff.errors import BadInput

__all__ = ["positive", "size", "threads"]

_MAX_THREADS = 1024
"""More than the cores of any machine this runs on; far more exhaust the system before any work is done."""


def size(text: str) -> int:
    """A number of bytes, like ``500MB`` or ``2GiB``."""
    try:
        return parse_size(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(f"{error.what} {error.fix}") from error


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def threads(text: str) -> int:
    """A number of threads that a machine can have."""
    number = positive(text)
    if number > _MAX_THREADS:
        raise argparse.ArgumentTypeError(
            f"{text} is more than the {_MAX_THREADS} threads that make sense anywhere"
        )
    return number
