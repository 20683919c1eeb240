"""The outlier table: in how many channels of each tensor the largest value leaves few levels."""

from collections.abc import Iterator

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import explained, in_all, plain, say, told
from roundoff.messages.numbers import number, percentage, shape_text
from roundoff.messages.phrases import count_of, semicolons
from roundoff.messages.sentences import known
from roundoff.pages.blocks import (
    Cell,
    Column,
    Headline,
    Page,
    Paragraph,
    Place,
    TableBlock,
    View,
    notes,
    preparation_note,
)
from roundoff.studies.outliers.result import OUTLIER_LEVELS, OutlierReport, OutlierRow

__all__ = ["OUTLIERS_CSV_START", "outliers_page"]

_NAMED = 3

OUTLIERS_CSV_START = "order,tensor,node,op_type,shape,axis,quantized,channels,sparse_ratio"
"""By this an earlier table of ours is known."""


def outliers_page(document: RunDocument, view: View = View()) -> Page | None:  # noqa: B008 - frozen
    """The page on outliers; None when none were counted.

    Args:
        document: The run.
        view: Rows in a terminal; ``order`` sorts them by execution, otherwise most outliers come first.
    """
    report = document.outliers
    if report is None:
        return None
    return Page(
        "outliers",
        say("outliers.title"),
        (
            Headline("plain", in_all(lambda: _headline(report))),
            _table(report, view),
            *_skipped(report),
            *notes(report.notes),
            *preparation_note(report.preparation),
        ),
    )


def _matters(row: OutlierRow) -> bool:
    """Whether this tensor is ever stored; one that never leaves its unit is not."""
    return row.quantized != "fused"


def _badness(row: OutlierRow) -> tuple[float, ...]:
    """Smaller is worse."""
    return (not _matters(row), *(-row.share(level) for level in OUTLIER_LEVELS), -row.sparse_share, row.order)


def _headline(report: OutlierReport) -> str:
    first = OUTLIER_LEVELS[0]
    judged = [row for row in report.rows if _matters(row)]
    some = sorted((row for row in judged if row.share(first) > 0), key=_badness)
    seen = count_of(len(report.samples), "sample")
    if not some:
        text = told("outliers.none", level=first, all=len(judged), samples=seen)
    else:
        text = told(
            "outliers.some",
            some=len(some),
            all=len(judged),
            level=first,
            samples=seen,
            tensor=some[0].tensor,
            share=percentage(some[0].share(first)),
        )
    fused = len(report.rows) - len(judged)
    besides = told("outliers.fused", count=fused) if fused else ""
    return semicolons(text, told("outliers.level_is", base=number(report.log_base)), besides)


def _skipped(report: OutlierReport) -> Iterator[Paragraph]:
    """A note on tensors without a row."""
    if report.skipped:
        names = ", ".join(list(report.skipped)[:_NAMED]) + (" ..." if len(report.skipped) > _NAMED else "")
        reason = known(next(iter(report.skipped.values())))
        text = say("outliers.without_row", count=len(report.skipped), names=names, reason=reason)
        yield Paragraph(text, note=True)


def _table(report: OutlierReport, view: View) -> TableBlock:
    """All tensors in execution order; a terminal shows those first that have most outliers."""
    rows = tuple(_row(row) for row in report.rows)
    worst = sorted(range(len(rows)), key=lambda at: _badness(report.rows[at]))
    order = sorted(worst[: view.most]) if view.sort == "order" else worst
    return TableBlock(
        "outliers",
        say("outliers.table", base=f"{report.log_base:g}"),
        _columns(),
        rows,
        sort=f"-level_{OUTLIER_LEVELS[0]}_ratio",
        file="outliers.csv",
        most=view.most,
        order=tuple(order),
    )


def _columns() -> tuple[Column, ...]:
    files: tuple[Place, ...] = ("html", "csv")
    hidden: tuple[Place, ...] = ("csv",)
    return (
        Column("order", plain("#"), "count", on=("terminal", "csv")),
        Column("tensor", say("common.tensor"), "text", on=files),
        Column("shown_tensor", say("common.tensor"), "node", on=("terminal",)),
        Column("node", say("common.node"), "node", on=files),
        Column("op_type", say("common.operation"), "text", short=say("terminal.operation")),
        Column("shape", say("common.shape"), "text", on=files),
        Column("axis", plain("axis"), "count", on=hidden),
        Column("quantized", say("common.type"), "text", short=say("outliers.column_type")),
        Column("channels", say("outliers.channels"), "count"),
        Column(
            "sparse_ratio",
            say("outliers.sparse"),
            "share",
            explained("sparse"),
            higher_is_better=False,
            short=say("outliers.column_zero"),
        ),
        *(
            Column(
                f"level_{level}_ratio",
                say("outliers.level", level=level),
                "share",
                explained("level"),
                higher_is_better=False,
                short=plain(f">={level}"),
            )
            for level in OUTLIER_LEVELS
        ),
        Column("sparse", plain("sparse"), "count", on=hidden),
        *(Column(f"level_{level}", plain(f"level {level}"), "count", on=hidden) for level in OUTLIER_LEVELS),
        Column("largest", say("outliers.largest"), "number", digits=3),
        *(Column(name, plain(name), "text", on=hidden) for name in ("largest_channel", "median", "nonfinite")),
    )


def _row(row: OutlierRow) -> tuple[Cell, ...]:
    return (
        row.order,
        row.tensor,
        row.tensor,
        row.node,
        row.op_type,
        shape_text(row.shape),
        row.axis,
        row.quantized,
        row.channels,
        row.sparse_share,
        *(row.share(level) for level in OUTLIER_LEVELS),
        row.sparse,
        *(row.at_least[str(level)] for level in OUTLIER_LEVELS),
        row.largest,
        row.largest_channel,
        row.median,
        row.nonfinite,
    )
