"""What is wrong with a calibration set, for people and as CSV."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.calibration_check import CalibrationCheck, InputFacts, RangeRow
from roundoff.core.harmless import short_name
from roundoff.core.wording import counted
from roundoff.report.figures import csv_text, number, percentage
from roundoff.report.notes import left_out_lines, note_lines
from roundoff.report.verdict import VerdictLine, verdict_page

__all__ = ["CALIBRATION_CSV_START", "calibration_csv", "calibration_page"]

CALIBRATION_CSV_START = "tensor,low,high,half,lone_sample"
"""By this an earlier table of ours is known."""

_WORDS = {
    "nonfinite": "broken",
    "blank": "blank",
    "scaling": "scaling",
    "too_few": "too few",
    "influence": "one sample",
    "saturation": "too narrow",
    "coverage": "coverage",
    "duplicates": "duplicates",
}
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
    seen = f"{counted(check.samples, 'sample')} of {check.data}"
    if faults:
        text.append("NOT FIT", style="bold red")
        text.append(f": {counted(faults, 'fault')} in {seen}")
    else:
        text.append("OK", style="bold green")
        text.append(f": no fault in {seen}")
    text.append(f", {counted(remarks, 'remark')}" if remarks else "")
    text.append(f", for {check.target} by {check.method}")
    return text


def _lines(check: CalibrationCheck) -> Iterator[VerdictLine]:
    for finding in check.findings:
        word = _WORDS[finding.kind]
        yield word if finding.severity == "fault" else f"({word})", finding.text
        yield "", f"-> {finding.fix}"
    yield from _converged(check)
    if check.held_out:
        yield "held out", f"{counted(check.held_out_samples, 'sample')}, {check.held_out}"
    for facts in check.inputs:
        yield "input", _input(facts)


def _converged(check: CalibrationCheck) -> Iterator[VerdictLine]:
    if check.growth is None:
        return
    curve = ", ".join(f"{point.samples}: {percentage(point.typical)}" for point in check.curve[-5:])
    yield "ranges", f"width by number of samples (median tensor): {curve}"
    if check.enough is None:
        return
    if check.enough < check.samples:
        yield "", f"{counted(check.enough, 'sample')} would do: the median tensor has 95 % of its range"
    elif check.enough > check.samples:
        yield "", f"about {counted(check.enough, 'sample')} would do, as the curve goes"


def _input(facts: InputFacts) -> str:
    text = f"{facts.name}: {number(facts.low, 3)} to {number(facts.high, 3)}"
    if 0 < len(facts.means) <= _MOST_CHANNELS:
        means = " ".join(number(each, 3) for each in facts.means)
        stds = " ".join(number(each, 3) for each in facts.stds)
        text += f", mean {means}, std {stds}"
    return text + (f"; looks like {facts.looks_like}" if facts.looks_like else "")


def _ranges(check: CalibrationCheck, rows: list[RangeRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("tensor", overflow="fold", min_width=8)
    for heading in ("low", "high", "half", "held out", "lone"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("by sample", overflow="fold")
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
