"""What is wrong with a calibration set, for people and as CSV."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import csv_text, number, percentage
from roundoff.messages.phrases import commas, count_of, semicolons
from roundoff.messages.sanitize import short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import VerdictLine, left_out_lines, note_lines, verdict_page
from roundoff.studies.check_calibration.result import CalibrationCheck, InputFacts, RangeRow

__all__ = ["CALIBRATION_CSV_START", "calibration_csv", "calibration_page"]

CALIBRATION_CSV_START = "tensor,low,high,half,lone_sample"
"""By this an earlier table of ours is known."""

_MOST_CHANNELS = 4
# A range that a single sample widens by less is not set by it alone.
_SHOWN_FACTOR = 1.005


def calibration_page(check: CalibrationCheck, *, most: int | None = 10) -> RenderableType:
    """The verdict, then inputs, convergence and the ranges that matter most.

    Args:
        check: What was found.
        most: Rows of the table of ranges; all when None.
    """
    rows = sorted(check.ranges, key=lambda row: (-(row.outside or 0.0), -row.lone_factor, row.half))
    kept = rows[:most]
    parts: list[RenderableType] = [verdict_page(_headline(check), _lines(check)), Text(""), _ranges(check, kept)]
    parts += left_out_lines(len(rows) - len(kept))
    parts += note_lines(check.notes)
    return Group(*parts)


def _headline(check: CalibrationCheck) -> Text:
    text = Text()
    faults, remarks = len(check.faults), len(check.findings) - len(check.faults)
    seen = {"samples": count_of(check.samples, "sample"), "data": check.data}
    if faults:
        text.append(told("check_calibration.word_not_fit"), style="bold red")
        said = told("check_calibration.not_fit", count=faults, **seen)
    else:
        text.append(told("check_calibration.word_ok"), style="bold green")
        said = told("check_calibration.ok", **seen)
    remarked = told("check_calibration.remarks", count=remarks) if remarks else ""
    target = told("check_calibration.target", target=check.target, method=check.method)
    text.append(commas(said, remarked, target))
    return text


def _lines(check: CalibrationCheck) -> Iterator[VerdictLine]:
    for finding in check.findings:
        word = told(f"check_calibration.kind_{finding.kind}")
        if finding.severity != "fault":
            word = told("check_calibration.remark", word=word)
        yield word, sentence(finding.text)
        yield "", told("check_calibration.fix", text=sentence(finding.fix))
    yield from _converged(check)
    if check.held_out:
        held_out = commas(count_of(check.held_out_samples, "sample"), sentence(check.held_out))
        yield told("check_calibration.held_out"), held_out
    for facts in check.inputs:
        yield told("check_calibration.input"), _input(facts)


def _converged(check: CalibrationCheck) -> Iterator[VerdictLine]:
    if check.growth is None:
        return
    curve = ", ".join(f"{point.samples}: {percentage(point.typical)}" for point in check.curve[-5:])
    yield told("check_calibration.ranges"), told("check_calibration.width", curve=curve)
    if check.enough is None:
        return
    if check.enough < check.samples:
        yield "", told("check_calibration.enough", samples=count_of(check.enough, "sample"))
    elif check.enough > check.samples:
        yield "", told("check_calibration.about_enough", samples=count_of(check.enough, "sample"))


def _input(facts: InputFacts) -> str:
    low, high = number(facts.low, 3), number(facts.high, 3)
    text = told("check_calibration.facts", name=facts.name, low=low, high=high)
    if 0 < len(facts.means) <= _MOST_CHANNELS:
        means = " ".join(number(each, 3) for each in facts.means)
        stds = " ".join(number(each, 3) for each in facts.stds)
        text = commas(text, told("check_calibration.means", means=means, stds=stds))
    like = told("check_calibration.looks_like", what=sentence(facts.looks_like)) if facts.looks_like else ""
    return semicolons(text, like)


def _ranges(check: CalibrationCheck, rows: list[RangeRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("common.tensor"), overflow="fold", min_width=8)
    for heading in ("column_low", "column_high", "column_half", "held_out", "column_lone"):
        table.add_column(told(f"check_calibration.{heading}"), justify="right", overflow="fold")
    table.add_column(told("check_calibration.column_by"), overflow="fold")
    for row in rows:
        lone = row.lone_factor > _SHOWN_FACTOR
        table.add_row(
            Text(short_name(row.tensor)),
            number(row.low),
            number(row.high),
            percentage(row.half),
            "" if row.outside is None else percentage(row.outside),
            f"x{row.lone_factor:.3g}" if lone else "",
            Text(short_name(row.lone_sample) if lone else ""),
        )
    return table


def calibration_csv(check: CalibrationCheck) -> str:
    """All tensors, in execution order."""
    heading = [
        *CALIBRATION_CSV_START.split(","),
        "lone_factor",
        "outside",
        "outside_before",
        "overshoot",
        "exceeding",
    ]
    return csv_text(heading, ([getattr(row, name) for name in heading] for row in check.ranges))
