"""A diagnosis for people: a verdict of at most one screen, and a table of what was found."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.findings import Diagnosis, Finding, Measure, Repair
from roundoff.core.harmless import short_name
from roundoff.core.wording import counted

__all__ = ["check_line", "diagnosis_verdict", "findings_csv", "measure_text", "repair_line", "repair_table"]

_WORDS = {
    "healthy": ("HEALTHY", "bold green"),
    "culprits": ("CULPRITS", "bold red"),
    "distributed": ("DISTRIBUTED", "bold red"),
    "elsewhere": ("ELSEWHERE", "bold yellow"),
    "not_enough_evidence": ("NOT ENOUGH EVIDENCE", "bold yellow"),
}
# Findings are told in full while lines are left on a screen of 24, less those of loss, victims and what is next.
_LINES, _COLUMNS, _IN_SHORT = 16, 68, 6
_SUSPECTED, _NAMED = 2, 4
# Names in sentences are cut to this many characters, with both ends kept.
_LONGEST, _START = 40, 16
# Outputs that are better than expected by this much are told to be as expected.
_CLEARLY_DB = 0.1
# Less is not told apart: NaN, infinite, or beyond all measure.
_FEWEST_DB = -60.0
_Line = tuple[str, str]


def diagnosis_verdict(found: Diagnosis) -> RenderableType:
    """What a busy person reads: the verdict, who makes the loss and why, the proof, and what to do."""
    word, style = _WORDS[found.kind]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for part in (_loss, _findings, _suspected, _victims, _limits, _next):
        for label, text in part(found):
            grid.add_row(f"  {label}", Text(text))
    return Group(Text(word, style=style) + Text(f": {found.verdict}"), grid)


def check_line(name: str, result: str, seconds: float) -> str:
    """One check, as it is told while others are under way."""
    return f"{name}: {result} ({seconds:.1f} s)"


def measure_text(measure: Measure) -> str:
    """A number before and after, with its unit: ``SQNR of 'logits' 2.2 -> 24.1 dB``."""
    unit = f" {measure.unit}" if measure.unit else ""
    return f"{measure.what} {_number(measure.before, measure)} -> {_number(measure.after, measure)}{unit}"


def _number(value: float, measure: Measure) -> str:
    if not math.isfinite(value):
        return str(value)
    if measure.unit == "dB":
        return f"{value:.1f}" if value > _FEWEST_DB else f"under {_FEWEST_DB:.0f}"
    return f"{value:.1%}" if measure.what == "same top-1" else f"{value:.4g}"


def _loss(found: Diagnosis) -> Iterator[_Line]:
    parts = []
    for measure in found.measures:
        unit = f" {measure.unit}" if measure.unit else ""
        word = "expected" if measure.unit == "dB" else "in float"
        told = f"{measure.what} {_number(measure.before, measure)}{unit}"
        beyond = measure.unit == "dB" and measure.after < measure.before
        if beyond:
            told += " (as expected)"
        elif measure.unit == "dB" or (
            measure.what not in ("same top-1",) and not measure.what.startswith("cosine")
        ):
            told += f" ({_number(measure.after, measure)} {word})"
        parts.append(told)
    if parts:
        yield "loss", f"{', '.join(parts)}; {counted(found.samples, 'sample')}"


def _findings(found: Diagnosis) -> Iterator[_Line]:
    proven = [each for each in found.findings if each.proven]
    left, shown = _LINES, 0
    for finding in proven:
        lines = list(_in_full(finding, found))
        left -= sum(-(-len(text) // _COLUMNS) for _, text in lines)
        if left < 0 and shown:
            break
        shown += 1
        yield from lines
    for finding in proven[shown : shown + _IN_SHORT]:
        change = f": {measure_text(finding.measures[0])}" if finding.measures else ""
        yield str(finding.number), f"{_where(finding)}: {finding.cause}{change}"
    more = len(proven) - shown - _IN_SHORT
    if more > 0:
        yield "", f"and {counted(more, 'more finding')}: see --json"


def _in_full(finding: Finding, found: Diagnosis) -> Iterator[_Line]:
    """Where, why, the proof and what to do."""
    yield str(finding.number), f"{_where(finding)}: {finding.cause}"
    yield "", _cut(finding.summary, finding)
    if finding.measures:
        proof = f"{finding.intervention}: {measure_text(finding.measures[0])}{_than_above(finding, found)}"
        yield "proof", _cut(proof, finding)
    if finding.remedy is not None:
        yield "remedy", _cut(f"{finding.remedy.title} [{finding.remedy.cost}]", finding)


def _than_above(finding: Finding, found: Diagnosis) -> str:
    """Why the number before an intervention is not the one in the line on the loss, where it is not."""
    ours, whole = finding.measures[0], found.measures[:1]
    if not whole or ours.what != whole[0].what or _number(ours.before, ours) == _number(whole[0].before, ours):
        return ""
    if ours.samples != whole[0].samples:
        return f" (on {counted(ours.samples, 'sample')})"
    return " (with the other findings put right)" if len(found.accused) > 1 else ""


def _cut(text: str, finding: Finding) -> str:
    """A sentence with long names of nodes and tensors cut in their middle."""
    names = sorted({*finding.nodes, *finding.tensors}, key=len, reverse=True)
    for name in names:
        if len(name) > _LONGEST:
            text = text.replace(name, f"{name[:_START]}...{name[_START + 3 - _LONGEST :]}")
    return text


def _where(finding: Finding) -> str:
    names = finding.nodes[:1] or finding.tensors[:1]
    share = f" ({finding.share:.0%} of the loss)" if finding.share else ""
    return f"{short_name(names[0]) if names else 'the whole network'}{share}"


def _suspected(found: Diagnosis) -> Iterator[_Line]:
    open_ones = [each for each in found.findings if not each.proven]
    for index, finding in enumerate(open_ones[:_SUSPECTED]):
        change = f" ({measure_text(finding.measures[0])})" if finding.measures else ""
        yield "" if index else "suspected", f"not proven: {finding.cause}, {finding.summary}{change}"


def _victims(found: Diagnosis) -> Iterator[_Line]:
    if found.victims:
        yield "victims", f"{_listed(found.victims)}: wrong only because of what they read"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(short_name(name) for name in names[:_NAMED]) + more


def _limits(found: Diagnosis) -> Iterator[_Line]:
    for index, text in enumerate(found.not_looked_at):
        yield "" if index else "not seen", text


def _next(found: Diagnosis) -> Iterator[_Line]:
    for index, command in enumerate(found.next_steps):
        yield "" if index else "next", command


def repair_line(found: Diagnosis) -> Text:
    """What came of the repair, in a line: ``REPAIRED: words read 0.0104 -> 0.9896 (1 in float)``."""
    repair = found.repair
    if repair is None or not repair.measures:
        return Text("")
    measure = repair.measures[0]
    goal = next(
        (f" ({_number(each.after, each)} in float)" for each in found.measures if each.what == measure.what), ""
    )
    word, style = ("REPAIRED", "bold green") if repair.reached else ("BETTER", "bold yellow")
    if not measure.improved:
        word, style = "NOT REPAIRED", "bold red"
    return Text(word, style=style) + Text(f": {measure_text(measure)}{goal}")


def repair_table(repair: Repair) -> RenderableType:
    """What was tried to repair it, step by step."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("for", "step", "cost", "before", "after", ""):
        table.add_column(title, overflow="fold", no_wrap=title in ("for", "cost", "before", "after"))
    for step in repair.steps:
        measure = step.measure
        table.add_row(
            str(step.finding or ""),
            Text(step.title),
            step.cost,
            _number(measure.before, measure),
            _number(measure.after, measure),
            "kept" if step.kept else step.why,
        )
    return table


def findings_csv(found: Diagnosis) -> str:
    """All findings as CSV, one row for each measure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["number", "proven", "cause", "node", "tensor", "share", "measure", "unit", "before", "after", "samples",
         "intervention", "remedy", "cost", "summary"]
    )  # fmt: skip
    for each in found.findings:
        remedy = ("", "") if each.remedy is None else (each.remedy.title, each.remedy.cost)
        place = [" ".join(each.nodes), " ".join(each.tensors)]
        for measure in each.measures or (Measure("", "", math.nan, math.nan),):
            numbers = [measure.what, measure.unit, repr(measure.before), repr(measure.after), measure.samples]
            row = [each.number, each.proven, each.cause, *place, f"{each.share:.4f}", *numbers]
            writer.writerow([*row, each.intervention, *remedy, each.summary])
    return text.getvalue()
