"""Statistics of tensors as CSV, as JSON and as a table."""

import json
import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.measure.statistics import TensorSummary
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english, short_name, shown
from roundoff.messages.numbers import csv_text, first_of, share_text

_COLUMNS = (
    "tensor", "node", "op_type", "dtype", "shape", "samples", "count", "min", "max", "mean", "std", "abs_max",
    "zeros", "nans", "infs",
)  # fmt: skip
_LISTED = 5
_ROWS = 40


def statistics_csv(summaries: Iterable[TensorSummary]) -> str:
    """One row per tensor; what does not exist (the mean of no values) is an empty cell."""
    return csv_text(_COLUMNS, (list(map(_cell, _values(summary))) for summary in summaries))


def statistics_json(summaries: Iterable[TensorSummary]) -> str:
    """The same as JSON; what does not exist is null, and a sum that overflowed the string "inf"."""
    records = [
        {column: _plain(value) for column, value in zip(_COLUMNS, _values(summary), strict=True)}
        for summary in summaries
    ]
    return json.dumps({"tensors": records}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def statistics_table(summaries: Sequence[TensorSummary]) -> RenderableType:
    """A line on what is not finite, then the first tensors in execution order."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(translate("common.tensor"), overflow="fold", min_width=12)
    table.add_column(translate("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=10)
    names = (english("min"), english("max"), english("mean"), english("std"), english("zero"), english("nan+inf"))
    for name in names:
        table.add_column(shown(name), justify="right", no_wrap=True)
    for summary in summaries[:_ROWS]:
        stats = summary.stats
        known = (stats.minimum, stats.maximum, stats.mean, stats.std)
        table.add_row(
            Text(short_name(summary.info.name)),
            Text(summary.info.op_type),
            *(f"{number:.3g}" if stats.finite else "" for number in known),
            share_text(stats.zeros / stats.count, 1) if stats.count else "",
            str(stats.nans + stats.infs or ""),
        )
    parts: list[RenderableType] = [_headline(summaries), table]
    if len(summaries) > _ROWS:
        left = english("... and {count} more {count:tensor|tensors} in the files", count=len(summaries) - _ROWS)
        parts.append(Text(shown(left), style="dim"))
    return Group(*parts)


def _headline(summaries: Sequence[TensorSummary]) -> Text:
    damaged = [summary.info.name for summary in summaries if summary.stats.finite < summary.stats.count]
    if not damaged:
        finite = english("{count} {count:tensor|tensors}, all values finite", count=len(summaries))
        return Text(shown(finite), style="green")
    broken = english(
        "{count} of {all} {all:tensor|tensors} {count:holds|hold} NaN or infinite values: {names}",
        count=len(damaged),
        all=len(summaries),
        names=first_of(damaged, _LISTED),
    )
    return Text(shown(broken), style="red")


def _values(summary: TensorSummary) -> tuple[object, ...]:
    """Values in the order of the columns."""
    info, stats = summary.info, summary.stats
    numbers = (stats.minimum, stats.maximum, stats.mean, stats.std, stats.abs_max)
    return (
        *(info.name, info.node, info.op_type, info.dtype, info.shape, summary.samples, stats.count),
        *(number if stats.finite else None for number in numbers),
        *(stats.zeros, stats.nans, stats.infs),
    )


def _cell(value: object) -> object:
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


def _plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
