"""How the channels of tensors differ: the risk of one scale for all, a box and the levels of each channel."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, plain, say
from roundoff.pages.blocks import NODE_COLUMNS, Block, Chart, Column, Page, Series, Table, notes
from roundoff.studies.channels.result import ChannelReport, ChannelSpread

__all__ = ["channels_page"]

_COLUMNS = (
    Column("name", say("common.tensor"), "text"),
    *NODE_COLUMNS,
    Column("dtype", say("common.type"), "text"),
    Column("risk", say("channels.risk"), "text"),
    Column("range_ratio", say("channels.range_ratio"), "number", higher_is_better=False),
    Column("gain_db", say("channels.gain"), "decibels"),
    Column("advice", say("distribution.advice"), "text"),
)
_CHANNEL_COLUMNS = (
    Column("channel", say("channels.channel"), "count"),
    Column("low", say("distribution.minimum"), "number"),
    Column("p25", say("channels.quartile_low"), "number"),
    Column("median", say("channels.median"), "number"),
    Column("p75", say("channels.quartile_high"), "number"),
    Column("high", say("distribution.maximum"), "number"),
    Column("levels", say("channels.levels"), "number", higher_is_better=True),
    Column("own_levels", say("channels.own_levels"), "number", higher_is_better=True),
)
# More rows than fit on a page show nothing.
_MOST_TENSORS = 40


def channels_page(document: RunDocument) -> Page | None:
    """The page on channels; None when none were looked at."""
    report = document.channels
    if report is None:
        return None
    rows = tuple(
        (each.name, each.node, each.op_type, each.dtype, _risk(each), each.range_ratio, each.gain_db, each.advice)
        for each in report.spreads
    )
    table = Table("channels", say("channels.table"), _COLUMNS, rows)
    sections = tuple(_tensor(number, each) for number, each in enumerate(report.spreads))
    return Page("channels", say("channels.title"), (table, *_map(report), *notes(report.notes)), sections)


def _risk(each: ChannelSpread) -> Phrase:
    return say(f"channels.risk_{each.risk.replace(' ', '_')}")


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


def _tensor(number: int, each: ChannelSpread) -> Page:
    name = _table_id(number)
    rows = tuple(
        (box.channel, box.low, box.p25, box.median, box.p75, box.high, box.levels, box.own_levels)
        for box in each.boxes
    )
    table = Table(name, say("channels.channel_table", name=each.name), _CHANNEL_COLUMNS, rows, folded=True)
    boxes = Chart(
        f"{name}-boxes",
        say("channels.boxes", name=each.name),
        name,
        "channel",
        (Series(("low", "p25", "median", "p75", "high"), plain(each.name), "box"),),
        say("channels.channel"),
        say("distribution.value"),
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
    return Page(name, plain(each.name), (boxes, levels, table))
