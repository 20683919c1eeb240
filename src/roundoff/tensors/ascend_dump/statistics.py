"""Dumps that hold statistics instead of values: one CSV per operator, one line per tensor."""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small

__all__ = ["TensorStatistics", "read_statistics"]

_COLUMNS = ("Input/Output", "Index", "Data Type", "Format", "Shape", "Max Value", "Min Value", "Avg Value")
_FIX = "dump the statistics again"


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """What a line says about a tensor.

    Attributes:
        role: ``input`` or ``output``.
        index: Its place among them.
        element_type: Its type, as written.
        format: Its memory format, as written.
        shape: Its shape; None when the device did not know it.
        maximum: The largest value.
        minimum: The smallest value.
        mean: The mean.
        not_numbers: How many values are NaN.
        infinities: How many are infinite.
    """

    role: str
    index: int
    element_type: str
    format: str
    shape: tuple[int, ...] | None
    maximum: float
    minimum: float
    mean: float
    not_numbers: int = 0
    infinities: int = 0


def read_statistics(path: Path) -> list[TensorStatistics]:
    """Read one file of statistics.

    Raises:
        Unreadable: It has other columns, or a line that cannot be read.
    """
    text = read_small(path, what="The statistics").decode(errors="replace")
    lines = csv.DictReader(io.StringIO(text))
    missing = [name for name in _COLUMNS if name not in (lines.fieldnames or ())]
    if missing:
        raise Unreadable(f"is no file of statistics: it has no column {missing[0]!r}", fix=_FIX)
    try:
        return [_parse(line) for line in lines]
    except (ValueError, csv.Error) as error:
        raise Unreadable(f"has a line that cannot be read: {error}", fix=_FIX) from error


def _parse(line: dict[str, str]) -> TensorStatistics:
    return TensorStatistics(
        line["Input/Output"].strip().lower(),
        int(line["Index"]),
        line["Data Type"].strip(),
        line["Format"].strip(),
        _shape(line["Shape"]),
        _number(line["Max Value"]),
        _number(line["Min Value"]),
        _number(line["Avg Value"]),
        _count(line, "Nan Count"),
        _count(line, "Negative Inf Count") + _count(line, "Positive Inf Count"),
    )


def _shape(text: str) -> tuple[int, ...] | None:
    return None if text.strip() in ("-", "") else tuple(int(size) for size in text.strip().split("x"))


def _number(text: str) -> float:
    return math.nan if text.strip() in ("-", "") else float(text)


def _count(line: dict[str, str], name: str) -> int:
    text = (line.get(name) or "").strip()
    return int(text) if text and text != "-" else 0
