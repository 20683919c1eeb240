"""Transforms and corrections for people: what they brought, who took part, what was left alone."""

import csv
import io
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.transform_report import StepReport, TransformReport, TransformScore
from roundoff.core.wording import counted
from roundoff.report.cells import safe_cell
from roundoff.report.quantization import agreement_line
from roundoff.report.score_text import score_text
from roundoff.report.verdict import VerdictLine, verdict_page

__all__ = ["transform_csv", "transform_table", "transform_verdict"]


def transform_verdict(found: TransformReport, *, written: str = "") -> RenderableType:
    """What a busy person reads: whether it helped, by how much, and what it rests on.

    Args:
        found: What was found.
        written: The file to look into next; empty for none.
    """
    return verdict_page(_headline(found), _lines(found, written))


def _headline(found: TransformReport) -> Text:
    # What was only added to make room is not worth a word when there was room already.
    names = ", ".join(step.name for step in found.steps if step.taken or step.name != "explicit_bias")
    before, after = found.sqnr_db
    if not found.changed:
        return Text("NOTHING TO DO", style="bold yellow") + Text(f": {names} changed nothing")
    # As many digits as it takes to see which one is better.
    differing = (count for count in (1, 2, 3) if f"{before:.{count}f}" != f"{after:.{count}f}")
    digits = next(differing, 1)
    gain = f"sqnr {before:.{digits}f} -> {after:.{digits}f} dB"
    if found.score is not None:
        gain = f"{_score(found.score)}, {gain}"
    if found.kept:
        return Text("KEPT", style="bold green") + Text(f": {names}: {gain}")
    return Text("UNDONE", style="bold red") + Text(f": {names} made the quantized model worse: {gain}")


def _score(score: TransformScore) -> str:
    values = [score_text(score.name, value) for value in (score.before, score.after, score.reference)]
    return f"{score.name} {values[0]} -> {values[1]} (float {values[2]})"


def _lines(found: TransformReport, written: str) -> Iterator[VerdictLine]:
    for word, agreements in (("before", found.before), ("after", found.after)):
        for index, agreement in enumerate(agreements):
            yield ("" if index else word), agreement_line(agreement)
    origin = "which nothing else was decided on" if found.unseen else "the ones that were calibrated on"
    yield "judged", f"on {counted(found.samples, 'sample')}, {origin}; {found.target}, {found.method}"
    for step in found.steps:
        if step.taken or step.name != "explicit_bias":
            yield step.name, _who(step)
    if written:
        yield "next", f"roundoff layers --quantized {written} with the same --data shows what is left"


def _who(step: StepReport) -> str:
    options = ", ".join(f"{name}={value}" for name, value in step.options.items())
    return f"{counted(len(step.taken), 'node')} took part" + (f" ({options})" if options else "")


def transform_table(found: TransformReport, *, rows: int | None) -> RenderableType:
    """Who took part in what, and the notes.

    Args:
        found: What was found.
        rows: Nodes to show of each step; all when None.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("step", no_wrap=True)
    table.add_column("node", overflow="fold")
    table.add_column("what was done", overflow="fold")
    for step in found.steps:
        shown = step.taken if rows is None else step.taken[:rows]
        for place, each in enumerate(shown):
            table.add_row("" if place else step.name, Text(each.node), Text(each.text))
        if len(step.taken) > len(shown):
            more = len(step.taken) - len(shown)
            table.add_row("", Text(f"... and {more} more, all in transform.csv", style="dim"), "")
    notes = [note for step in found.steps for note in step.notes] + list(found.notes)
    lines = [Text(f"note: {note}", style="dim") for note in notes]
    return Group(*([table] if found.changed else []), *lines)


def transform_csv(found: TransformReport) -> str:
    """Every node of every step."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("step", "kind", "node", "role", "what"))
    for step in found.steps:
        for each in step.taken:
            writer.writerow((step.name, step.kind, safe_cell(each.node), each.role, safe_cell(each.text)))
    return out.getvalue()
