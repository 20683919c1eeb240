"""Numbers in tables: as short as they can be without lying."""

import csv
import io
from collections.abc import Iterable, Sequence

from roundoff.core.time_left import duration_text
from roundoff.core.wording import EXACT_DB
from roundoff.report.cells import safe_cell
from roundoff.report.words import told

__all__ = ["csv_text", "decibels", "exactness", "number", "percentage", "shape_text", "time_text"]

# From here on whole minutes and hours say enough.
_LONG_S = 120.0
_SHORT = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_TEN = 10.0


def number(value: float | None, digits: int = 4) -> str:
    """A value with a few significant digits; nothing when there is none."""
    return "" if value is None else f"{value:.{digits}g}"


def percentage(share: float | None) -> str:
    """A share in per cent that is 0 or 100 only when it really is."""
    if share is None:
        return ""
    text = f"{100 * share:.3g}"
    if share < 1 and text == "100":
        return ">99.9 %"
    return "<0.001 %" if 0 < share < 0.00001 else f"{text} %"


def decibels(value: float | None) -> str:
    """Decibels with one decimal; ``exact`` when there is no noise."""
    if value is None:
        return ""
    return told("common.exact") if value > EXACT_DB else f"{value:.1f}"


def time_text(seconds: float) -> str:
    """A time in the unit that suits it: ``15 µs``, ``3.2 ms``, ``1.5 s``, ``3 min``."""
    if seconds >= _LONG_S:
        return duration_text(seconds)
    unit, name = next((each for each in _SHORT if seconds >= each[0]), _SHORT[-1])
    return f"{seconds / unit:.2g} {name}" if seconds < _TEN * unit else f"{seconds / unit:.0f} {name}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as in 1x3x224x224."""
    return "x".join(map(str, shape)) or "scalar"


def exactness(resolution: float) -> str:
    """How exactly quantiles are known."""
    if not resolution:
        return told("distribution_text.every_value")
    return told("distribution_text.bins", width=percentage(resolution))


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file; what does not exist is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([_plain(text) for text in heading])
    for row in rows:
        writer.writerow([_plain(value) for value in row])
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return repr(value)
    return safe_cell(value) if isinstance(value, str) else value
