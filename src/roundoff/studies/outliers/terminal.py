"""The outlier table for people, and as CSV."""

from collections.abc import Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import csv_text, number, percentage, shape_text
from roundoff.messages.phrases import count_of, semicolons
from roundoff.messages.sanitize import short_name
from roundoff.pages.terminal import left_out_lines, note_lines
from roundoff.studies.outliers.result import OUTLIER_LEVELS, OutlierReport, OutlierRow

__all__ = ["OUTLIERS_CSV_START", "OutlierSort", "outliers_csv", "outliers_page"]

OutlierSort = Literal["worst", "order"]
_NAMED = 3

OUTLIERS_CSV_START = "order,tensor,node,op_type,shape,axis,quantized,channels,sparse_ratio"
"""By this an earlier table of ours is known."""


def outliers_page(
    report: OutlierReport, *, sort: OutlierSort = "worst", most: int | None = None
) -> RenderableType:
    """Which tensors have channels that are small against their largest value.

    Args:
        report: What to show.
        sort: Most outliers first, or execution order.
        most: Show at most so many rows, and say how many were left out; all when None.
    """
    ranked = sorted(report.rows, key=_badness)
    kept = ranked[:most]
    if sort == "order":
        kept = sorted(kept, key=lambda row: row.order)
    parts: list[RenderableType] = [_headline(report, ranked), Text(""), _table(kept)]
    parts += left_out_lines(len(ranked) - len(kept))
    if report.skipped:
        names = ", ".join(list(report.skipped)[:_NAMED]) + (" ..." if len(report.skipped) > _NAMED else "")
        reason = next(iter(report.skipped.values()))
        without = told("outliers_text.without_row", count=len(report.skipped), names=names, reason=reason)
        parts += note_lines([without])
    parts += note_lines(report.notes, report.preparation)
    return Group(*parts)


def _matters(row: OutlierRow) -> bool:
    """Whether this tensor is ever stored; one that never leaves its unit is not."""
    return row.quantized != "fused"


def _badness(row: OutlierRow) -> tuple[float, ...]:
    """Smaller is worse."""
    return (not _matters(row), *(-row.share(level) for level in OUTLIER_LEVELS), -row.sparse_share, row.order)


def _headline(report: OutlierReport, ranked: Sequence[OutlierRow]) -> Text:
    first = OUTLIER_LEVELS[0]
    judged = [row for row in ranked if _matters(row)]
    some = [row for row in judged if row.share(first) > 0]
    seen = count_of(len(report.samples), "sample")
    if not some:
        text = told("outliers_text.none", level=first, all=len(judged), samples=seen)
    else:
        text = told(
            "outliers_text.some",
            some=len(some),
            all=len(judged),
            level=first,
            samples=seen,
            tensor=some[0].tensor,
            share=percentage(some[0].share(first)),
        )
    fused = len(ranked) - len(judged)
    besides = told("outliers_text.fused", count=fused) if fused else ""
    level = told("outliers_text.level", base=number(report.log_base))
    return Text(semicolons(text, level, besides), "bold")


def _table(rows: Sequence[OutlierRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column(told("common.tensor"), overflow="fold", min_width=12)
    table.add_column(told("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=8)
    first = (told("distribution_text.column_type"), told("channels_text.column_channels"))
    levels = [f">={level} %" for level in OUTLIER_LEVELS]
    for heading in (*first, told("outliers_text.column_zero"), *levels, told("outliers_text.column_largest")):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        values = [row.sparse_share, *(row.share(level) for level in OUTLIER_LEVELS)]
        shares = [percentage(share).removesuffix(" %") for share in values]
        cells = [row.op_type, row.quantized, str(row.channels), *shares]
        cells.append(number(row.largest, 3))
        table.add_row(str(row.order), Text(short_name(row.tensor)), *map(Text, cells))
    return table


def outliers_csv(report: OutlierReport) -> str:
    """All tensors in execution order."""
    heading = OUTLIERS_CSV_START.split(",")
    heading += [f"level_{level}_ratio" for level in OUTLIER_LEVELS]
    heading += ["sparse", *(f"level_{level}" for level in OUTLIER_LEVELS)]
    heading += ["largest", "largest_channel", "median", "nonfinite"]

    def row(each: OutlierRow) -> list[object]:
        return [
            each.order, each.tensor, each.node, each.op_type, shape_text(each.shape), each.axis, each.quantized,
            each.channels, each.sparse_share, *(each.share(level) for level in OUTLIER_LEVELS), each.sparse,
            *(each.at_least[str(level)] for level in OUTLIER_LEVELS), each.largest, each.largest_channel,
            each.median, each.nonfinite,
        ]  # fmt: skip

    return csv_text(heading, (row(each) for each in report.rows))
