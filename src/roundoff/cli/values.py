"""Values of options that are more than a word: each function is an argparse ``type``."""

import argparse
import math
import re

from roundoff.errors import BadInput
from roundoff.messages.numbers import parse_size

__all__ = ["number", "numbers", "positive", "seconds", "shape", "size", "threads"]

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


def shape(text: str) -> tuple[int, ...]:
    """Sizes of axes, like ``1x3x224x224``."""
    try:
        sizes = tuple(int(part) for part in text.lower().replace(",", "x").split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write sizes from 1 on, as in 1x3x224x224")
    return sizes


def number(text: str) -> float:
    """A number or a quotient of two, such as 1/127.5."""
    numerator, slash, denominator = text.partition("/")
    try:
        above, below = float(numerator), float(denominator) if slash else 1.0
        # An infinite denominator would make a harmless zero of a slip.
        number = above / below if math.isfinite(below) else math.nan
    except (ValueError, ZeroDivisionError):
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; write one as in 0.5, 1/255 or 1/127.5")
    return number


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(number(part) for part in text.split(","))
