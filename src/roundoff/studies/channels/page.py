"""How the channels of tensors differ: the risk of one scale for all, a box and the levels of each channel."""

from collections.abc import Iterator
from dataclasses import fields

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import in_all, plain, say, told
from roundoff.messages.numbers import percentage, shape_text
from roundoff.messages.phrases import count_of
from roundoff.messages.sentences import known
from roundoff.pages.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Headline,
    Page,
    Paragraph,
    Place,
    Series,
    TableBlock,
    notes,
    preparation_note,
)
from roundoff.studies.channels.result import LEVEL_BOUNDS, ChannelBox, ChannelReport, ChannelSpread

__all__ = ["CHANNELS_CSV_START", "channels_page"]

CHANNELS_CSV_START = "name,kind,tensor,axis,channel,low,p01"
"""By this an earlier table of ours is known."""

# More rows than fit on a page show nothing.
_MOST_TENSORS = 40
# Tensors whose poorest channels a terminal lists, and how many of each.
_MOST_DETAILED, _POOREST = 3, 5
# Of more tensors at risk a terminal speaks of the worst.
_MOST_ADVISED = 6
_TERMINAL: tuple[Place, ...] = ("terminal",)
_BROWSER: tuple[Place, ...] = ("html",)
_DRAWN: tuple[Place, ...] = ("terminal", "html")
_CHANNEL_COLUMNS = (
    Column("channel", say("channels.channel"), "count", on=_BROWSER),
    Column("low", say("channels.minimum"), "number", on=_BROWSER),
    Column("p25", say("channels.quartile_low"), "number", on=_BROWSER),
    Column("median", say("channels.median"), "number", on=_BROWSER),
    Column("p75", say("channels.quartile_high"), "number", on=_BROWSER),
    Column("high", say("channels.maximum"), "number", on=_BROWSER),
    Column("levels", say("channels.levels"), "number", higher_is_better=True, on=_BROWSER),
    Column("own_levels", say("channels.own_levels"), "number", higher_is_better=True, on=_BROWSER),
)
_POOREST_COLUMNS = (
    Column("channel", say("channels.channel"), "count", on=_TERMINAL),
    Column("levels", say("channels.levels"), "number", on=_TERMINAL, digits=3),
    Column("own_levels", say("channels.column_own"), "number", on=_TERMINAL, digits=3),
    Column("low", say("channels.column_smallest"), "number", on=_TERMINAL, digits=3),
    Column("p25", plain("25 %"), "number", on=_TERMINAL, digits=3),
    Column("median", say("channels.column_median"), "number", on=_TERMINAL, digits=3),
    Column("p75", plain("75 %"), "number", on=_TERMINAL, digits=3),
    Column("high", say("channels.column_largest"), "number", on=_TERMINAL, digits=3),
    Column("mean", say("channels.column_mean"), "number", on=_TERMINAL, digits=3),
)


def channels_page(document: RunDocument) -> Page | None:
    """The page on channels; None when none were looked at."""
    report = document.channels
    if report is None:
        return None
    detailed = len(report.spreads) <= _MOST_DETAILED
    coarse = max((each.resolution for each in report.spreads), default=0.0)
    width = in_all(lambda: percentage(coarse))
    return Page(
        "channels",
        say("channels.title"),
        (
            Headline("plain", in_all(lambda: _headline(report))),
            _table(report),
            *_remarks(report),
            *_map(report),
            *([Paragraph(say("channels.bins", width=width), note=True)] if coarse else []),
            *notes(report.notes),
            *preparation_note(report.preparation),
            _values_table(report),
        ),
        tuple(_tensor(number, each, detailed=detailed) for number, each in enumerate(report.spreads)),
    )


def _at_risk(report: ChannelReport) -> list[ChannelSpread]:
    return [each for each in report.spreads if each.risk in ("some", "high")]


def _headline(report: ChannelReport) -> str:
    risky, total = len(_at_risk(report)), len(report.spreads)
    text = told("channels.headline", risky=risky, all=total, number=1 if 1 in (risky, total) else total)
    if not report.samples:
        return text
    return told("channels.samples", text=text, samples=count_of(len(report.samples), "sample"))


def _remarks(report: ChannelReport) -> Iterator[Paragraph]:
    """Below a table in a terminal, which has no room for advice: the worst tensors, else the first."""
    worst = sorted(_at_risk(report), key=_shortage, reverse=True)
    for each in (worst or list(report.spreads))[:_MOST_ADVISED]:
        yield Paragraph(say("channels.named", name=each.name, text=known(each.advice)), on=_TERMINAL)
    if len(worst) > _MOST_ADVISED:
        yield Paragraph(say("channels.more", count=len(worst) - _MOST_ADVISED), on=_TERMINAL)


def _shortage(each: ChannelSpread) -> tuple[float, ...]:
    """How bad it is: shares of the channels with next to no levels, then of those with few."""
    return tuple(each.below[str(bound)] / max(1, each.live) for bound in sorted(LEVEL_BOUNDS))


def _table(report: ChannelReport) -> TableBlock:
    columns = (
        Column("name", say("common.tensor"), "text", on=_BROWSER),
        Column("short_name", say("channels.column_name"), "node", on=_TERMINAL),
        Column("node", say("common.node"), "node", on=_BROWSER),
        Column("op_type", say("common.operation"), "text", on=_BROWSER),
        Column("axis", say("channels.column_axis"), "count", on=_TERMINAL),
        Column("channels", say("channels.column_channels"), "count", on=_TERMINAL),
        Column("zero", say("channels.column_zero"), "count", on=_TERMINAL),
        Column("dtype", say("common.type"), "text", on=_DRAWN, short=say("channels.column_type")),
        Column(
            "range_ratio",
            say("channels.range_ratio"),
            "number",
            higher_is_better=False,
            on=_DRAWN,
            short=say("channels.column_ratio"),
            digits=3,
        ),
        *(Column(f"below_{bound}", plain(f"<{bound}"), "count", on=_TERMINAL) for bound in LEVEL_BOUNDS),
        Column("gain_db", say("channels.gain"), "decibels", on=_DRAWN, short=say("channels.column_gain")),
        Column("risk", say("channels.risk"), "text", on=_DRAWN),
        Column("advice", say("channels.advice"), "text", on=_BROWSER),
    )
    return TableBlock("channels", say("channels.table"), columns, tuple(map(_row, report.spreads)))


def _row(each: ChannelSpread) -> tuple[Cell, ...]:
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
        say(f"channels.risk_{each.risk.replace(' ', '_')}"),
        known(each.advice),
    )


def _map(report: ChannelReport) -> tuple[Block, ...]:
    """The levels of all channels of all tensors at a glance; nothing where there is only one tensor."""
    shown = report.spreads[:_MOST_TENSORS]
    if len(shown) < 2:
        return ()
    tables = tuple(_table_id(number) for number in range(len(shown)))
    names = tuple(plain(each.name) for each in shown)
    heat = Series(("levels",) * len(shown), say("channels.levels"), "heat", tables, names)
    longest = max(range(len(shown)), key=lambda number: len(shown[number].boxes))
    caption = say("channels.map", tensors=len(shown), all=len(report.spreads))
    axes = (say("channels.channel"), say("common.tensor"))
    return (Chart("channel-map", caption, tables[longest], "channel", (heat,), *axes),)


def _table_id(number: int) -> str:
    return f"channels-{number}"


def _tensor(number: int, each: ChannelSpread, *, detailed: bool) -> Page:
    name = _table_id(number)
    caption = say("channels.channel_table", name=each.name)
    table = TableBlock(name, caption, _CHANNEL_COLUMNS, _box_rows(each.boxes, _CHANNEL_COLUMNS), folded=True)
    boxes = Chart(
        f"{name}-boxes",
        say("channels.boxes", name=each.name),
        name,
        "channel",
        (Series(("low", "p25", "median", "p75", "high"), plain(each.name), "box"),),
        say("channels.channel"),
        say("channels.value"),
    )
    levels = Chart(
        f"{name}-levels",
        say("channels.levels_chart", name=each.name),
        name,
        "channel",
        (Series(("levels",), say("channels.levels"), "bars"),),
        say("channels.channel"),
        say("channels.levels"),
    )
    return Page(name, plain(each.name), (boxes, levels, table, *(_poorest(name, each) if detailed else ())))


def _poorest(name: str, each: ChannelSpread) -> Iterator[Block]:
    """In a terminal: the channels with the fewest levels, and the one with the most."""
    live = sorted((box for box in each.boxes if box.reach > 0), key=lambda box: box.levels)
    shown = live[:_POOREST] + live[-1:] if len(live) > _POOREST + 1 else live
    if shown:
        caption = say("channels.poorest", name=each.name)
        yield Paragraph(caption, on=_TERMINAL)
        yield TableBlock(f"{name}-poorest", caption, _POOREST_COLUMNS, _box_rows(shown, _POOREST_COLUMNS))


def _box_rows(
    boxes: tuple[ChannelBox, ...] | list[ChannelBox], columns: tuple[Column, ...]
) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(getattr(box, column.id) for column in columns) for box in boxes)


def _values_table(report: ChannelReport) -> TableBlock:
    """One row for each channel of each tensor, for the CSV file."""
    names = [field.name for field in fields(ChannelBox)]
    whole = ("name", "kind", "tensor", "axis", *names, "shape", "dtype", "own_scales", "step")
    columns = tuple(Column(name, plain(name), "text", on=("csv",)) for name in whole)
    rows = tuple(
        (
            *(each.name, each.kind, each.tensor, each.axis),
            *(getattr(box, name) for name in names),
            *(shape_text(each.shape), each.dtype, each.own_scales, each.step),
        )
        for each in report.spreads
        for box in each.boxes
    )
    return TableBlock("channels-all", say("channels.title"), columns, rows, file="channels.csv")
