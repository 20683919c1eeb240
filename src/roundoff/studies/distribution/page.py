"""How values are distributed: a card for each of a few, a table of many, and a histogram of each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter, itemgetter

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    explained,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import phrase_of, shown
from roundoff.messages.numbers import BLOCKS, decibels_with_unit, first_of, number, percentage, shape_text
from roundoff.studies.distribution.result import (
    LEVEL_BOUNDS,
    OUTLIER_LEVELS,
    Bins,
    ChannelBox,
    ChannelReport,
    ChannelSpread,
    DistributionReport,
    OutlierReport,
    OutlierRow,
    QuantizerFacts,
    TensorDistribution,
    ValueSummary,
)

DISTRIBUTION_CSV_START = "name,kind,tensor,node,op_type,shape,suits,unimodal,peaks"
"""By this an earlier table of ours is known."""

# More than this are a table in a terminal.
_MOST_CARDS = 8
_NAMED_PEAKS = 5
_SKETCH_COLUMNS = 48
# Codes of more bits have more levels than a narrow column can show.
_MOST_BITS = 16
_VALUES = (
    "count", "nonfinite", "zeros", "minimum", "maximum", "mean", "std", "skewness", "excess_kurtosis",
    "edge_share", "central_range",
)  # fmt: skip
_FACTS = (
    "dtype", "axis", "zero_point", "low", "high", "clipped_low", "clipped_high", "zeroed", "levels_used",
    "levels", "entropy_bits", "sqnr_db",
)  # fmt: skip
_Line = tuple[str, str]


def distribution_page(document: RunDocument) -> pages.Page | None:
    """The page on distributions; None when none was looked at."""
    report = document.distributions
    if report is None:
        return None
    found = report.distributions
    cards = len(found) <= _MOST_CARDS
    sections = (_section(number, each, card=cards) for number, each in enumerate(found))
    return pages.Page(
        "distributions",
        bilingual("distribution.title"),
        (
            pages.Headline("plain", in_all_languages(lambda: _headline(report))),
            distribution_table(report),
            *([] if cards else _remarks(found)),
            *pages.notes(report.notes),
            *pages.preparation_note(report.preparation),
            _bins_table(report),
        ),
        tuple(section for section in sections if section.blocks),
    )


def _headline(report: DistributionReport) -> str:
    fine, total = sum(1 for each in report.distributions if each.suits), len(report.distributions)
    title = translate("distribution.headline", fine=fine, all=total, number=1 if 1 in (fine, total) else total)
    if not report.samples:
        return title
    return translate("distribution.samples", text=title, samples=count_of(len(report.samples), "sample"))


def _remarks(found: Sequence[TensorDistribution]) -> Iterator[pages.Paragraph]:
    """Below a table in a terminal, which has no room for advice."""
    unsuitable = [each for each in found if not each.suits]
    for each in unsuitable[:_MOST_CARDS]:
        text = bilingual("distribution.named", name=each.name, text=phrase_of(each.advice))
        yield pages.Paragraph(text, on=("terminal",))
    if more := [each.name for each in unsuitable[_MOST_CARDS:]]:
        named = first_of(more, _MOST_CARDS)
        yield pages.Paragraph(bilingual("distribution.more", count=len(more), names=named), on=("terminal",))


# One distribution: in words, and as a histogram.


def _section(number: int, each: TensorDistribution, *, card: bool) -> pages.Page:
    blocks: list[pages.Block] = []
    if card:
        what = in_all_languages(lambda: _what(each))
        blocks.append(pages.Headline("plain", what, "", plain(each.name)))
        blocks.append(pages.bilingual_facts(lambda: _lines(each)))
    return pages.Page(f"histogram-{number}", plain(each.name), (*blocks, *_histogram(number, each)))


def _what(each: TensorDistribution) -> str:
    kind = "input" if each.kind == "node" and not each.op_type else each.kind
    # A blank stands between a name and what it is in every language.
    return f" {commas(translate(f'distribution.kind_{kind}'), each.op_type, shape_text(each.shape))}"


def _lines(each: TensorDistribution) -> Iterator[_Line]:
    yield translate("distribution.float"), _values_in_words(each.before)
    if each.before.bins is not None:
        yield "", _sketch(each.before.bins)
    if each.peaks:
        near = first_of([number(peak, 3) for peak in each.peaks], _NAMED_PEAKS)
        yield translate("distribution.peaks"), translate("distribution.near", count=len(each.peaks), places=near)
    if each.quantizer is not None:
        yield from _facts_in_words(each.quantizer, each.tensor)
    elif each.after is not None:
        yield translate("distribution.quantizer"), translate("distribution.no_quantizer")
    if each.difference is not None and each.difference.std is not None:
        values = (each.difference.mean, each.difference.std, each.difference.largest)
        mean, std, most = (number(value, 3) for value in values)
        yield (
            translate("distribution.quantized"),
            translate("distribution.less_float", mean=mean, std=std, most=most),
        )
    yield translate("distribution.so"), shown(each.advice)
    if each.resolution:
        width = percentage(each.resolution)
        yield translate("distribution.exactness"), translate("distribution.from_bins", width=width)


def _values_in_words(values: ValueSummary) -> str:
    if values.minimum is None:
        return translate("distribution.no_values")
    low, high, mean, std = map(number, (values.minimum, values.maximum, values.mean, values.std))
    parts = [translate("distribution.values", low=low, high=high, mean=mean, std=std)]
    if values.skewness is not None:
        skewness, kurtosis = number(values.skewness, 3), number(values.excess_kurtosis, 3)
        parts.append(translate("distribution.skewness", skewness=skewness, kurtosis=kurtosis))
    if values.zeros:
        parts.append(translate("distribution.zeros", share=percentage(values.zeros / values.count)))
    if values.nonfinite:
        parts.append(translate("distribution.nonfinite", count=values.nonfinite))
    return commas(*parts)


def _facts_in_words(facts: QuantizerFacts, tensor: str) -> Iterator[_Line]:
    low, high = map(number, facts.scales)
    steps = translate("distribution.step", step=low)
    share = percentage(facts.clipped)
    clipped = translate("distribution.beyond", share=share, low=number(facts.low), high=number(facts.high))
    if facts.axis is not None:
        steps = translate("distribution.steps", low=low, high=high, axis=facts.axis)
        clipped = translate("distribution.narrowest", text=clipped)
    text = commas(facts.dtype, steps, clipped)
    if facts.name != tensor:
        text = translate("distribution.named", name=facts.name, text=text)
    yield translate("distribution.quantizer"), text
    levels = translate(
        "distribution.of_levels",
        used=facts.levels_used,
        all=facts.levels,
        entropy=f"{facts.entropy_bits:.2f}",
        bits=facts.bits,
    )
    yield translate("distribution.label_levels"), commas(levels, decibels_with_unit(facts.sqnr_db))


def _sketch(bins: Bins) -> str:
    """The histogram in one line; a bin that towers over all others is cut."""
    columns = min(_SKETCH_COLUMNS, len(bins.counts))
    heights = [0.0] * columns
    for index, count in enumerate(bins.counts):
        heights[index * columns // len(bins.counts)] += count
    ordered = sorted(heights, reverse=True)
    top = max(ordered[1] * 2 if len(ordered) > 1 and ordered[1] else ordered[0], 1e-300)
    bars, most = f" {BLOCKS}", len(BLOCKS)
    marks = (
        0 if not height else max(1, round(most * min(height, top) / min(top, ordered[0]))) for height in heights
    )
    return "".join(bars[min(mark, most)] for mark in marks)


def _histogram(number: int, each: TensorDistribution) -> tuple[pages.Block, ...]:
    """The histogram of one tensor; nothing where there are no finite values."""
    bins = each.before.bins
    if bins is None:
        return ()
    after = None if each.after is None else each.after.bins
    # Both are drawn over the same bins; where they differ, each has its own table.
    both = after is not None and after.start == bins.start and after.width == bins.width
    browsers: tuple[pages.Place, ...] = ("html", "csv")
    columns = [
        pages.Column("value", bilingual("distribution.value"), "number", on=browsers),
        pages.Column("before", bilingual("distribution.float"), "number", on=browsers),
    ]
    counts: list[tuple[float, ...]] = [bins.counts]
    if both and after is not None:
        columns.append(pages.Column("after", bilingual("distribution.quantized"), "number", on=browsers))
        counts.append(after.counts)
    middles = [bins.start + (place + 0.5) * bins.width for place in range(len(bins.counts))]
    rows = tuple(
        (middle, *(each_count[place] if place < len(each_count) else None for each_count in counts))
        for place, middle in enumerate(middles)
    )
    name = f"histogram-{number}"
    table = pages.TableBlock(
        name, bilingual("distribution.bins", name=each.name), tuple(columns), rows, folded=True
    )
    chart = pages.Chart(
        f"{name}-chart",
        bilingual("distribution.histogram", name=each.name),
        name,
        "value",
        tuple(pages.Series((column.id,), column.label, "steps") for column in columns[1:]),
        bilingual("distribution.value"),
        bilingual("distribution.counts"),
        "log",
        _limits(each),
    )
    return chart, table


def _limits(each: TensorDistribution) -> tuple[tuple[float | str, Phrase], ...]:
    facts = each.quantizer
    if facts is None:
        return ()
    return ((facts.low, bilingual("distribution.lowest")), (facts.high, bilingual("distribution.highest")))


# All distributions as rows.


def distribution_table(report: DistributionReport) -> pages.TableBlock:
    """All distributions in execution order, with all numbers but the histograms."""
    found = report.distributions
    columns = [*_shown_columns(many=len(found) > _MOST_CARDS), *pages.csv_columns(_file_cells())]
    return pages.table("distributions", "distribution.table", columns, found, file="distribution.csv")


def _shown_columns(*, many: bool) -> list[pages.ColumnOf[TensorDistribution]]:
    """What people see: a terminal only of many distributions, as it has cards of a few."""
    drawn, terminals = ("terminal html", "terminal") if many else ("html", "")
    return [
        pages.column("shown_name", "common.tensor", cell=lambda each: each.name, on="html"),
        pages.column("short_name", "distribution.column_name", "node", lambda each: each.name, on=terminals),
        pages.column("shown_node", "common.node", "node", lambda each: each.node, on="html"),
        pages.column("shown_op_type", "common.operation", cell=lambda each: each.op_type, on="html"),
        pages.column("shown_shape", "common.shape", cell=lambda each: shape_text(each.shape), on="html"),
        pages.column(
            "dtype",
            "common.type",
            cell=lambda each: pages.type_name("float") if each.quantizer is None else each.quantizer.dtype,
            on=drawn,
            short="distribution.column_type",
        ),
        pages.column(
            "minimum",
            "distribution.minimum",
            "number",
            attrgetter("before.minimum"),
            on=drawn,
            short="distribution.column_min",
        ),
        pages.column(
            "maximum",
            "distribution.maximum",
            "number",
            attrgetter("before.maximum"),
            on=drawn,
            short="distribution.column_max",
        ),
        pages.column("std", "distribution.column_std", "number", attrgetter("before.std"), on=terminals, digits=3),
        pages.column(
            "clipped",
            "distribution.clipped",
            "share",
            _of("quantizer", "clipped"),
            higher_is_better=False,
            on=drawn,
            short="distribution.column_clip",
        ),
        pages.column(
            "zeroed",
            "distribution.zeroed",
            "share",
            _of("quantizer", "zeroed"),
            higher_is_better=False,
            on="html",
        ),
        pages.column("levels_used", "distribution.levels", "count", _of("quantizer", "levels_used"), on="html"),
        pages.column("short_levels", "distribution.label_levels", "count", _short_levels, on=terminals),
        pages.column(
            "entropy_bits",
            "distribution.column_bits",
            "number",
            _of("quantizer", "entropy_bits"),
            on=terminals,
            digits=2,
        ),
        pages.column("sqnr_db", "dB", "decibels", _of("quantizer", "sqnr_db"), higher_is_better=True, on=drawn),
        pages.column("peak_count", "distribution.peaks", "count", lambda each: len(each.peaks), on=terminals),
        pages.column("shown_advice", "distribution.advice", cell=lambda each: phrase_of(each.advice), on="html"),
    ]


def _short_levels(each: TensorDistribution) -> str | None:
    facts = each.quantizer
    if facts is None:
        return None
    return f"{facts.levels_used}/{facts.levels}" if facts.bits <= _MOST_BITS else f"{facts.levels_used}"


def _file_cells() -> dict[str, Callable[[TensorDistribution], pages.Cell]]:
    """All that files have, by the names of their columns."""
    cells: dict[str, Callable[[TensorDistribution], pages.Cell]] = {
        **{name: attrgetter(name) for name in DISTRIBUTION_CSV_START.split(",")},
        "shape": lambda each: shape_text(each.shape),
        "advice": lambda each: phrase_of(each.advice),
        "resolution": lambda each: each.resolution,
    }
    cells |= {f"{side}_{name}": _of(side, name) for side in ("before", "after", "difference") for name in _VALUES}
    cells |= {
        "quantizer_name": _of("quantizer", "name"),
        "quantizer_smallest_scale": lambda each: None if each.quantizer is None else each.quantizer.scales[0],
        "quantizer_largest_scale": lambda each: None if each.quantizer is None else each.quantizer.scales[1],
    }
    return cells | {f"quantizer_{name}": _of("quantizer", name) for name in _FACTS}


def _of(part: str, name: str) -> Callable[[TensorDistribution], pages.Cell]:
    """Something of a part of a distribution that not all have."""
    return lambda each: getattr(getattr(each, part), name, None)


def _bins_table(report: DistributionReport) -> pages.TableBlock:
    """All bins of all histograms, for the CSV file."""
    names = ("name", "kind", "values", "from", "to", "count")
    columns = pages.csv_columns({name: itemgetter(place) for place, name in enumerate(names)})
    rows = (
        (each.name, each.kind, side, low, high, count)
        for each in report.distributions
        for side, values in (("before", each.before), ("after", each.after), ("difference", each.difference))
        if values is not None and values.bins is not None
        for low, high, count in zip(values.bins.edges, values.bins.edges[1:], values.bins.counts, strict=False)
    )
    return pages.table("histograms", "distribution.title", columns, rows, file="histograms.csv")


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
            *_channel_remarks(report),
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
    risky, total = len(_at_risk(report)), sum(each.risk != "no values" for each in report.spreads)
    text = translate("channels.headline", risky=risky, all=total, number=1 if 1 in (risky, total) else total)
    if not report.samples:
        return text
    return translate("channels.samples", text=text, samples=count_of(len(report.samples), "sample"))


def _channel_remarks(report: ChannelReport) -> Iterator[pages.Paragraph]:
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
# Names of more characters need the room of these columns on 80.
_LONG_NAME = 24
_LESS = {"op_type", "sparse_ratio", *(f"level_{level}_ratio" for level in OUTLIER_LEVELS[1:-1])}

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
        names = first_of(list(report.skipped), _NAMED)
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
        _outlier_columns(report),
        report.rows,
        sort=f"-level_{OUTLIER_LEVELS[0]}_ratio",
        file="outliers.csv",
        most=view.most,
        order=tuple(order),
    )


def _outlier_columns(report: OutlierReport) -> list[pages.ColumnOf[OutlierRow]]:
    """All columns; where names are long, a narrow terminal leaves out what the others bound."""
    if max((len(row.tensor) for row in report.rows), default=0) <= _LONG_NAME:
        return _OUTLIER_COLUMNS
    return [replace(each, column=replace(each.column, wide=each.column.id in _LESS)) for each in _OUTLIER_COLUMNS]


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
    pages.column(
        "shown_type", "common.type", cell=lambda row: pages.type_name(row.quantized),
        on="terminal html", short="outliers.column_type",
    ),
    pages.column("quantized", "quantized", on="csv"),
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
