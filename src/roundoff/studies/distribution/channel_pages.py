"""How the channels of tensors differ: levels and risk of one scale for all, and the outlier table."""

from collections.abc import Iterator
from dataclasses import fields

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import bilingual, explained, in_all_languages, plain, translate
from roundoff.messages.message import phrase_of
from roundoff.messages.numbers import number, percentage, shape_text
from roundoff.messages.phrases import count_of, semicolons
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
_MOST_ADVISED = 6
_TERMINAL: tuple[pages.Place, ...] = ("terminal",)
_BROWSER: tuple[pages.Place, ...] = ("html",)
_DRAWN: tuple[pages.Place, ...] = ("terminal", "html")
_CHANNEL_COLUMNS = (
    pages.Column("channel", bilingual("channels.channel"), "count", on=_BROWSER),
    pages.Column("low", bilingual("channels.minimum"), "number", on=_BROWSER),
    pages.Column("p25", bilingual("channels.quartile_low"), "number", on=_BROWSER),
    pages.Column("median", bilingual("channels.median"), "number", on=_BROWSER),
    pages.Column("p75", bilingual("channels.quartile_high"), "number", on=_BROWSER),
    pages.Column("high", bilingual("channels.maximum"), "number", on=_BROWSER),
    pages.Column("levels", bilingual("channels.levels"), "number", higher_is_better=True, on=_BROWSER),
    pages.Column("own_levels", bilingual("channels.own_levels"), "number", higher_is_better=True, on=_BROWSER),
)
_POOREST_COLUMNS = (
    pages.Column("channel", bilingual("channels.channel"), "count", on=_TERMINAL),
    pages.Column("levels", bilingual("channels.levels"), "number", on=_TERMINAL, digits=3),
    pages.Column("own_levels", bilingual("channels.column_own"), "number", on=_TERMINAL, digits=3),
    pages.Column("low", bilingual("channels.column_smallest"), "number", on=_TERMINAL, digits=3),
    pages.Column("p25", plain("25 %"), "number", on=_TERMINAL, digits=3),
    pages.Column("median", bilingual("channels.column_median"), "number", on=_TERMINAL, digits=3),
    pages.Column("p75", plain("75 %"), "number", on=_TERMINAL, digits=3),
    pages.Column("high", bilingual("channels.column_largest"), "number", on=_TERMINAL, digits=3),
    pages.Column("mean", bilingual("channels.column_mean"), "number", on=_TERMINAL, digits=3),
)


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
    """Below a table in a terminal, which has no room for advice: the worst tensors, else the first."""
    worst = sorted(_at_risk(report), key=_shortage, reverse=True)
    for each in (worst or list(report.spreads))[:_MOST_ADVISED]:
        yield pages.Paragraph(
            bilingual("channels.named", name=each.name, text=phrase_of(each.advice)), on=_TERMINAL
        )
    if len(worst) > _MOST_ADVISED:
        yield pages.Paragraph(bilingual("channels.more", count=len(worst) - _MOST_ADVISED), on=_TERMINAL)


def _shortage(each: ChannelSpread) -> tuple[float, ...]:
    """How bad it is: shares of the channels with next to no levels, then of those with few."""
    return tuple(each.below[str(bound)] / max(1, each.live) for bound in sorted(LEVEL_BOUNDS))


def _channels_table(report: ChannelReport) -> pages.TableBlock:
    columns = (
        pages.Column("name", bilingual("common.tensor"), "text", on=_BROWSER),
        pages.Column("short_name", bilingual("channels.column_name"), "node", on=_TERMINAL),
        pages.Column("node", bilingual("common.node"), "node", on=_BROWSER),
        pages.Column("op_type", bilingual("common.operation"), "text", on=_BROWSER),
        pages.Column("axis", bilingual("channels.column_axis"), "count", on=_TERMINAL),
        pages.Column("channels", bilingual("channels.column_channels"), "count", on=_TERMINAL),
        pages.Column("zero", bilingual("channels.column_zero"), "count", on=_TERMINAL),
        pages.Column(
            "dtype", bilingual("common.type"), "text", on=_DRAWN, short=bilingual("channels.column_type")
        ),
        pages.Column(
            "range_ratio",
            bilingual("channels.range_ratio"),
            "number",
            higher_is_better=False,
            on=_DRAWN,
            short=bilingual("channels.column_ratio"),
            digits=3,
        ),
        *(pages.Column(f"below_{bound}", plain(f"<{bound}"), "count", on=_TERMINAL) for bound in LEVEL_BOUNDS),
        pages.Column(
            "gain_db", bilingual("channels.gain"), "decibels", on=_DRAWN, short=bilingual("channels.column_gain")
        ),
        pages.Column("risk", bilingual("channels.risk"), "text", on=_DRAWN),
        pages.Column("advice", bilingual("channels.advice"), "text", on=_BROWSER),
    )
    return pages.TableBlock(
        "channels", bilingual("channels.table"), columns, tuple(map(_spread_cells, report.spreads))
    )


def _spread_cells(each: ChannelSpread) -> tuple[pages.Cell, ...]:
    return (
        each.name,
        each.name,
        each.node,
        each.op_type,
        each.axis,
        len(each.boxes),
        len(each.boxes) - each.live,
        f"({each.dtype})" if each.assumed else each.dtype,
        each.range_ratio,
        *(each.below[str(bound)] for bound in LEVEL_BOUNDS),
        each.gain_db,
        bilingual(f"channels.risk_{each.risk.replace(' ', '_')}"),
        phrase_of(each.advice),
    )


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
    table = pages.TableBlock(name, caption, _CHANNEL_COLUMNS, _box_rows(each.boxes, _CHANNEL_COLUMNS), folded=True)
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
        yield pages.TableBlock(f"{name}-poorest", caption, _POOREST_COLUMNS, _box_rows(shown, _POOREST_COLUMNS))


def _box_rows(
    boxes: tuple[ChannelBox, ...] | list[ChannelBox], columns: tuple[pages.Column, ...]
) -> tuple[tuple[pages.Cell, ...], ...]:
    return tuple(tuple(getattr(box, column.id) for column in columns) for box in boxes)


def _values_table(report: ChannelReport) -> pages.TableBlock:
    """One row for each channel of each tensor, for the CSV file."""
    names = [field.name for field in fields(ChannelBox)]
    whole = ("name", "kind", "tensor", "axis", *names, "shape", "dtype", "own_scales", "step")
    columns = tuple(pages.Column(name, plain(name), "text", on=("csv",)) for name in whole)
    rows = tuple(
        (
            *(each.name, each.kind, each.tensor, each.axis),
            *(getattr(box, name) for name in names),
            *(shape_text(each.shape), each.dtype, each.own_scales, each.step),
        )
        for each in report.spreads
        for box in each.boxes
    )
    return pages.TableBlock("channels-all", bilingual("channels.title"), columns, rows, file="channels.csv")


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
    rows = tuple(_outlier_cells(row) for row in report.rows)
    worst = sorted(range(len(rows)), key=lambda at: _badness(report.rows[at]))
    order = sorted(worst[: view.most]) if view.sort == "order" else worst
    return pages.TableBlock(
        "outliers",
        bilingual("outliers.table", base=f"{report.log_base:g}"),
        _outlier_columns(),
        rows,
        sort=f"-level_{OUTLIER_LEVELS[0]}_ratio",
        file="outliers.csv",
        most=view.most,
        order=tuple(order),
    )


def _outlier_columns() -> tuple[pages.Column, ...]:
    files: tuple[pages.Place, ...] = ("html", "csv")
    hidden: tuple[pages.Place, ...] = ("csv",)
    return (
        pages.Column("order", plain("#"), "count", on=("terminal", "csv")),
        pages.Column("tensor", bilingual("common.tensor"), "text", on=files),
        pages.Column("shown_tensor", bilingual("common.tensor"), "node", on=("terminal",)),
        pages.Column("node", bilingual("common.node"), "node", on=files),
        pages.Column("op_type", bilingual("common.operation"), "text", short=bilingual("terminal.operation")),
        pages.Column("shape", bilingual("common.shape"), "text", on=files),
        pages.Column("axis", plain("axis"), "count", on=hidden),
        pages.Column("quantized", bilingual("common.type"), "text", short=bilingual("outliers.column_type")),
        pages.Column("channels", bilingual("outliers.channels"), "count"),
        pages.Column(
            "sparse_ratio",
            bilingual("outliers.sparse"),
            "share",
            explained("sparse"),
            higher_is_better=False,
            short=bilingual("outliers.column_zero"),
        ),
        *(
            pages.Column(
                f"level_{level}_ratio",
                bilingual("outliers.level", level=level),
                "share",
                explained("level"),
                higher_is_better=False,
                short=plain(f">={level}"),
            )
            for level in OUTLIER_LEVELS
        ),
        pages.Column("sparse", plain("sparse"), "count", on=hidden),
        *(pages.Column(f"level_{level}", plain(f"level {level}"), "count", on=hidden) for level in OUTLIER_LEVELS),
        pages.Column("largest", bilingual("outliers.largest"), "number", digits=3),
        *(
            pages.Column(name, plain(name), "text", on=hidden)
            for name in ("largest_channel", "median", "nonfinite")
        ),
    )


def _outlier_cells(row: OutlierRow) -> tuple[pages.Cell, ...]:
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
