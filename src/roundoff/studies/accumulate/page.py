"""How error grows along the network: one curve per set of quantizers."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, named, plain, say
from roundoff.pages.blocks import (
    NODE_COLUMNS,
    Chart,
    Column,
    Headline,
    Page,
    Series,
    Table,
    metric_axis,
    metric_column,
    notes,
)
from roundoff.studies.accumulate.result import Accumulation

__all__ = ["accumulation_page"]


def accumulation_page(document: RunDocument) -> Page | None:
    """The page on accumulated error; None when no curve was measured."""
    found = document.accumulation
    if found is None:
        return None
    table = _table(found)
    series = tuple(
        Series((column.id,), column.label) for column in table.columns if column.id.startswith("curve_")
    )
    axes = (say("common.place_axis"), metric_axis(found.metric))
    chart = Chart("curves-chart", say("accumulation.curves"), "curves", "order", series, *axes)
    headline = Headline("plain", say(f"accumulation.{found.verdict.dominance or 'unsplit'}"))
    return Page("accumulation", say("accumulation.title"), (headline, chart, table, *notes(found.notes)))


def _table(found: Accumulation) -> Table:
    values = [found.shown(curve) for curve in found.curves]
    columns = (
        Column("order", plain("#"), "count"),
        *NODE_COLUMNS,
        *(_curve_column(found, number) for number in range(len(values))),
    )
    rows = tuple(
        (node.order, node.node, node.op_type, *(curve[place] for curve in values))
        for place, node in enumerate(found.nodes)
    )
    return Table("curves", say("accumulation.table"), columns, rows)


def _curve_column(found: Accumulation, number: int) -> Column:
    like = metric_column(found.metric, higher_is_better=found.higher_is_better)
    return Column(
        f"curve_{number}", _curve_name(found.curves[number].name), like.kind, None, like.higher_is_better
    )


def _curve_name(name: str) -> Phrase:
    return named(f"accumulation.curve_{name}") or plain(name)
