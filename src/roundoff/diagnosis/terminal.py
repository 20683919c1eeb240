"""A diagnosis for people: a verdict of at most one screen, and a table of what was found."""

import csv
import io
import math
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.diagnosis.result import Check, Diagnosis, Finding, Measure, Repair, RepairStep
from roundoff.messages.catalogue import named, spoken, told
from roundoff.messages.message import shown, verbatim
from roundoff.messages.numbers import EXACT_DB, score_text, share_text
from roundoff.messages.phrases import cause_name, commas, cost_name, count_of, few, headline, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.pages.coverage import coverage_lines
from roundoff.pages.terminal import VerdictLine, verdict_lines, verdict_page

__all__ = [
    "check_line",
    "diagnosis_verdict",
    "findings_csv",
    "measure_text",
    "next_lines",
    "repair_line",
    "repair_table",
]

_STYLES = {
    "healthy": "bold green",
    "culprits": "bold red",
    "distributed": "bold red",
    "elsewhere": "bold yellow",
    "not_enough_evidence": "bold yellow",
}
# Findings are told in full while lines are left on a screen of 24, less those of loss, victims and what is next.
_LINES, _COLUMNS, _IN_SHORT = 16, 68, 6
_SUSPECTED, _NAMED, _PLACES = 2, 4, 4
# Names in sentences are cut to this many characters, with both ends kept.
_LONGEST, _START = 40, 16
# Less is not told apart: NaN, infinite, or beyond all measure.
_FEWEST_DB = -60.0


def diagnosis_verdict(found: Diagnosis) -> RenderableType:
    """What a busy person reads: the verdict, who makes the loss and why, the proof, and what to do."""
    side = "_device" if found.kind == "elsewhere" and found.side == "device" else ""
    word = told(f"diagnosis_text.word_{found.kind}{side}")
    text = told("diagnosis_text.headline", text=shown(found.verdict))
    parts = (_outputs, _loss, _findings, _suspected, _victims, _limits, _next)
    return verdict_page(
        headline(word, _STYLES[found.kind], text), (line for part in parts for line in part(found))
    )


def next_lines(found: Diagnosis) -> RenderableType:
    """What to type next, where the verdict was told before the repair."""
    return verdict_lines(_next(found))


def check_line(check: Check) -> str:
    """One check, as it is told while others are under way."""
    name, result = shown(check.name), shown(check.result)
    return told("diagnosis_text.check", name=name, result=result, seconds=f"{check.seconds:.1f}")


def measure_text(measure: Measure) -> str:
    """A number before and after, with its unit: ``SQNR of 'logits' 2.2 -> 24.1 dB``."""
    before, after = _number(measure.before, measure), _number(measure.after, measure)
    if measure.unit == "dB" and measure.after >= EXACT_DB:
        return f"{shown(measure.what)} {before} {measure.unit} -> {after}"
    unit = f" {measure.unit}" if measure.unit else ""
    return f"{shown(measure.what)} {before} -> {after}{unit}"


def _number(value: float, measure: Measure) -> str:
    if measure.unit == "dB" and value >= EXACT_DB:
        return told("common.exact")
    if not math.isfinite(value):
        return str(value)
    if measure.unit == "dB":
        return f"{value:.1f}" if value > _FEWEST_DB else told("diagnosis_text.under", limit=f"{_FEWEST_DB:.0f}")
    return share_text(value, 1) if measure.of_top1 else score_text("", value)


def _outputs(found: Diagnosis) -> Iterator[VerdictLine]:
    yield from coverage_lines(found.outputs, other="dump")


def _loss(found: Diagnosis) -> Iterator[VerdictLine]:
    parts: dict[int, list[str]] = {}
    for measure in found.measures:
        exact = measure.unit == "dB" and measure.before >= EXACT_DB
        unit = f" {measure.unit}" if measure.unit and not exact else ""
        text = f"{shown(measure.what)} {_number(measure.before, measure)}{unit}"
        value = _number(measure.after, measure)
        if measure.unit == "dB" and measure.after < measure.before:
            text = told("diagnosis_text.as_expected", text=text)
        elif measure.unit == "dB":
            text = told("diagnosis_text.expected", text=text, value=value)
        elif measure.of_task:
            text = told("diagnosis_text.in_float", text=text, value=value)
        parts.setdefault(measure.samples or found.samples, []).append(text)
    if len(parts) == 1:
        [(samples, texts)] = parts.items()
        yield told("diagnosis_text.loss"), semicolons(commas(*texts), count_of(samples, "sample"))
    elif parts:
        groups = [
            told("diagnosis_text.measured_on", text=commas(*texts), samples=count_of(samples, "sample"))
            for samples, texts in parts.items()
        ]
        yield told("diagnosis_text.loss"), semicolons(*groups)


def _findings(found: Diagnosis) -> Iterator[VerdictLine]:
    proven = [each for each in found.findings if each.proven]
    left, whole = _LINES, 0
    for finding in proven:
        lines = list(_in_full(finding, found))
        left -= sum(-(-cell_len(text) // _COLUMNS) for _, text in lines)
        if left < 0 and whole:
            break
        whole += 1
        yield from lines
    short = proven[whole : whole + _IN_SHORT]
    for finding in short:
        text = _said(_where(finding), cause_name(finding.cause))
        yield str(finding.number), _said(text, measure_text(finding.measures[0])) if finding.measures else text
    more = len(proven) - whole - _IN_SHORT
    if more > 0:
        yield "", told("diagnosis_text.more_findings", count=more)
    elif short:
        numbers = ", ".join(str(each.number) for each in short)
        yield "", told("diagnosis_text.short_findings", numbers=numbers)


def _in_full(finding: Finding, found: Diagnosis) -> Iterator[VerdictLine]:
    """Where, why, the proof and what to do."""
    yield str(finding.number), _said(_where(finding), cause_name(finding.cause))
    meaning = None if spoken() == "en" else named(f"causes.meaning_{finding.cause}")
    if meaning is not None and shown(finding.summary) == str(finding.summary):
        # What is not known in this language is told in general before.
        yield "", meaning.within(spoken())
    yield "", _cut(shown(finding.summary), finding)
    others = finding.accused_nodes[1:]
    if others:
        names = few([short_name(name) for name in others], _PLACES)
        yield (
            told("diagnosis_text.also"),
            told("diagnosis_text.places", names=names) if len(others) > _PLACES else names,
        )
    if finding.measures:
        proof = measure_text(finding.measures[0])
        if finding.intervention:
            proof = _said(shown(finding.intervention), proof)
        yield told("diagnosis_text.proof"), _cut(_than_above(proof, finding, found), finding)
    if finding.remedy is not None:
        title, cost = shown(finding.remedy.title), cost_name(finding.remedy.cost)
        yield told("diagnosis_text.remedy"), _cut(told("diagnosis_text.priced", title=title, cost=cost), finding)


def _said(name: str, text: str) -> str:
    return told("diagnosis_text.said", name=name, text=text)


def _than_above(text: str, finding: Finding, found: Diagnosis) -> str:
    """A proof, and why the number before it is not the one in the line on the loss, where it is not."""
    ours, whole = finding.measures[0], found.measures[:1]
    if not whole or ours.what != whole[0].what or _number(ours.before, ours) == _number(whole[0].before, ours):
        return text
    if ours.samples != whole[0].samples:
        return told("diagnosis_text.on_samples", text=text, samples=count_of(ours.samples, "sample"))
    return told("diagnosis_text.others_right", text=text) if len(found.accused) > 1 else text


def _cut(text: str, finding: Finding) -> str:
    """A sentence with long names of nodes and tensors cut in their middle."""
    names = sorted({*finding.nodes, *finding.tensors}, key=len, reverse=True)
    for name in names:
        if len(name) > _LONGEST:
            text = text.replace(name, f"{name[:_START]}...{name[_START + 3 - _LONGEST :]}")
    return text


def _where(finding: Finding) -> str:
    names = finding.nodes[:1] or finding.tensors[:1]
    name = short_name(names[0]) if names else told("diagnosis_text.whole_network")
    return told("diagnosis_text.share", name=name, share=share_text(finding.share, 0)) if finding.share else name


def _suspected(found: Diagnosis) -> Iterator[VerdictLine]:
    open_ones = [each for each in found.findings if not each.proven]
    for index, finding in enumerate(open_ones[:_SUSPECTED]):
        text = told("diagnosis_text.not_proven", cause=cause_name(finding.cause), summary=shown(finding.summary))
        if finding.measures:
            text = told("diagnosis_text.changed", text=text, change=measure_text(finding.measures[0]))
        yield "" if index else told("diagnosis_text.suspected"), text


def _victims(found: Diagnosis) -> Iterator[VerdictLine]:
    if found.victims:
        names = few([short_name(name) for name in found.victims], _NAMED)
        yield told("diagnosis_text.victims"), told("diagnosis_text.wrong_inputs", names=names)


def _limits(found: Diagnosis) -> Iterator[VerdictLine]:
    for index, text in enumerate(found.not_looked_at):
        yield "" if index else told("diagnosis_text.not_seen"), shown(text)


def _next(found: Diagnosis) -> Iterator[VerdictLine]:
    for index, command in enumerate(found.next_steps):
        yield "" if index else told("diagnosis_text.next"), command


def repair_line(found: Diagnosis) -> Text:
    """What came of the repair, in a line: ``REPAIRED: words read 0.0104 -> 0.9896 (1 in float)``."""
    repair = found.repair
    if repair is None or not repair.measures:
        return Text("")
    measure = repair.measures[0]
    text = measure_text(measure)
    goal = next((_number(each.after, each) for each in found.measures if each.what == measure.what), None)
    if goal is not None:
        text = told("diagnosis_text.in_float", text=text, value=goal)
    word, style = ("repaired", "bold green") if repair.reached else ("better", "bold yellow")
    if not measure.improved:
        word, style = "not_repaired", "bold red"
    return headline(told(f"diagnosis_text.{word}"), style, told("diagnosis_text.headline", text=text))


def repair_table(repair: Repair) -> RenderableType:
    """What was tried to repair it, step by step."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("for", "step", "cost", "before", "after"):
        heading = told(f"diagnosis_text.column_{title}")
        table.add_column(heading, overflow="fold", no_wrap=title != "step")
    table.add_column("", overflow="fold")
    for step in repair.steps:
        measure = step.measure
        table.add_row(
            str(step.finding or ""),
            Text(shown(step.title)),
            cost_name(step.cost),
            _number(measure.before, measure),
            _number(measure.after, measure),
            Text(_kept(step)),
        )
    if not any(step.kept for step in repair.steps):
        return table
    return Group(table, Text(told("diagnosis_text.same_samples"), style="dim"))


def _kept(step: RepairStep) -> str:
    if step.kept:
        return told("diagnosis_text.kept")
    return shown(step.why) if step.why else ""


def findings_csv(found: Diagnosis) -> str:
    """All findings as CSV, one row for each measure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["number", "proven", "cause", "node", "tensor", "share", "measure", "unit", "before", "after", "samples",
         "intervention", "remedy", "cost", "summary"]
    )  # fmt: skip
    for each in found.findings:
        remedy = ("", "") if each.remedy is None else (safe_cell(str(each.remedy.title)), each.remedy.cost)
        intervention = "" if each.intervention is None else safe_cell(str(each.intervention))
        place = [safe_cell(" ".join(each.nodes)), safe_cell(" ".join(each.tensors))]
        for measure in each.measures or (Measure(verbatim(""), "", math.nan, math.nan),):
            what = safe_cell(str(measure.what))
            numbers = [what, measure.unit, repr(measure.before), repr(measure.after), measure.samples]
            row = [each.number, each.proven, each.cause, *place, f"{each.share:.4f}", *numbers]
            writer.writerow([*row, intervention, *remedy, safe_cell(str(each.summary))])
    return text.getvalue()
