"""Cells of tables as people read them, and the values behind them as programs do."""

import math

from roundoff.report.figures import decibels, number, percentage, time_text
from roundoff.report.pages.blocks import Cell, Column
from roundoff.report.score_text import score_text
from roundoff.report.words import Phrase, in_all, plain

__all__ = ["cell_text", "cell_value"]


def cell_text(value: Cell, column: Column) -> Phrase:
    """What stands in a cell."""
    if value is None:
        return plain("")
    if isinstance(value, Phrase):
        return value
    if isinstance(value, bool):
        return Phrase("yes" if value else "no", "是" if value else "否")
    if isinstance(value, int | float) and column.kind not in ("node", "text"):
        if column.kind == "count":
            return plain(str(value))
        return in_all(lambda: _number_text(float(value), column))
    return plain(str(value))


def _number_text(value: float, column: Column) -> str:
    if column.kind == "decibels":
        return decibels(value)
    if column.kind == "share":
        return percentage(value)
    if column.kind == "seconds":
        return time_text(value)
    if column.kind == "score":
        return score_text(column.id, value)
    return number(value)


def cell_value(value: Cell) -> str:
    """The number behind a cell, by which it is sorted; empty for text, which is its own value."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _beyond(value)
    return ""


def _beyond(value: float) -> str:
    """As JavaScript writes what JSON lacks."""
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
