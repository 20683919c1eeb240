"""How values are distributed: a table of all, and a histogram of each with what its quantizer can represent."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, plain, say
from roundoff.messages.numbers import shape_text
from roundoff.pages.blocks import NODE_COLUMNS, Cell, Chart, Column, Page, Series, Table, notes
from roundoff.studies.distribution.result import Distribution

__all__ = ["distribution_page"]

_COLUMNS = (
    Column("name", say("common.tensor"), "text"),
    *NODE_COLUMNS,
    Column("shape", say("common.shape"), "text"),
    Column("dtype", say("common.type"), "text"),
    Column("minimum", say("distribution.minimum"), "number"),
    Column("maximum", say("distribution.maximum"), "number"),
    Column("clipped", say("distribution.clipped"), "share", higher_is_better=False),
    Column("zeroed", say("distribution.zeroed"), "share", higher_is_better=False),
    Column("levels_used", say("distribution.levels"), "count"),
    Column("sqnr_db", plain("dB"), "decibels", higher_is_better=True),
    Column("advice", say("distribution.advice"), "text"),
)


def distribution_page(document: RunDocument) -> Page | None:
    """The page on distributions; None when none was looked at."""
    report = document.distributions
    if report is None:
        return None
    table = Table("distributions", say("distribution.table"), _COLUMNS, tuple(map(_row, report.distributions)))
    sections = tuple(
        section
        for number, each in enumerate(report.distributions)
        if (section := _histogram(number, each)) is not None
    )
    return Page("distributions", say("distribution.title"), (table, *notes(report.notes)), sections)


def _row(each: Distribution) -> tuple[Cell, ...]:
    facts = each.quantizer
    quantized: tuple[Cell, ...] = (None, None, None, None)
    if facts is not None:
        quantized = (facts.clipped, facts.zeroed, facts.levels_used, facts.sqnr_db)
    return (
        each.name,
        each.node,
        each.op_type,
        shape_text(each.shape),
        None if facts is None else facts.dtype,
        each.before.minimum,
        each.before.maximum,
        *quantized,
        each.advice,
    )


def _histogram(number: int, each: Distribution) -> Page | None:
    """The histogram of one tensor; None where there are no finite values."""
    bins = each.before.bins
    if bins is None:
        return None
    after = None if each.after is None else each.after.bins
    # Both are drawn over the same bins; where they differ, each has its own table.
    both = after is not None and after.start == bins.start and after.width == bins.width
    columns = [
        Column("value", say("distribution.value"), "number"),
        Column("before", say("distribution.before"), "number"),
    ]
    counts: list[tuple[float, ...]] = [bins.counts]
    if both and after is not None:
        columns.append(Column("after", say("distribution.after"), "number"))
        counts.append(after.counts)
    middles = [bins.start + (place + 0.5) * bins.width for place in range(len(bins.counts))]
    rows = tuple(
        (middle, *(each_count[place] if place < len(each_count) else None for each_count in counts))
        for place, middle in enumerate(middles)
    )
    name = f"histogram-{number}"
    table = Table(name, say("distribution.bins", name=each.name), tuple(columns), rows, folded=True)
    chart = Chart(
        f"{name}-chart",
        say("distribution.histogram", name=each.name),
        name,
        "value",
        tuple(Series((column.id,), column.label, "steps") for column in columns[1:]),
        say("distribution.value"),
        say("distribution.counts"),
        "log",
        _limits(each),
    )
    return Page(name, plain(each.name), (chart, table))


def _limits(each: Distribution) -> tuple[tuple[float | str, Phrase], ...]:
    facts = each.quantizer
    if facts is None:
        return ()
    return ((facts.low, say("distribution.lowest")), (facts.high, say("distribution.highest")))
