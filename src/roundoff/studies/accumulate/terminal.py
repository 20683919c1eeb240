"""Curves of accumulated error for people: a verdict, the curves in a line each, then the nodes."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import BLOCKS, decibels_with_unit, score_text, text_curve
from roundoff.messages.phrases import count_of, headline, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.pages.terminal import VerdictLine, note_lines, verdict_page
from roundoff.studies.accumulate.result import Accumulation, CurveNode, MeasuredCurve, Split

__all__ = ["accumulation_csv", "accumulation_tables", "accumulation_verdict"]

_LISTED_JUMPS = 3
_LINE_COLUMNS = 26
# Beside the base line; a terminal of 80 columns has no room for more, the CSV has them all.
_SHOWN_CURVES = 3

_STYLES = {"weights": "bold red", "activations": "bold red", "both": "bold yellow", "neither": "bold green"}


def accumulation_verdict(found: Accumulation) -> RenderableType:
    """What a busy person reads: who makes the error, how large it is, where it begins and where it jumps."""
    return verdict_page(_headline(found), (*_splits(found), *_falls(found), *_jumps(found)))


def _headline(found: Accumulation) -> Text:
    verdict, samples = found.verdict, count_of(len(found.samples), "sample")
    if verdict.dominance is None:
        base = found.base_line.sqnr_db
        worst = next((node for node in found.nodes if node.tensor == verdict.output), None)
        if worst is None:
            text = told("accumulation_text.no_score", samples=samples)
            return headline(told("accumulation_text.word_no_score"), "bold red", text)
        key = "accumulation_text.open_exact" if verdict.exact_weights else "accumulation_text.open"
        text = told(key, output=verdict.output, db=decibels_with_unit(base[worst.order]), samples=samples)
        return headline(told("accumulation_text.word_open"), "bold yellow", text)
    word = told(f"accumulation_text.word_{verdict.dominance}")
    text = told(f"accumulation_text.{verdict.dominance}", samples=samples)
    return headline(word, _STYLES[verdict.dominance], text)


def _splits(found: Accumulation) -> Iterator[VerdictLine]:
    verdict = found.verdict
    if verdict.at_output is not None:
        text = told("accumulation_text.said", name=verdict.output, text=_split(verdict.at_output))
        yield told("accumulation_text.output"), text
    if verdict.near_output is not None:
        text = told("accumulation_text.median", split=_split(verdict.near_output), count=verdict.near_places)
        yield told("accumulation_text.before_it"), text
    if verdict.together:
        yield told("accumulation_text.together"), told("accumulation_text.meet")


def _split(split: Split) -> str:
    return told(
        "accumulation_text.split",
        weights=decibels_with_unit(split.weights),
        activations=decibels_with_unit(split.activations),
        everything=decibels_with_unit(split.everything),
    )


def _falls(found: Accumulation) -> Iterator[VerdictLine]:
    verdict = found.verdict
    if verdict.falls_at is None:
        limit = f"{verdict.fall_db:g}"
        yield told("accumulation_text.base_line"), told("accumulation_text.never_falls", limit=limit)
        return
    place = verdict.falls_at
    metric, values = found.metric, found.base_line.values
    gaps = {"limit": f"{verdict.fall_db:g}", "node": _name(found.nodes[place]), "metric": metric}
    gaps["score"] = score_text(metric, values[place])
    if place:
        text = told("accumulation_text.falls_after", before=score_text(metric, values[place - 1]), **gaps)
    else:
        text = told("accumulation_text.falls", **gaps)
    recovers = told("accumulation_text.recover") if verdict.recovers else ""
    yield told("accumulation_text.base_line"), semicolons(text, recovers)


def _jumps(found: Accumulation) -> Iterator[VerdictLine]:
    for index, jump in enumerate(found.verdict.jumps[:_LISTED_JUMPS]):
        before = told("accumulation_text.inputs") if jump.before_db is None else decibels_with_unit(jump.before_db)
        change = f"{before} -> {decibels_with_unit(jump.after_db)}"
        label = "" if index else told("accumulation_text.jumps_at")
        yield label, told("accumulation_text.said", name=_name(found.nodes[jump.order]), text=change)


def _name(node: CurveNode) -> str:
    return f"{node.node} ({node.op_type})"


def accumulation_tables(found: Accumulation, *, most: int | None = None, blocks: str = BLOCKS) -> RenderableType:
    """The curves in a line each, then the nodes where the base line is worst, in execution order.

    Args:
        found: What to show.
        most: Show at most so many nodes, and say how many were left out; all when None.
        blocks: What lines are drawn with; see `roundoff.messages.numbers.text_curve`.
    """
    parts: list[RenderableType] = [_curves(found, blocks), Text("")]
    order = sorted(found.nodes, key=lambda node: _badness(found, node))
    chosen = {node.order for node in order[:most]}
    parts.append(_nodes(found, [node for node in found.nodes if node.order in chosen]))
    left = len(found.nodes) - len(chosen)
    if left:
        parts.append(Text(told("accumulation_text.left", count=left), style="dim"))
    parts += note_lines(found.notes, found.preparation)
    return Group(*parts)


def _badness(found: Accumulation, node: CurveNode) -> float:
    """Smaller is worse."""
    value = found.base_line.sqnr_db[node.order]
    return math.inf if value is None else value


def _curves(found: Accumulation, blocks: str) -> Table:
    table = _table()
    table.add_column(told("accumulation_text.column_curve"), overflow="fold", min_width=8)
    table.add_column(told("accumulation_text.column_on"), justify="right", no_wrap=True)
    table.add_column(told("accumulation_text.column_output"), justify="right", no_wrap=True)
    table.add_column(told("accumulation_text.column_worst"), justify="right", no_wrap=True)
    line = "accumulation_text.column_averages" if found.average else "accumulation_text.column_line"
    table.add_column(told(line, metric=found.metric), no_wrap=True)
    limits = _limits(found)
    output = next((node.order for node in found.nodes if node.tensor == found.verdict.output), None)
    for curve in found.curves:
        values = found.shown(curve)
        line = text_curve(
            values, limits, width=_LINE_COLUMNS, higher_is_better=found.higher_is_better, blocks=blocks
        )
        at_output = "" if output is None else score_text(found.metric, values[output])
        label = Text(curve.name, style="bold" if curve is found.base_line else "")
        cells = (str(len(curve.quantizers)), at_output, score_text(found.metric, _worst(found, curve)))
        table.add_row(label, *cells, Text(line))
    return table


def _limits(found: Accumulation) -> tuple[float, float]:
    known = [value for curve in found.curves for value in found.shown(curve) if value is not None]
    finite = [value for value in known if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)


def _worst(found: Accumulation, curve: MeasuredCurve) -> float | None:
    known = [value for value in found.shown(curve) if value is not None]
    return (min if found.higher_is_better else max)(known, default=None)


def _nodes(found: Accumulation, nodes: Sequence[CurveNode]) -> RenderableType:
    shown = found.curves[: _SHOWN_CURVES + 1]
    table = _table()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column(told("common.node"), overflow="fold", min_width=10)
    table.add_column(told("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=8)
    for curve in shown:
        table.add_column(Text(_heading(curve.name)), justify="right", no_wrap=True)
    for node in nodes:
        values = (score_text(found.metric, found.shown(curve)[node.order]) for curve in shown)
        # A node with several outputs is told apart by what it computes.
        several = sum(each.node == node.node for each in found.nodes) > 1
        name = Text(short_name(node.tensor if several else node.node), style="bold" if node.output else "")
        table.add_row(str(node.order), name, Text(node.op_type), *values)
    more = len(found.curves) - len(shown)
    if not more:
        return table
    return Group(table, Text(told("accumulation_text.more", count=more), style="dim"))


def _heading(name: str) -> str:
    longest = 11
    return name if len(name) <= longest else f"..{name[2 - longest :]}"


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def accumulation_csv(found: Accumulation) -> str:
    """All nodes in execution order, with everything that is known of each curve there."""
    out = io.StringIO()
    writer = csv.writer(out)
    parts = ("value", "average", "sqnr_db", "worst", "worst_sample")
    names = [f"{curve.name} {part}" for curve in found.curves for part in parts]
    writer.writerow(("order", "node", "op_type", "tensor", "output", "metric", *map(safe_cell, names)))
    for node in found.nodes:
        cells: list[object] = [
            node.order,
            safe_cell(node.node),
            safe_cell(node.op_type),
            safe_cell(node.tensor),
            "yes" if node.output else "no",
            found.metric,
        ]
        for curve in found.curves:
            at = node.order
            numbers = (curve.values[at], curve.averages[at], curve.sqnr_db[at], curve.worst[at])
            cells += ["" if number is None else repr(number) for number in numbers]
            cells.append(safe_cell(curve.worst_samples[at]))
        writer.writerow(cells)
    return out.getvalue()
