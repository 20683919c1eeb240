"""Distributions for people: a card for each of a few, a table of many; and as CSV."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import (
    EXACT_DB,
    csv_text,
    decibels,
    decibels_with_unit,
    exactness,
    number,
    percentage,
    shape_text,
)
from roundoff.messages.phrases import commas, count_of
from roundoff.messages.sanitize import short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import note_lines
from roundoff.studies.distribution.result import (
    Bins,
    Distribution,
    DistributionReport,
    QuantizerFacts,
    ValueSummary,
)

__all__ = ["DISTRIBUTION_CSV_START", "distribution_csv", "distribution_page", "histogram_csv"]

# More than this are a table.
_MOST_CARDS = 8
_BARS = " ▁▂▃▄▅▆▇█"
_SKETCH_COLUMNS = 48
_VALUES = (
    "count", "nonfinite", "zeros", "minimum", "maximum", "mean", "std", "skewness", "excess_kurtosis",
    "edge_share", "central_range",
)  # fmt: skip
_FACTS = (
    "dtype", "axis", "zero_point", "low", "high", "clipped_low", "clipped_high", "zeroed", "levels_used",
    "levels", "entropy_bits", "sqnr_db",
)  # fmt: skip

DISTRIBUTION_CSV_START = "name,kind,tensor,node,op_type,shape,suits,unimodal,peaks"
"""By this an earlier table of ours is known."""


def distribution_page(report: DistributionReport) -> RenderableType:
    """Everything a person wants to know first."""
    found = report.distributions
    fine = sum(1 for each in found if each.suits)
    number_of = 1 if 1 in (fine, len(found)) else len(found)
    title = told("distribution_text.headline", fine=fine, all=len(found), number=number_of)
    if report.samples:
        title = told("distribution_text.samples", text=title, samples=count_of(len(report.samples), "sample"))
    text = Text(title)
    text.stylize("bold")
    parts: list[RenderableType] = [text, Text("")]
    parts += [_card(each) for each in found] if len(found) <= _MOST_CARDS else [_table(found), *_remarks(found)]
    parts += note_lines(report.notes, report.preparation)
    return Group(*parts)


def _card(each: Distribution) -> RenderableType:
    kind = "input" if each.kind == "node" and not each.op_type else each.kind
    what = commas(told(f"distribution_text.kind_{kind}"), each.op_type, shape_text(each.shape))
    title = Text(each.name, style="bold") + Text(f"  {what}", style="dim")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in _lines(each):
        grid.add_row(f"  {label}", Text(text))
    return Group(title, grid, Text(""))


def _lines(each: Distribution) -> Iterator[tuple[str, str]]:
    yield told("distribution_text.float"), _values_in_words(each.before)
    if each.before.bins is not None:
        yield "", _sketch(each.before.bins)
    if each.peaks:
        near = ", ".join(number(peak, 3) for peak in each.peaks[:5]) + (" ..." if len(each.peaks) > 5 else "")
        yield told("distribution_text.peaks"), told("distribution_text.near", count=len(each.peaks), places=near)
    if each.quantizer is not None:
        yield from _facts_in_words(each.quantizer, each.tensor)
    elif each.after is not None:
        yield told("distribution_text.quantizer"), told("distribution_text.no_quantizer")
    if each.difference is not None and each.difference.std is not None:
        values = (each.difference.mean, each.difference.std, each.difference.largest)
        mean, std, most = (number(value, 3) for value in values)
        yield (
            told("distribution_text.quantized"),
            told("distribution_text.less_float", mean=mean, std=std, most=most),
        )
    yield told("distribution_text.so"), sentence(each.advice)
    if each.resolution:
        yield told("distribution_text.exactness"), exactness(each.resolution)


def _values_in_words(values: ValueSummary) -> str:
    if values.minimum is None:
        return told("distribution_text.no_values")
    low, high, mean, std = map(number, (values.minimum, values.maximum, values.mean, values.std))
    parts = [told("distribution_text.values", low=low, high=high, mean=mean, std=std)]
    if values.skewness is not None:
        skewness, kurtosis = number(values.skewness, 3), number(values.excess_kurtosis, 3)
        parts.append(told("distribution_text.skewness", skewness=skewness, kurtosis=kurtosis))
    if values.zeros:
        parts.append(told("distribution_text.zeros", share=percentage(values.zeros / values.count)))
    if values.nonfinite:
        parts.append(told("distribution_text.nonfinite", count=values.nonfinite))
    return commas(*parts)


def _facts_in_words(facts: QuantizerFacts, tensor: str) -> Iterator[tuple[str, str]]:
    low, high = map(number, facts.scales)
    steps = told("distribution_text.step", step=low)
    clipped = told(
        "distribution_text.clipped",
        share=percentage(facts.clipped),
        low=number(facts.low),
        high=number(facts.high),
    )
    if facts.axis is not None:
        steps = told("distribution_text.steps", low=low, high=high, axis=facts.axis)
        clipped = told("distribution_text.narrowest", text=clipped)
    text = commas(facts.dtype, steps, clipped)
    if facts.name != tensor:
        text = told("distribution_text.named", name=facts.name, text=text)
    yield told("distribution_text.quantizer"), text
    levels = told(
        "distribution_text.levels_used",
        used=facts.levels_used,
        all=facts.levels,
        entropy=f"{facts.entropy_bits:.2f}",
        bits=facts.bits,
    )
    lost = decibels_with_unit(facts.sqnr_db)
    if facts.sqnr_db is not None and facts.sqnr_db > EXACT_DB:
        lost = told("distribution_text.nothing_lost")
    yield told("distribution_text.levels"), commas(levels, lost)


def _sketch(bins: Bins) -> str:
    """The histogram in one line; a bin that towers over all others is cut."""
    columns = min(_SKETCH_COLUMNS, len(bins.counts))
    heights = [0.0] * columns
    for index, count in enumerate(bins.counts):
        heights[index * columns // len(bins.counts)] += count
    ordered = sorted(heights, reverse=True)
    top = max(ordered[1] * 2 if len(ordered) > 1 and ordered[1] else ordered[0], 1e-300)
    marks = [0 if not height else max(1, round(8 * min(height, top) / min(top, ordered[0]))) for height in heights]
    return "".join(_BARS[min(mark, 8)] for mark in marks)


def _table(found: Sequence[Distribution]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("distribution_text.column_name"), overflow="fold", min_width=12)
    columns = ("column_type", "column_min", "column_max", "column_std", "column_clip", "levels", "column_bits")
    headings = [told(f"distribution_text.{column}") for column in columns]
    for heading in (*headings, "dB", told("distribution_text.peaks")):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        facts, values = each.quantizer, each.before
        numbers = (number(value, 3) for value in (values.minimum, values.maximum, values.std))
        cells = [told("distribution_text.float"), *numbers]
        cells += ["", "", "", ""]
        if facts is not None:
            cells[0] = facts.dtype
            levels = f"{facts.levels_used}/{facts.levels}" if facts.bits <= 16 else f"{facts.levels_used}"
            cells[4:] = [percentage(facts.clipped), levels, f"{facts.entropy_bits:.1f}", decibels(facts.sqnr_db)]
        name = Text(short_name(each.name), style="" if each.suits else "bold")
        table.add_row(name, *cells, str(len(each.peaks)))
    return table


def _remarks(found: Sequence[Distribution]) -> Iterator[RenderableType]:
    unsuitable = [each for each in found if not each.suits]
    for each in unsuitable[:_MOST_CARDS]:
        yield Text(told("distribution_text.named", name=each.name, text=sentence(each.advice)))
    if more := [each.name for each in unsuitable[_MOST_CARDS:]]:
        named = ", ".join(more[:_MOST_CARDS]) + (" ..." if len(more) > _MOST_CARDS else "")
        yield Text(told("distribution_text.more", count=len(more), names=named), style="dim")


def distribution_csv(report: DistributionReport) -> str:
    """All distributions in execution order, with all numbers but the histograms."""
    heading = [*DISTRIBUTION_CSV_START.split(","), "advice", "resolution"]
    for side in ("before", "after", "difference"):
        heading += [f"{side}_{name}" for name in _VALUES]
    heading += [f"quantizer_{name}" for name in ("name", "smallest_scale", "largest_scale", *_FACTS)]

    def row(each: Distribution) -> list[object]:
        cells: list[object] = [
            each.name, each.kind, each.tensor, each.node, each.op_type, shape_text(each.shape), each.suits,
            each.unimodal, each.peaks, each.advice, each.resolution,
        ]  # fmt: skip
        for values in (each.before, each.after, each.difference):
            cells += [None if values is None else getattr(values, name) for name in _VALUES]
        facts = each.quantizer
        cells += [None] * 3 if facts is None else [facts.name, *facts.scales]
        return cells + [None if facts is None else getattr(facts, name) for name in _FACTS]

    return csv_text(heading, (row(each) for each in report.distributions))


def histogram_csv(report: DistributionReport) -> str:
    """All bins of all histograms."""

    def rows() -> Iterator[list[object]]:
        for each in report.distributions:
            sides = (("before", each.before), ("after", each.after), ("difference", each.difference))
            for side, values in sides:
                if values is None or values.bins is None:
                    continue
                edges = values.bins.edges
                for low, high, count in zip(edges, edges[1:], values.bins.counts, strict=False):
                    yield [each.name, each.kind, side, low, high, count]

    return csv_text(["name", "kind", "values", "from", "to", "count"], rows())
