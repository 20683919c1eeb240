"""A sweep of partial quantization for people: where it is good enough, then a line for each step."""

import csv
import io
import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.measure.metrics import is_metric
from roundoff.messages.catalogue import told
from roundoff.messages.numbers import named_score, score_heading, score_text, share_text
from roundoff.messages.phrases import count_of, few, headline, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import VerdictLine, note_lines, verdict_page
from roundoff.studies.partial.result import PartialQuantization, PartialStep
from roundoff.studies.partial.settings import SAME_TOP1

__all__ = ["partial_csv", "partial_table", "partial_verdict"]

_LISTED = 8
_CHANGES = {"float": "to_float", "s16": "to_s_bits", "u16": "to_u_bits"}


def partial_verdict(found: PartialQuantization) -> RenderableType:
    """What a busy person reads: how many nodes it takes, which, and what more would bring."""
    return verdict_page(_headline(found), _lines(found))


def _headline(found: PartialQuantization) -> Text:
    goal, changed = _goal(found), told(f"partial_text.{_CHANGES[found.to]}")
    if found.knee == 0 and found.exact_weights and _against_float(found):
        return headline(told("partial_text.word_open"), "bold yellow", told("partial_text.open", goal=goal))
    if found.knee == 0:
        return headline(told("partial_text.word_nothing"), "bold green", told("partial_text.nothing", goal=goal))
    if found.knee is not None:
        text = told("partial_text.top", changed=changed, count=found.knee, goal=goal)
        return headline(told("partial_text.word_top", count=found.knee), "bold green", text)
    text = told("partial_text.missed", count=found.steps[-1].count, changed=changed, goal=goal)
    return headline(told("partial_text.word_missed"), "bold red", text)


def _against_float(found: PartialQuantization) -> bool:
    """Whether the goal means nothing without the true float network."""
    return found.goal.text.endswith("%") or found.score == SAME_TOP1 or is_metric(found.score)


def _goal(found: PartialQuantization) -> str:
    value = named_score(found.score, found.goal.value)
    if not found.goal.text.endswith("%"):
        return value
    return told("partial_text.goal", share=found.goal.text, value=value)


def _lines(found: PartialQuantization) -> Iterator[VerdictLine]:
    first = found.steps[0]
    known = math.isfinite(found.float_score) and found.float_score != 1
    float_score = told("partial_text.float", score=score_text(found.score, found.float_score)) if known else ""
    samples = count_of(found.samples, "sample")
    yield told("partial_text.quantized"), semicolons(_score(found, first), float_score, samples)
    if found.knee:
        yield told("partial_text.label_top", count=found.knee), _score(found, found.steps[found.knee])
    if found.chosen:
        label = told("partial_text.these_are") if found.knee else told("partial_text.best_are")
        yield label, few(found.chosen, _LISTED)
    yield told("partial_text.levels_off"), _levels_off(found)
    if found.drops:
        worst = max(found.drops, key=lambda count: _loss(found, count))
        loss = _loss(found, worst)
        by = f"{100 * loss:.2g} %" if found.score == "accuracy" else f"{loss:.2g}"
        text = told("partial_text.drops", count=len(found.drops), loss=by, worst=worst)
        yield told("partial_text.not_steady"), text
    else:
        yield told("partial_text.steady"), told("partial_text.no_drops")
    yield told("partial_text.order"), sentence(found.ranking)
    if found.knee is None:
        yield told("partial_text.next"), _next(found)


def _next(found: PartialQuantization) -> str:
    """What to try when nothing reaches the goal."""
    more = told("partial_text.next_more") if found.steps[-1].count < len(found.subjects) else ""
    other = told("partial_text.next_bits") if found.to == "float" else told("partial_text.next_other")
    return semicolons(more, other)


def _loss(found: PartialQuantization, count: int) -> float:
    change = found.steps[count - 1].score - found.steps[count].score
    return change if found.higher_is_better else -change


def _levels_off(found: PartialQuantization) -> str:
    if found.levels_off is None:
        return told("partial_text.nothing_gained")
    step, last = found.steps[found.levels_off], found.steps[-1].count
    if found.levels_off == last:
        return told("partial_text.not_before", count=last)
    return told("partial_text.off_at", count=step.count, score=named_score(found.score, step.score), last=last)


def _score(found: PartialQuantization, step: PartialStep) -> str:
    text = named_score(found.score, step.score)
    if step.share is None or found.float_score == 1:
        return text
    return told("partial_text.of_float", score=text, share=share_text(step.share))


def partial_table(found: PartialQuantization) -> RenderableType:
    """One line per step; the knee is marked."""
    others = [name for name in found.steps[0].scores if all(name in step.scores for step in found.steps)]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("partial_text.column_top"), justify="right", no_wrap=True)
    table.add_column(told("partial_text.column_added"), overflow="fold", min_width=12)
    table.add_column(told("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=8)
    table.add_column(Text(score_heading(found.score)), justify="right", no_wrap=True)
    compared = found.float_score != 1 and found.steps[0].share is not None
    if compared:
        table.add_column(told("partial_text.column_share"), justify="right", no_wrap=True)
    for name in others:
        table.add_column(Text(score_heading(name)), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for step in found.steps:
        mark = told("partial_text.mark") if step.count == found.knee else ""
        shares = [share_text(step.share)] if compared and step.share is not None else []
        table.add_row(
            str(step.count),
            Text(short_name(step.subject) or told("partial_text.all_quantized")),
            Text(step.op_type),
            score_text(found.score, step.score),
            *shares,
            *(score_text(name, step.scores[name]) for name in others),
            Text(mark, style="green"),
        )
    return Group(table, *note_lines(found.notes, found.preparation))


def partial_csv(found: PartialQuantization) -> str:
    """All steps with all scores."""
    out = io.StringIO()
    writer = csv.writer(out)
    others = list(dict.fromkeys(name for step in found.steps for name in step.scores))
    names = [safe_cell(name) for name in (found.score, *others)]
    writer.writerow(
        ("count", "subject", "op_type", names[0], "of_float", *names[1:], "reaches_goal", "quantizers")
    )
    for step in found.steps:
        good = step.score >= found.goal.value if found.higher_is_better else step.score <= found.goal.value
        writer.writerow(
            (
                step.count,
                safe_cell(step.subject),
                safe_cell(step.op_type),
                repr(step.score),
                "" if step.share is None else repr(step.share),
                *("" if name not in step.scores else repr(step.scores[name]) for name in others),
                "yes" if good else "no",
                safe_cell(" ".join(step.quantizers)),
            )
        )
    return out.getvalue()
