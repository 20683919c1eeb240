"""What quantization costs each layer: verdict, curve along the network, table."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, in_all, plain, say
from roundoff.messages.numbers import decibels, shape_text
from roundoff.pages.blocks import Cell, Chart, Column, Headline, Page, Series, Table, Tone, notes
from roundoff.studies.layers.result import LayerReport, LayerRow

__all__ = ["layers_page"]

_TONES: dict[str, Tone] = {"fine": "good", "local": "bad", "distributed": "bad", "open": "open"}

_COLUMNS = (
    Column("order", plain("#"), "count"),
    Column("node", say("common.node"), "node"),
    Column("op_type", say("common.operation"), "text"),
    Column("tensor", say("common.tensor"), "text"),
    Column("shape", say("common.shape"), "text"),
    Column("quantized", say("common.type"), "text"),
    Column("local_sqnr_db", say("layers.local_db"), "decibels", higher_is_better=True),
    Column("accumulated_sqnr_db", say("layers.accumulated_db"), "decibels", higher_is_better=True),
    Column("adds", say("layers.adds"), "share", higher_is_better=False),
    Column("clipped", say("layers.clipped"), "share", higher_is_better=False),
    Column("used_levels", say("layers.levels"), "count"),
)
_AXES = (say("common.place_axis"), say("common.sqnr_axis"))


def layers_page(document: RunDocument) -> Page | None:
    """The page on layers; None when none were measured."""
    report = document.layers
    if report is None:
        return None
    table = Table("layers", say("layers.rows"), _COLUMNS, tuple(_row(row) for row in report.rows), sort="-adds")
    series = (
        Series(("local_sqnr_db",), say("layers.local_db")),
        Series(("accumulated_sqnr_db",), say("layers.accumulated_db")),
    )
    curve = Chart("layers-along", say("layers.along"), "layers", "order", series, *_AXES)
    headline = Headline(_TONES[report.verdict.kind], _headline(report), f"layers_{report.verdict.kind}")
    return Page("layers", say("layers.title"), (headline, curve, table, *notes(report.notes)))


def _headline(report: LayerReport) -> Phrase:
    verdict = report.verdict
    before, after = verdict.before, verdict.after
    return say(
        f"layers.{verdict.kind}",
        few=len(verdict.culprits),
        all=verdict.contributors,
        before=in_all(lambda: decibels(None if before is None else before.sqnr_db)),
        after=in_all(lambda: decibels(None if after is None else after.sqnr_db)),
    )


def _row(row: LayerRow) -> tuple[Cell, ...]:
    local, accumulated, added = row.local, row.accumulated, row.introduced
    return (
        row.order,
        row.node,
        row.op_type,
        row.tensor,
        shape_text(row.shape),
        row.quantized,
        None if local is None else local.sqnr_db,
        None if accumulated is None else accumulated.sqnr_db,
        None if added is None else added.output_share,
        row.clipped,
        None if accumulated is None else accumulated.used_levels,
    )
