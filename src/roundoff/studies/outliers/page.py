"""The outlier table: in how many channels of each tensor the largest value leaves few levels."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import say
from roundoff.messages.numbers import shape_text
from roundoff.pages.blocks import NODE_COLUMNS, Cell, Column, Page, Table, notes
from roundoff.studies.outliers.result import OUTLIER_LEVELS, OutlierRow

__all__ = ["outliers_page"]

_COLUMNS = (
    Column("tensor", say("common.tensor"), "text"),
    *NODE_COLUMNS,
    Column("shape", say("common.shape"), "text"),
    Column("quantized", say("common.type"), "text"),
    Column("channels", say("outliers.channels"), "count"),
    Column("largest", say("outliers.largest"), "number"),
    Column("sparse", say("outliers.sparse"), "share", higher_is_better=False),
    *(
        Column(f"level_{level}", say("outliers.level", level=level), "share", higher_is_better=False)
        for level in OUTLIER_LEVELS
    ),
)


def outliers_page(document: RunDocument) -> Page | None:
    """The page on outliers; None when none were counted."""
    report = document.outliers
    if report is None:
        return None
    rows = tuple(map(_row, report.rows))
    base = f"{report.log_base:g}"
    table = Table("outliers", say("outliers.table", base=base), _COLUMNS, rows, sort=f"-level_{OUTLIER_LEVELS[0]}")
    return Page("outliers", say("outliers.title"), (table, *notes(report.notes)))


def _row(row: OutlierRow) -> tuple[Cell, ...]:
    return (
        row.tensor,
        row.node,
        row.op_type,
        shape_text(row.shape),
        row.quantized,
        row.channels,
        row.largest,
        row.sparse_share,
        *(row.share(level) for level in OUTLIER_LEVELS),
    )
