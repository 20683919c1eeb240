"""Who hurts most: a ranking for each kind of subject, with intervals."""

from collections.abc import Sequence

from roundoff.core.document import RunDocument
from roundoff.measure.metrics import summary_of
from roundoff.messages.catalogue import Phrase, plain, say
from roundoff.messages.numbers import in_decibels
from roundoff.pages.blocks import (
    NODE_COLUMNS,
    Block,
    Cell,
    Chart,
    Column,
    Headline,
    Page,
    Series,
    Table,
    Tone,
    few_names,
    metric_axis,
    metric_column,
    notes,
)
from roundoff.studies.sensitivity.result import KindVerdict, SensitivityReport, SensitivityRow, SubjectKind

__all__ = ["sensitivity_page"]

_TONES: dict[str, Tone] = {"stand_out": "bad", "tied": "open", "spread": "open", "nothing_lost": "good"}


def sensitivity_page(document: RunDocument) -> Page | None:
    """The page on sensitivity; None when none was measured."""
    report = document.sensitivity
    if report is None:
        return None
    blocks: list[Block] = [_headline(verdict) for verdict in report.verdicts]
    for kind, rows in report.rankings.items():
        if rows:
            blocks += _ranking(report, kind, rows)
    return Page("sensitivity", say("sensitivity.title"), (*blocks, *notes(report.notes)))


def _headline(verdict: KindVerdict) -> Headline:
    text = say(
        f"sensitivity.{verdict.standing}",
        count=len(verdict.names),
        all=verdict.count,
        kind=say(f"sensitivity.{verdict.kind}"),
        names=few_names(verdict.names),
    )
    return Headline(_TONES.get(verdict.standing, "open"), text)


def _ranking(report: SensitivityReport, kind: SubjectKind, rows: Sequence[SensitivityRow]) -> tuple[Block, Block]:
    first, word = report.metrics[0], say(f"sensitivity.{kind}")
    columns = (
        Column("rank", plain("#"), "count"),
        Column("name", Phrase(kind, word.zh), "node" if kind == "node" else "text"),
        *(NODE_COLUMNS[1:] if kind == "node" else NODE_COLUMNS),
        *(metric_column(name, higher_is_better=None, summary=summary_of(name)) for name in report.metrics),
        Column("low", say("sensitivity.low"), "decibels" if in_decibels(first) else "score"),
        Column("high", say("sensitivity.high"), "decibels" if in_decibels(first) else "score"),
        Column("told_apart", say("sensitivity.told_apart"), "truth"),
        Column("samples", say("sensitivity.samples"), "count"),
        Column("worst_sample", say("sensitivity.worst_sample"), "text"),
    )
    table_id = f"sensitivity-{kind}"
    caption = say(f"sensitivity.ranking_{report.mode}", kind=word)
    table = Table(table_id, caption, columns, tuple(_row(report, kind, row) for row in rows))
    series = (
        Series((first,), plain(first), "points"),
        Series(("low", "high"), say("sensitivity.interval"), "band"),
    )
    axes = (say("sensitivity.rank"), metric_axis(first))
    chart = Chart(f"{table_id}-chart", say("sensitivity.chart", kind=word), table_id, "rank", series, *axes)
    return chart, table


def _row(report: SensitivityReport, kind: SubjectKind, row: SensitivityRow) -> tuple[Cell, ...]:
    low, high = row.intervals.get(report.metrics[0]) or (None, None)
    who: tuple[Cell, ...] = (row.op_type,) if kind == "node" else (row.node, row.op_type)
    return (
        row.rank,
        row.name,
        *who,
        *(row.scores.get(name) for name in report.metrics),
        low,
        high,
        row.told_apart,
        row.samples,
        row.worst_sample,
    )
