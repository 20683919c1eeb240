"""Transforms and corrections for people: what they brought, who took part, what was left alone."""

import csv
import io
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import score_text
from roundoff.messages.phrases import commas, count_of, headline
from roundoff.messages.sanitize import safe_cell
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import VerdictLine, note_lines, verdict_page
from roundoff.quantize.step_report import StepReport, TransformReport, TransformScore
from roundoff.quantize.terminal import agreement_line

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
        text = told("transform_text.nothing", names=names)
        return headline(told("transform_text.word_nothing"), "bold yellow", text)
    # As many digits as it takes to see which one is better.
    differing = (count for count in (1, 2, 3) if f"{before:.{count}f}" != f"{after:.{count}f}")
    digits = next(differing, 1)
    gain = f"sqnr {before:.{digits}f} -> {after:.{digits}f} dB"
    gain = commas("" if found.score is None else _score(found.score), gain)
    if found.kept:
        text = told("transform_text.kept", names=names, gain=gain)
        return headline(told("transform_text.word_kept"), "bold green", text)
    text = told("transform_text.undone", names=names, gain=gain)
    return headline(told("transform_text.word_undone"), "bold red", text)


def _score(score: TransformScore) -> str:
    before, after, reference = (
        score_text(score.name, value) for value in (score.before, score.after, score.reference)
    )
    return told("transform_text.score", name=score.name, before=before, after=after, reference=reference)


def _lines(found: TransformReport, written: str) -> Iterator[VerdictLine]:
    for word, agreements in (("before", found.before), ("after", found.after)):
        for index, agreement in enumerate(agreements):
            yield ("" if index else told(f"transform_text.{word}")), agreement_line(agreement)
    origin = "transform_text.on_unseen" if found.unseen else "transform_text.on_calibrated"
    samples = count_of(found.samples, "sample")
    judged = told(origin, samples=samples, target=found.target, method=found.method)
    yield told("transform_text.judged"), judged
    for step in found.steps:
        if step.taken or step.name != "explicit_bias":
            yield step.name, _who(step)
    if written:
        yield told("transform_text.next"), told("transform_text.left", file=written)


def _who(step: StepReport) -> str:
    options = ", ".join(f"{name}={value}" for name, value in step.options.items())
    text = told("transform_text.took_part", count=len(step.taken))
    return told("transform_text.options", text=text, options=options) if options else text


def transform_table(found: TransformReport, *, rows: int | None) -> RenderableType:
    """Who took part in what, and the notes.

    Args:
        found: What was found.
        rows: Nodes to show of each step; all when None.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("transform.step"), no_wrap=True)
    table.add_column(told("common.node"), overflow="fold")
    table.add_column(told("transform.done"), overflow="fold")
    for step in found.steps:
        shown = step.taken if rows is None else step.taken[:rows]
        for place, each in enumerate(shown):
            table.add_row("" if place else step.name, Text(each.node), Text(sentence(each.text)))
        if len(step.taken) > len(shown):
            more = len(step.taken) - len(shown)
            table.add_row("", Text(told("transform_text.more", count=more), style="dim"), "")
    notes = [note for step in found.steps for note in step.notes] + list(found.notes)
    return Group(*([table] if found.changed else []), *note_lines(notes))


def transform_csv(found: TransformReport) -> str:
    """Every node of every step."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("step", "kind", "node", "role", "what"))
    for step in found.steps:
        for each in step.taken:
            writer.writerow((step.name, step.kind, safe_cell(each.node), each.role, safe_cell(each.text)))
    return out.getvalue()
