"""Curves of accumulated error for people: a verdict, the curves in a line each, then the nodes."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.accumulation import Accumulation, CurveNode, MeasuredCurve, Split
from roundoff.core.harmless import short_name
from roundoff.core.wording import counted
from roundoff.report.cells import safe_cell
from roundoff.report.notes import note_lines
from roundoff.report.score_text import BLOCKS, score_text, text_curve
from roundoff.report.verdict import VerdictLine, verdict_page

__all__ = ["accumulation_csv", "accumulation_tables", "accumulation_verdict"]

_LISTED_JUMPS = 3
_LINE_COLUMNS = 26
# Beside the base line; a terminal of 80 columns has no room for more, the CSV has them all.
_SHOWN_CURVES = 3

_OPEN_EXACT = (
    "the float weights are the values of their codes, so that what quantizing them cost cannot be seen: give FLOAT"
)
_HEADLINES = {
    "weights": ("WEIGHTS", "bold red", " dominate"),
    "activations": ("ACTIVATIONS", "bold red", " dominate"),
    "both": ("BOTH", "bold yellow", " weights and activations matter"),
    "neither": ("NEITHER", "bold green", " weights nor activations lose anything"),
}


def accumulation_verdict(found: Accumulation) -> RenderableType:
    """What a busy person reads: who makes the error, how large it is, where it begins and where it jumps."""
    return verdict_page(_headline(found), (*_splits(found), *_falls(found), *_jumps(found)))


def _headline(found: Accumulation) -> Text:
    verdict, samples = found.verdict, counted(len(found.samples), "sample")
    if verdict.dominance is None:
        base = found.base_line.sqnr_db
        worst = next((node for node in found.nodes if node.tensor == verdict.output), None)
        if worst is None:
            text = f": no output holds anything that can be compared ({samples})"
            return Text("NO SCORE", style="bold red") + Text(text)
        text = f": at {verdict.output} {_db(base[worst.order])} with everything quantized ({samples}); "
        text += _OPEN_EXACT if verdict.exact_weights else "--only weight activation tells whose it is"
        return Text("OPEN", style="bold yellow") + Text(text)
    word, style, says = _HEADLINES[verdict.dominance]
    return Text(word, style=style) + Text(f"{says} ({samples})")


def _splits(found: Accumulation) -> Iterator[VerdictLine]:
    verdict = found.verdict
    if verdict.at_output is not None:
        yield "output", f"{verdict.output}: {_split(verdict.at_output)}"
    if verdict.near_output is not None:
        places = counted(verdict.near_places, "node")
        yield "before it", f"{_split(verdict.near_output)} (median of the last {places})"
    if verdict.together:
        yield "together", "they lose much more than both alone: their errors meet somewhere"


def _split(split: Split) -> str:
    parts = (("weights", split.weights), ("activations", split.activations), ("everything", split.everything))
    return ", ".join(f"{name} {_db(value)}" for name, value in parts)


def _falls(found: Accumulation) -> Iterator[VerdictLine]:
    verdict = found.verdict
    if verdict.falls_at is None:
        yield "base line", f"never falls below {verdict.fall_db:g} dB"
        return
    place = verdict.falls_at
    metric, values = found.metric, found.base_line.values
    text = f"falls below {verdict.fall_db:g} dB at {_name(found.nodes[place])}, "
    text += f"{metric} {score_text(metric, values[place])}"
    if place:
        text += f" after {score_text(metric, values[place - 1])} at the node before"
    yield "base line", text + ("; the outputs recover" if verdict.recovers else "")


def _jumps(found: Accumulation) -> Iterator[VerdictLine]:
    for index, jump in enumerate(found.verdict.jumps[:_LISTED_JUMPS]):
        before = "the inputs" if jump.before_db is None else _db(jump.before_db)
        yield "" if index else "jumps at", f"{_name(found.nodes[jump.order])}: {before} -> {_db(jump.after_db)}"


def _name(node: CurveNode) -> str:
    return f"{node.node} ({node.op_type})"


def _db(value: float | None) -> str:
    return "no score" if value is None else f"{value:.1f} dB"


def accumulation_tables(found: Accumulation, *, most: int | None = None, blocks: str = BLOCKS) -> RenderableType:
    """The curves in a line each, then the nodes where the base line is worst, in execution order.

    Args:
        found: What to show.
        most: Show at most so many nodes, and say how many were left out; all when None.
        blocks: What lines are drawn with; see `roundoff.report.score_text.text_curve`.
    """
    parts: list[RenderableType] = [_curves(found, blocks), Text("")]
    order = sorted(found.nodes, key=lambda node: _badness(found, node))
    chosen = {node.order for node in order[:most]}
    parts.append(_nodes(found, [node for node in found.nodes if node.order in chosen]))
    left = len(found.nodes) - len(chosen)
    if left:
        text = f"{counted(left, 'node')} where the base line is better are left out; --top all shows them"
        parts.append(Text(text, style="dim"))
    parts += note_lines(found.notes, found.preparation)
    return Group(*parts)


def _badness(found: Accumulation, node: CurveNode) -> float:
    """Smaller is worse."""
    value = found.base_line.sqnr_db[node.order]
    return math.inf if value is None else value


def _curves(found: Accumulation, blocks: str) -> Table:
    table = _table()
    table.add_column("curve", overflow="fold", min_width=8)
    table.add_column("on", justify="right", no_wrap=True)
    table.add_column("at output", justify="right", no_wrap=True)
    table.add_column("worst", justify="right", no_wrap=True)
    average = ", averages" if found.average else ""
    table.add_column(f"{found.metric}{average}, along the network", no_wrap=True)
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
    table.add_column("node", overflow="fold", min_width=10)
    table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=8)
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
    return Group(table, Text(f"{counted(more, 'more curve')} in --csv and --json", style="dim"))


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
