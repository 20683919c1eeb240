"""A sweep of partial quantization for people: where it is good enough, then a line for each step."""

import csv
import io
import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.harmless import short_name
from roundoff.core.partial import PartialQuantization, PartialStep
from roundoff.core.wording import counted
from roundoff.report.cells import safe_cell
from roundoff.report.notes import note_lines
from roundoff.report.score_text import score_text, share_text
from roundoff.report.verdict import VerdictLine, verdict_page

__all__ = ["partial_csv", "partial_table", "partial_verdict"]

_LISTED = 8
_CHANGES = {"float": "in float", "s16": "at 16 bits (s16)", "u16": "at 16 bits (u16)"}
_HEADINGS = {"sqnr_db": "sqnr dB", "same_top1": "same top-1"}


def partial_verdict(found: PartialQuantization) -> RenderableType:
    """What a busy person reads: how many nodes it takes, which, and what more would bring."""
    return verdict_page(_headline(found), _lines(found))


def _headline(found: PartialQuantization) -> Text:
    goal = f"the goal of {_goal(found)}"
    tried = found.steps[-1].count
    changed = _CHANGES[found.to]
    if found.knee == 0 and found.exact_weights and _against_float(found):
        but = "but the weights of this float are quantized: give FLOAT"
        return Text("OPEN", style="bold yellow") + Text(f": fully quantized it reaches {goal}, {but}")
    if found.knee == 0:
        return Text("NOTHING TO DO", style="bold green") + Text(f": fully quantized it reaches {goal}")
    if found.knee is not None:
        word = Text(f"TOP {found.knee}", style="bold green")
        return word + Text(f" {changed} {'reaches' if found.knee == 1 else 'reach'} {goal}")
    return Text("NOT REACHED", style="bold red") + Text(f": with up to {tried} {changed} none reaches {goal}")


def _against_float(found: PartialQuantization) -> bool:
    """Whether the goal means nothing without the true float network."""
    return found.goal.text.endswith("%") or found.score in {"cosine", "sqnr_db", "same_top1"}


def _goal(found: PartialQuantization) -> str:
    value = _named(found.score, found.goal.value)
    return f"{found.goal.text} of float, {value}" if found.goal.text.endswith("%") else value


def _named(name: str, value: float) -> str:
    """A score with its name, as in a sentence."""
    return f"sqnr {value:.1f} dB" if name == "sqnr_db" else f"{_heading(name)} {score_text(name, value)}"


def _lines(found: PartialQuantization) -> Iterator[VerdictLine]:
    first = found.steps[0]
    known = math.isfinite(found.float_score) and found.float_score != 1
    float_score = f"; float {score_text(found.score, found.float_score)}" if known else ""
    yield "quantized", f"{_score(found, first)}{float_score}; {counted(found.samples, 'sample')}"
    if found.knee:
        yield f"top {found.knee}", _score(found, found.steps[found.knee])
    if found.chosen:
        more = len(found.chosen) - _LISTED
        names = ", ".join(found.chosen[:_LISTED]) + (f" and {more} more" if more > 0 else "")
        yield "these are" if found.knee else "best are", names
    yield "levels off", _levels_off(found)
    if found.drops:
        worst = max(found.drops, key=lambda count: _loss(found, count))
        loss = _loss(found, worst)
        by = f"{100 * loss:.2g} %" if found.score == "accuracy" else f"{loss:.2g}"
        yield "not steady", f"{counted(len(found.drops), 'step')} down, the largest by {by} at {worst}"
    else:
        yield "steady", "no step makes it worse"
    yield "order", found.ranking
    if found.knee is None:
        yield "next", _next(found)


def _next(found: PartialQuantization) -> str:
    """What to try when nothing reaches the goal."""
    more = "--top all tries the rest; " if found.steps[-1].count < len(found.subjects) else ""
    other = "16 bits (--to s16), " if found.to == "float" else ""
    return f"{more}where it takes many, {other}another calibration or target serves better"


def _loss(found: PartialQuantization, count: int) -> float:
    change = found.steps[count - 1].score - found.steps[count].score
    return change if found.higher_is_better else -change


def _levels_off(found: PartialQuantization) -> str:
    if found.levels_off is None:
        return "nothing is gained by any of them"
    step, last = found.steps[found.levels_off], found.steps[-1].count
    if found.levels_off == last:
        return f"not before {last}, the last that was tried"
    return f"at {step.count}, {_named(found.score, step.score)}: 95% of what any of {last} bring"


def _score(found: PartialQuantization, step: PartialStep) -> str:
    text = _named(found.score, step.score)
    return text if step.share is None or found.float_score == 1 else f"{text} ({share_text(step.share)} of float)"


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name)


def partial_table(found: PartialQuantization) -> RenderableType:
    """One line per step; the knee is marked."""
    others = [name for name in found.steps[0].scores if all(name in step.scores for step in found.steps)]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("top", justify="right", no_wrap=True)
    table.add_column("added", overflow="fold", min_width=12)
    table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=8)
    table.add_column(Text(_heading(found.score)), justify="right", no_wrap=True)
    compared = found.float_score != 1 and found.steps[0].share is not None
    if compared:
        table.add_column("of float", justify="right", no_wrap=True)
    for name in others:
        table.add_column(Text(_heading(name)), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for step in found.steps:
        mark = "<- goal" if step.count == found.knee else ""
        shares = [share_text(step.share)] if compared and step.share is not None else []
        table.add_row(
            str(step.count),
            Text(short_name(step.subject) or "(all quantized)"),
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
