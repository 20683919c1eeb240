"""How the channels of tensors differ: levels and risk of one scale for all, and the outlier table."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    count_of,
    explained,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import phrase_of
from roundoff.messages.numbers import number, percentage, shape_text
from roundoff.studies.distribution.result import (
    LEVEL_BOUNDS,
    OUTLIER_LEVELS,
    ChannelBox,
    ChannelReport,
    ChannelSpread,
    OutlierReport,
    OutlierRow,
)

CHANNELS_CSV_START = "name,kind,tensor,axis,channel,low,p01"
"""By this an earlier table of ours is known."""

# More rows than fit on a page show nothing.
_MOST_TENSORS = 40
# Tensors whose poorest channels a terminal lists, and how many of each.
_MOST_DETAILED, _POOREST = 3, 5
# Of more tensors at risk a terminal speaks of the worst.
_MOST_ADVISED = 3
_TERMINAL: tuple[pages.Place, ...] = ("terminal",)
_CHANNEL_COLUMNS: list[pages.ColumnOf[ChannelBox]] = [
    pages.column("channel", "channels.channel", "count", on="html"),
    pages.column("low", "channels.minimum", "number", on="html"),
    pages.column("p25", "channels.quartile_low", "number", on="html"),
    pages.column("median", "channels.median", "number", on="html"),
    pages.column("p75", "channels.quartile_high", "number", on="html"),
    pages.column("high", "channels.maximum", "number", on="html"),
    pages.column("levels", "channels.levels", "number", higher_is_better=True, on="html"),
    pages.column("own_levels", "channels.own_levels", "number", higher_is_better=True, on="html"),
]
_POOREST_COLUMNS: list[pages.ColumnOf[ChannelBox]] = [
    pages.column("channel", "channels.channel", "count", on="terminal"),
    pages.column("levels", "channels.levels", "number", on="terminal", digits=3),
    pages.column("own_levels", "channels.column_own", "number", on="terminal", digits=3),
    pages.column("low", "channels.column_smallest", "number", on="terminal", digits=3),
    pages.column("p25", "25 %", "number", on="terminal", digits=3),
    pages.column("median", "channels.column_median", "number", on="terminal", digits=3),
    pages.column("p75", "75 %", "number", on="terminal", digits=3),
    pages.column("high", "channels.column_largest", "number", on="terminal", digits=3),
    pages.column("mean", "channels.column_mean", "number", on="terminal", digits=3),
]


def channels_page(document: RunDocument) -> pages.Page | None:
    """The page on channels; None when none were looked at."""
    report = document.channels
    if report is None:
        return None
    detailed = len(report.spreads) <= _MOST_DETAILED
    coarse = max((each.resolution for each in report.spreads), default=0.0)
    width = in_all_languages(lambda: percentage(coarse))
    return pages.Page(
        "channels",
        bilingual("channels.title"),
        (
            pages.Headline("plain", in_all_languages(lambda: _channels_headline(report))),
            _channels_table(report),
            *_remarks(report),
            *_map(report),
            *([pages.Paragraph(bilingual("channels.bins", width=width), note=True)] if coarse else []),
            *pages.notes(report.notes),
            *pages.preparation_note(report.preparation),
            _values_table(report),
        ),
        tuple(_tensor(number, each, detailed=detailed) for number, each in enumerate(report.spreads)),
    )


def _at_risk(report: ChannelReport) -> list[ChannelSpread]:
    return [each for each in report.spreads if each.risk in ("some", "high")]


def _channels_headline(report: ChannelReport) -> str:
    risky, total = len(_at_risk(report)), len(report.spreads)
    text = translate("channels.headline", risky=risky, all=total, number=1 if 1 in (risky, total) else total)
    if not report.samples:
        return text
    return translate("channels.samples", text=text, samples=count_of(len(report.samples), "sample"))


def _remarks(report: ChannelReport) -> Iterator[pages.Paragraph]:
    """Below a table in a terminal, which has no room for advice: tensors at risk, of few all."""
    worst = sorted(_at_risk(report), key=_shortage, reverse=True)
    for each in (report.spreads if len(report.spreads) <= _MOST_DETAILED else worst)[:_MOST_ADVISED]:
        yield pages.Paragraph(
            bilingual("channels.named", name=each.name, text=phrase_of(each.advice)), on=_TERMINAL
        )
    if len(worst) > _MOST_ADVISED:
        yield pages.Paragraph(bilingual("channels.more", count=len(worst) - _MOST_ADVISED), on=_TERMINAL)


def _shortage(each: ChannelSpread) -> tuple[float, ...]:
    """How bad it is: shares of the channels with next to no levels, then of those with few."""
    return tuple(each.below[str(bound)] / max(1, each.live) for bound in sorted(LEVEL_BOUNDS))


def _channels_table(report: ChannelReport) -> pages.TableBlock:
    columns: list[pages.ColumnOf[ChannelSpread]] = [
        pages.column("name", "common.tensor", on="html"),
        pages.column("short_name", "channels.column_name", "node", lambda each: each.name, on="terminal"),
        pages.column("node", "common.node", "node", on="html"),
        pages.column("op_type", "common.operation", on="html"),
        pages.column("axis", "channels.column_axis", "count", on="terminal"),
        pages.column("channels", "channels.column_channels", "count", lambda each: len(each.boxes), on="terminal"),
        pages.column(
            "zero", "channels.column_zero", "count", lambda each: len(each.boxes) - each.live, on="terminal"
        ),
        pages.column("dtype", "common.type", cell=_dtype, on="terminal html", short="channels.column_type"),
        pages.column(
            "range_ratio",
            "channels.range_ratio",
            "number",
            higher_is_better=False,
            on="terminal html",
            short="channels.column_ratio",
            digits=3,
        ),
        *map(_below, LEVEL_BOUNDS),
        pages.column("gain_db", "channels.gain", "decibels", on="terminal html", short="channels.column_gain"),
        pages.column("risk", "channels.risk", cell=_risk, on="terminal html"),
        pages.column("advice", "channels.advice", cell=lambda each: phrase_of(each.advice), on="html"),
    ]
    return pages.table("channels", "channels.table", columns, report.spreads)


def _below(bound: int) -> pages.ColumnOf[ChannelSpread]:
    return pages.column(f"below_{bound}", f"<{bound}", "count", lambda each: each.below[str(bound)], on="terminal")


def _dtype(each: ChannelSpread) -> str:
    return f"({each.dtype})" if each.assumed else each.dtype


def _risk(each: ChannelSpread) -> Phrase:
    return bilingual(f"channels.risk_{each.risk.replace(' ', '_')}")


def _map(report: ChannelReport) -> tuple[pages.Block, ...]:
    """The levels of all channels of all tensors at a glance; nothing where there is only one tensor."""
    shown = report.spreads[:_MOST_TENSORS]
    if len(shown) < 2:
        return ()
    tables = tuple(_table_id(number) for number in range(len(shown)))
    names = tuple(plain(each.name) for each in shown)
    heat = pages.Series(("levels",) * len(shown), bilingual("channels.levels"), "heat", tables, names)
    longest = max(range(len(shown)), key=lambda number: len(shown[number].boxes))
    caption = bilingual("channels.map", tensors=len(shown), all=len(report.spreads))
    axes = (bilingual("channels.channel"), bilingual("common.tensor"))
    return (pages.Chart("channel-map", caption, tables[longest], "channel", (heat,), *axes),)


def _table_id(number: int) -> str:
    return f"channels-{number}"


def _tensor(number: int, each: ChannelSpread, *, detailed: bool) -> pages.Page:
    name = _table_id(number)
    caption = bilingual("channels.channel_table", name=each.name)
    table = pages.table(name, caption, _CHANNEL_COLUMNS, each.boxes, folded=True)
    boxes = pages.Chart(
        f"{name}-boxes",
        bilingual("channels.boxes", name=each.name),
        name,
        "channel",
        (pages.Series(("low", "p25", "median", "p75", "high"), plain(each.name), "box"),),
        bilingual("channels.channel"),
        bilingual("channels.value"),
    )
    levels = pages.Chart(
        f"{name}-levels",
        bilingual("channels.levels_chart", name=each.name),
        name,
        "channel",
        (pages.Series(("levels",), bilingual("channels.levels"), "bars"),),
        bilingual("channels.channel"),
        bilingual("channels.levels"),
    )
    return pages.Page(name, plain(each.name), (boxes, levels, table, *(_poorest(name, each) if detailed else ())))


def _poorest(name: str, each: ChannelSpread) -> Iterator[pages.Block]:
    """In a terminal: the channels with the fewest levels, and the one with the most."""
    live = sorted((box for box in each.boxes if box.reach > 0), key=lambda box: box.levels)
    shown = live[:_POOREST] + live[-1:] if len(live) > _POOREST + 1 else live
    if shown:
        caption = bilingual("channels.poorest", name=each.name)
        yield pages.Paragraph(caption, on=_TERMINAL)
        yield pages.table(f"{name}-poorest", caption, _POOREST_COLUMNS, shown)


def _values_table(report: ChannelReport) -> pages.TableBlock:
    """One row for each channel of each tensor, for the CSV file."""

    def of(side: int, *names: str) -> dict[str, Callable[[tuple[ChannelSpread, ChannelBox]], pages.Cell]]:
        return {name: partial(_of_side, side, name) for name in names}

    columns = pages.csv_columns(
        of(0, "name", "kind", "tensor", "axis")
        | of(1, *(field.name for field in fields(ChannelBox)))
        | {"shape": lambda row: shape_text(row[0].shape)}
        | of(0, "dtype", "own_scales", "step")
    )
    rows = ((each, box) for each in report.spreads for box in each.boxes)
    return pages.table("channels-all", "channels.title", columns, rows, file="channels.csv")


def _of_side(side: int, name: str, row: tuple[ChannelSpread, ChannelBox]) -> pages.Cell:
    return getattr(row[side], name)  # type: ignore[no-any-return]


_NAMED = 3

OUTLIERS_CSV_START = "order,tensor,node,op_type,shape,axis,quantized,channels,sparse_ratio"
"""By this an earlier table of ours is known."""


def outliers_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on outliers; None when none were counted.

    Args:
        document: The run.
        view: Rows in a terminal; ``order`` sorts them by execution, otherwise most outliers come first.
    """
    report = document.outliers
    if report is None:
        return None
    return pages.Page(
        "outliers",
        bilingual("outliers.title"),
        (
            pages.Headline("plain", in_all_languages(lambda: _outliers_headline(report))),
            _outliers_table(report, view),
            *_skipped(report),
            *pages.notes(report.notes),
            *pages.preparation_note(report.preparation),
        ),
    )


def _matters(row: OutlierRow) -> bool:
    """Whether this tensor is ever stored; one that never leaves its unit is not."""
    return row.quantized != "fused"


def _badness(row: OutlierRow) -> tuple[float, ...]:
    """Smaller is worse."""
    return (not _matters(row), *(-row.share(level) for level in OUTLIER_LEVELS), -row.sparse_share, row.order)


def _outliers_headline(report: OutlierReport) -> str:
    first = OUTLIER_LEVELS[0]
    judged = [row for row in report.rows if _matters(row)]
    some = sorted((row for row in judged if row.share(first) > 0), key=_badness)
    seen = count_of(len(report.samples), "sample")
    if not some:
        text = translate("outliers.none", level=first, all=len(judged), samples=seen)
    else:
        text = translate(
            "outliers.some",
            some=len(some),
            all=len(judged),
            level=first,
            samples=seen,
            tensor=some[0].tensor,
            share=percentage(some[0].share(first)),
        )
    fused = len(report.rows) - len(judged)
    besides = translate("outliers.fused", count=fused) if fused else ""
    return semicolons(text, translate("outliers.level_is", base=number(report.log_base)), besides)


def _skipped(report: OutlierReport) -> Iterator[pages.Paragraph]:
    """A note on tensors without a row."""
    if report.skipped:
        names = ", ".join(list(report.skipped)[:_NAMED]) + (" ..." if len(report.skipped) > _NAMED else "")
        reason = phrase_of(next(iter(report.skipped.values())))
        text = bilingual("outliers.without_row", count=len(report.skipped), names=names, reason=reason)
        yield pages.Paragraph(text, note=True)


def _outliers_table(report: OutlierReport, view: pages.View) -> pages.TableBlock:
    """All tensors in execution order; a terminal shows those first that have most outliers."""
    worst = sorted(range(len(report.rows)), key=lambda at: _badness(report.rows[at]))
    order = sorted(worst[: view.most]) if view.sort == "order" else worst
    return pages.table(
        "outliers",
        bilingual("outliers.table", base=f"{report.log_base:g}"),
        _OUTLIER_COLUMNS,
        report.rows,
        sort=f"-level_{OUTLIER_LEVELS[0]}_ratio",
        file="outliers.csv",
        most=view.most,
        order=tuple(order),
    )


def _level_share(level: int) -> pages.ColumnOf[OutlierRow]:
    return pages.column(
        f"level_{level}_ratio",
        bilingual("outliers.level", level=level),
        "share",
        lambda row: row.share(level),
        help=explained("level"),
        higher_is_better=False,
        short=f">={level}",
    )


def _level_count(level: int) -> pages.ColumnOf[OutlierRow]:
    return pages.column(
        f"level_{level}", f"level {level}", "count", lambda row: row.at_least[str(level)], on="csv"
    )


_OUTLIER_COLUMNS: list[pages.ColumnOf[OutlierRow]] = [
    pages.column("order", "#", "count", on="terminal csv"),
    pages.column("tensor", "common.tensor", on="html csv"),
    pages.column("shown_tensor", "common.tensor", "node", lambda row: row.tensor, on="terminal"),
    pages.column("node", "common.node", "node", on="html csv"),
    pages.column("op_type", "common.operation", short="terminal.operation"),
    pages.column("shape", "common.shape", cell=lambda row: shape_text(row.shape), on="html csv"),
    pages.column("axis", "axis", "count", on="csv"),
    pages.column("quantized", "common.type", short="outliers.column_type"),
    pages.column("channels", "outliers.channels", "count"),
    pages.column(
        "sparse_ratio", "outliers.sparse", "share", lambda row: row.sparse_share,
        help=explained("sparse"), higher_is_better=False, short="outliers.column_zero",
    ),
    *map(_level_share, OUTLIER_LEVELS),
    pages.column("sparse", "sparse", "count", on="csv"),
    *map(_level_count, OUTLIER_LEVELS),
    pages.column("largest", "outliers.largest", "number", digits=3),
    *pages.csv_columns("largest_channel median nonfinite"),
]  # fmt: skip
