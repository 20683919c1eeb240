"""The outlier table for people, and as CSV."""

from collections.abc import Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.harmless import short_name
from roundoff.core.outliers import OUTLIER_LEVELS, OutlierReport, OutlierRow
from roundoff.core.wording import counted
from roundoff.report.figures import csv_text, number, percentage, shape_text
from roundoff.report.notes import left_out_lines, note_lines

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
        parts.append(
            Text(f"note: {counted(len(report.skipped), 'tensor')} without a row: {names} ({reason})", "dim")
        )
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
    seen = counted(len(report.samples), "sample")
    level = f"level = log{number(report.log_base)}(largest of the tensor / largest of the channel)"
    total = counted(len(judged), "tensor")
    if not some:
        text = f"No channel is of level {first} or more in {total} ({seen})"
    else:
        worst = f"worst is {some[0].tensor} with {percentage(some[0].share(first))} of its channels"
        has = "has" if len(some) == 1 else "have"
        text = f"{len(some)} of {total} {has} channels of level {first} or more ({seen}); {worst}"
    fused = len(ranked) - len(judged)
    besides = f"; not counted: {counted(fused, 'fused tensor')}, never stored" if fused else ""
    return Text(f"{text}; {level}{besides}", "bold")


def _table(rows: Sequence[OutlierRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("tensor", overflow="fold", min_width=12)
    table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=8)
    for heading in ("q", "channels", "zero %", *(f">={level} %" for level in OUTLIER_LEVELS), "largest"):
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
