"""Numbers of bytes as people write and read them."""

import re

from roundoff.errors import BadInput

__all__ = ["format_size", "parse_size"]

_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate("kmgt")},
    **{f"{letter}ib": 1024 ** (power + 1) for power, letter in enumerate("kmgt")},
    # "2G" alone means what tools like docker, java and systemd take it for.
    **{letter: 1024 ** (power + 1) for power, letter in enumerate("kmgt")},
}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a size like ``500MB`` (millions), ``2GiB`` or ``2G`` (powers of 1024), ``1.5 GB`` or ``4096``.

    Raises:
        BadInput: It is not a size, or is zero.
    """
    found = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(found["unit"].lower()) if found else None
    size = int(float(found["number"]) * factor) if found and factor else 0
    if size < 1:
        raise BadInput(f"{text!r} is not a size.", fix="write it like 500MB, 2GiB or 1.5GB")
    return size


def format_size(size: int) -> str:
    """A number of bytes in at most four digits, in a form `parse_size` reads: ``512 B``, ``1.5 GB``."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    digits = 0 if unit == "B" or value >= 99.95 else 1
    return f"{value:.{digits}f} {unit}"
