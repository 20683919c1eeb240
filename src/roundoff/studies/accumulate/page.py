"""How error grows along the network: whose it is, where it begins, and one curve per set of quantizers."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    count_of,
    in_all_languages,
    named,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.numbers import decibels_with_unit, score_name, score_text, text_curve
from roundoff.pages.cards import HeroCard, NetworkRole, first_screen, score_figure
from roundoff.pages.coverage import judgement_lines
from roundoff.studies.accumulate.result import Accumulation, CurveNode, MeasuredCurve, Split

_ALL_BUT = re.compile(r"all but (?P<names>.+?)(?: and (?P<more>\d+) more)?")
"""A name by `roundoff.studies.accumulate.result.all_but`."""
_LISTED_JUMPS = 3
# A factor of two.
_APART_DB = 6.0
_LINE_COLUMNS = 26
# The base line and the first others; a terminal of 80 columns has no room for more, and only for short names.
_SHOWN_CURVES, _LONGEST_HEADING = 4, 11
_TONES: dict[str, pages.Tone] = {"weights": "bad", "activations": "bad", "both": "open", "neither": "good"}
_PARTS = ("value", "average", "sqnr_db", "worst", "worst_sample")
_Line = tuple[str, str]


def accumulation_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on accumulated error; None when no curve was measured.

    Args:
        document: The run.
        view: Rows in a terminal: the nodes where the base line is worst, in execution order.
    """
    found = document.accumulation
    if found is None:
        return None
    table = curves_table(found, view)
    series = tuple(
        pages.Series((column.id,), column.label) for column in table.columns if column.id.startswith("curve_")
    )
    axes = (bilingual("common.place_axis"), pages.metric_axis(found.metric))
    more = len(found.curves) - _SHOWN_CURVES
    return pages.Page(
        "accumulation",
        bilingual("accumulate.title"),
        (
            _first_screen(document, found),
            _headline(found),
            pages.bilingual_facts(lambda: (line for part in _FACTS for line in part(found))),
            _summary(found),
            pages.Chart("curves-chart", bilingual("accumulate.curves"), "curves", "order", series, *axes),
            table,
            *([pages.Paragraph(bilingual("accumulate.more", count=more), on=("terminal",))] if more > 0 else []),
            *pages.notes(found.notes),
            *pages.preparation_note(found.preparation),
        ),
    )


def _headline(found: Accumulation) -> pages.Headline:
    verdict = found.verdict
    samples = in_all_languages(lambda: count_of(len(found.samples), "sample"))
    if verdict.dominance is not None:
        text = bilingual(f"accumulate.{verdict.dominance}", samples=samples)
        return pages.Headline(
            _TONES[verdict.dominance], text, "", bilingual(f"accumulate.word_{verdict.dominance}")
        )
    worst = _output(found)
    if worst is None:
        text = bilingual("accumulate.no_score", samples=samples)
        return pages.Headline("bad", text, "", bilingual("accumulate.word_no_score"))
    level = in_all_languages(lambda: decibels_with_unit(found.base_line.sqnr_db[worst.order]))
    key = "accumulate.open_exact" if verdict.exact_weights else "accumulate.open"
    text = bilingual(key, output=verdict.output, db=level, samples=samples)
    return pages.Headline("open", text, "", bilingual("accumulate.word_open"))


def _first_screen(document: RunDocument, found: Accumulation) -> HeroCard:
    """What the worst output keeps with everything quantized, with weights alone, with activations alone."""
    covered = None if found.judgement is None else found.judgement.coverage
    split, detail = found.verdict.at_output, plain(found.verdict.output or "")
    parts: tuple[tuple[str, float], ...] = ()
    if split is not None:
        parts = ("everything", split.everything), ("weights", split.weights), ("activations", split.activations)
    # What does less harm by itself is not to blame.
    roles: list[NetworkRole] = ["quantized" if value < parts[0][1] + _APART_DB else "float" for _, value in parts]
    figures = [
        score_figure(bilingual(f"accumulate.hero_{name}"), role, metric="sqnr_db", value=value, detail=detail)
        for role, (name, value) in zip(roles, parts, strict=True)
    ]
    return first_screen(document, _headline(found), scores=figures, covered=covered)


def _output(found: Accumulation) -> CurveNode | None:
    """The output that is worst off."""
    return next((node for node in found.nodes if node.tensor == found.verdict.output), None)


def _splits(found: Accumulation) -> Iterator[_Line]:
    verdict = found.verdict
    if verdict.at_output is not None:
        text = translate("accumulate.said", name=verdict.output, text=_split(verdict.at_output))
        yield translate("accumulate.output"), text
    if verdict.near_output is not None:
        text = translate("accumulate.median", split=_split(verdict.near_output), count=verdict.near_places)
        yield translate("accumulate.before_it"), text
    if verdict.together:
        yield translate("accumulate.together"), translate("accumulate.meet")


def _split(split: Split) -> str:
    return translate(
        "accumulate.split",
        weights=decibels_with_unit(split.weights),
        activations=decibels_with_unit(split.activations),
        everything=decibels_with_unit(split.everything),
    )


def _falls(found: Accumulation) -> Iterator[_Line]:
    verdict = found.verdict
    if verdict.falls_at is None:
        limit = f"{verdict.fall_db:g}"
        yield translate("accumulate.base_line"), translate("accumulate.never_falls", limit=limit)
        return
    place = verdict.falls_at
    metric, values = found.metric, found.base_line.values
    gaps = {"limit": f"{verdict.fall_db:g}", "node": _name(found.nodes[place]), "metric": score_name(metric)}
    gaps["score"] = score_text(metric, values[place])
    if place:
        text = translate("accumulate.falls_after", before=score_text(metric, values[place - 1]), **gaps)
    else:
        text = translate("accumulate.falls", **gaps)
    recovers = translate("accumulate.recover") if verdict.recovers else ""
    yield translate("accumulate.base_line"), semicolons(text, recovers)


def _jumps(found: Accumulation) -> Iterator[_Line]:
    for index, jump in enumerate(found.verdict.jumps[:_LISTED_JUMPS]):
        before = translate("accumulate.inputs") if jump.before_db is None else decibels_with_unit(jump.before_db)
        change = f"{before} -> {decibels_with_unit(jump.after_db)}"
        label = "" if index else translate("accumulate.jumps_at")
        yield label, translate("accumulate.said", name=_name(found.nodes[jump.order]), text=change)


def _name(node: CurveNode) -> str:
    return f"{node.node} ({node.op_type})"


def _coverage(found: Accumulation) -> Iterator[_Line]:
    yield from judgement_lines(found.judgement)


_FACTS = (_coverage, _splits, _falls, _jumps)


def _summary(found: Accumulation) -> pages.TableBlock:
    """The curves in a line each."""
    line = "accumulate.column_averages" if found.average else "accumulate.column_line"
    columns = (
        pages.Column("curve", bilingual("accumulate.column_curve"), "text"),
        pages.Column("quantizers_on", bilingual("accumulate.column_on"), "count", bilingual("accumulate.help_on")),
        replace(
            _score(found),
            id="at_output",
            label=bilingual("accumulate.column_output"),
            help=bilingual("accumulate.help_output"),
        ),
        replace(
            _score(found),
            id="worst",
            label=bilingual("accumulate.column_worst"),
            help=bilingual("accumulate.help_worst"),
        ),
        pages.Column(
            "line",
            bilingual(line, metric=in_all_languages(lambda: score_name(found.metric))),
            "text",
            on=("terminal",),
        ),
    )
    known = [value for curve in found.curves for value in found.shown(curve) if value is not None]
    finite = [value for value in known if math.isfinite(value)]
    limits = (min(finite), max(finite)) if finite else (0.0, 0.0)
    output = _output(found)
    rows = []
    for curve in found.curves:
        values = found.shown(curve)
        drawn = text_curve(values, limits, width=_LINE_COLUMNS, higher_is_better=found.higher_is_better)
        at_output = None if output is None else values[output.order]
        rows.append((_curve_name(curve), len(curve.quantizers), at_output, _worst(found, curve), drawn))
    return pages.TableBlock("curves-summary", bilingual("accumulate.summary"), columns, tuple(rows))


def _worst(found: Accumulation, curve: MeasuredCurve) -> float | None:
    known = [value for value in found.shown(curve) if value is not None]
    return (min if found.higher_is_better else max)(known, default=None)


def _score(found: Accumulation) -> pages.Column:
    """What columns of the metric have in common."""
    return replace(pages.metric_column(found.metric, higher_is_better=found.higher_is_better), metric=found.metric)


def curves_table(found: Accumulation, view: pages.View = pages.View()) -> pages.TableBlock:  # noqa: B008 - frozen
    """All nodes in execution order, with everything that is known of each curve there.

    Args:
        found: What was measured.
        view: Rows in a terminal.
    """
    several = {node.node for at, node in enumerate(found.nodes) if node.node in {n.node for n in found.nodes[:at]}}
    everywhere: tuple[pages.Place, ...] = ("html", "csv")
    hidden: tuple[pages.Place, ...] = ("csv",)
    columns = (
        pages.Column("order", plain("#"), "count"),
        pages.Column("node", bilingual("common.node"), "node", on=everywhere),
        # A node with several outputs is told apart by what it computes.
        pages.Column("shown_node", bilingual("common.node"), "node", on=("terminal",)),
        pages.Column("op_type", bilingual("common.operation"), "text", short=bilingual("terminal.operation")),
        pages.Column("tensor", plain("tensor"), "text", on=hidden),
        pages.Column("output", plain("output"), "text", on=hidden),
        pages.Column("metric", plain("metric"), "text", on=hidden),
        *(column for number in range(len(found.curves)) for column in _curve_columns(found, number)),
    )
    rows = tuple(
        (
            node.order,
            node.node,
            node.tensor if node.node in several else node.node,
            node.op_type,
            node.tensor,
            node.output,
            found.metric,
            *(cell for curve in found.curves for cell in _curve_cells(found, curve, node.order)),
        )
        for node in found.nodes
    )
    worst = sorted(range(len(rows)), key=lambda at: _badness(found, found.nodes[at]))
    order = tuple(sorted(worst[: view.most]))
    return pages.TableBlock(
        "curves", bilingual("accumulate.table"), columns, rows, file="curves.csv", most=view.most, order=order
    )


def _badness(found: Accumulation, node: CurveNode) -> float:
    """Smaller is worse."""
    value = found.base_line.sqnr_db[node.order]
    return math.inf if value is None else value


def _curve_columns(found: Accumulation, number: int) -> Iterator[pages.Column]:
    curve = found.curves[number]
    label = _curve_name(curve)
    yield replace(
        _score(found),
        id=f"curve_{number}",
        label=label,
        on=("terminal", "html") if number < _SHOWN_CURVES else ("html",),
        short=Phrase(_heading(label.en), _heading(label.zh)),
    )
    for part in _PARTS:
        yield pages.Column(f"{curve.name} {part}", plain(f"{curve.name} {part}"), "text", on=("csv",))


def _curve_cells(found: Accumulation, curve: MeasuredCurve, at: int) -> tuple[float | str | None, ...]:
    shown = found.shown(curve)[at]
    return (
        shown,
        curve.values[at],
        curve.averages[at],
        curve.sqnr_db[at],
        curve.worst[at],
        curve.worst_samples[at],
    )


def _curve_name(curve: MeasuredCurve) -> Phrase:
    but = _ALL_BUT.fullmatch(curve.name)
    if but is None:
        return named(f"accumulate.curve_{curve.name}") or plain(curve.name)
    key = "accumulate.curves_all_but_more" if but["more"] else "accumulate.curves_all_but"
    return bilingual(key, names=but["names"], count=but["more"] or "")


def _heading(name: str) -> str:
    return name if len(name) <= _LONGEST_HEADING else f"..{name[2 - _LONGEST_HEADING :]}"
