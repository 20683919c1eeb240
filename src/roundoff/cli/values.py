"""Values of options that are more than a word: each function is an argparse ``type``."""

import argparse
import re

from roundoff.core.sizes import parse_size
from roundoff.errors import BadInput

__all__ = ["positive", "seconds", "size", "threads"]

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
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


def seconds(text: str) -> float:
    """A time, like ``90s``, ``5m`` or ``1h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text.strip().lower())
    number = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write it as 90s, 5m or 1h")
    return number


def threads(text: str) -> int:
    """A number of threads that a machine can have."""
    number = positive(text)
    if number > _MAX_THREADS:
        raise argparse.ArgumentTypeError(
            f"{text} is more than the {_MAX_THREADS} threads that make sense anywhere"
        )
    return number
