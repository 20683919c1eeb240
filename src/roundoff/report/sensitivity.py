"""Rankings of what hurts for people: what stands out, then a table for each kind, the worst first."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.harmless import short_name
from roundoff.core.sensitivity_report import KindVerdict, SensitivityReport, SensitivityRow
from roundoff.core.wording import counted
from roundoff.report.cells import safe_cell
from roundoff.report.notes import left_out_lines, note_lines
from roundoff.report.score_text import score_text, share_text

__all__ = ["SENSITIVITY_CSV_START", "sensitivity_csv", "sensitivity_tables", "sensitivity_verdict"]

SENSITIVITY_CSV_START = "kind,rank,name,node,"
"""How the CSV begins."""

_LISTED = 5
# Beside the one that ranks; a terminal of 80 columns has no room for more.
_OTHER_METRICS = 1
_Line = tuple[str, str]
_PLURALS = {
    "node": "nodes", "weight": "weights", "activation": "activations", "bias": "biases", "group": "groups",
}  # fmt: skip
_HEADINGS = {"mean_relative_error": "mre", "sqnr_db": "sqnr dB"}
_TIE, _UNKNOWN = "~", "?"
# What alone leaves this little of the outputs has to be mended, whatever else is.
_BAD_DB = 15
_ENGINES = {"exact": "measured", "estimate": "estimate"}


def sensitivity_verdict(report: SensitivityReport) -> RenderableType:
    """What a busy person reads: how many stand out, and which."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in _lines(report):
        grid.add_row(f"  {label}", Text(text))
    return Group(_headline(report), grid)


def _headline(report: SensitivityReport) -> Text:
    used = sorted({row.samples for rows in report.rankings.values() for row in rows})
    samples = counted(used[-1], "sample") if used else "no samples"
    if len(used) > 1:
        samples = f"{used[0]} to {samples}"
    done = "" if report.complete else ", not complete"
    if not report.verdicts:
        return Text("NOTHING MEASURED", style="bold red") + Text(f" ({samples}{done})")
    first = report.verdicts[0]
    how = "quantized alone" if report.mode == "alone" else "left in float alone"
    of_all = f" of {counted(first.count, first.kind)}"
    if first.standing == "stand_out":
        word, text = f"{len(first.names)} STAND{'S' if len(first.names) == 1 else ''} OUT", of_all
    elif first.standing == "tied":
        word, text = f"{len(first.names)} CANNOT BE TOLD APART", f"{of_all}: the first ones may be in any order"
    elif first.standing == "spread":
        word, text = "NONE STANDS OUT", f"{of_all}: the error is spread over many"
    elif first.standing == "no_score":
        word, text = "NO SCORE", f"{of_all}: the outputs hold nothing that can be compared"
    else:
        word, text = "NOTHING LOST", f": no {first.kind} changes the outputs"
    style = "bold green" if first.standing == "nothing_lost" else "bold yellow"
    if first.standing in ("stand_out", "no_score"):
        style = "bold red"
    return Text(word, style=style) + Text(f"{text}, each {how} ({samples}{done})")


def _lines(report: SensitivityReport) -> Iterator[_Line]:
    for verdict in report.verdicts:
        yield _PLURALS[verdict.kind], _said(verdict, report.rankings[verdict.kind], report)
    metric = report.metrics[0]
    if report.quantized is not None:
        yield "quantized", f"{_heading(metric)} {score_text(metric, report.quantized[metric])} with everything"
    behind = _behind(report)
    if behind:
        yield "beware", behind
    yield "at", f"{', '.join(report.outputs[:_LISTED])}{_more(len(report.outputs))}"


def _behind(report: SensitivityReport) -> str:
    """Says when those that stand out are not all that has to be mended, as the others spoil the outputs, too."""
    metric = report.metrics[0]
    first = report.verdicts[0] if report.verdicts else None
    if first is None or first.standing != "stand_out" or report.mode != "alone" or metric != "sqnr_db":
        return ""
    others = [row for row in report.rankings[first.kind] if row.name not in first.names]
    bad = sum(row.scores[metric] < _BAD_DB for row in others)
    if not bad:
        return ""
    text = f"{counted(bad, f'other {first.kind}')} {'is' if bad == 1 else 'are'} below {_BAD_DB} dB alone"
    return f"{text}: what stands out is not all; roundoff partial tells how many it takes"


def _said(verdict: KindVerdict, rows: Sequence[SensitivityRow], report: SensitivityReport) -> str:
    metric = report.metrics[0]
    worst = f"{rows[0].name} ({_heading(metric)} {score_text(metric, rows[0].scores[metric])})" if rows else ""
    names = ", ".join(verdict.names[:_LISTED]) + _more(len(verdict.names))
    share = "" if verdict.share is None else f", {share_text(verdict.share)} of what all {verdict.count} do"
    if verdict.standing == "stand_out":
        doubt = "" if verdict.sure else "; one sample, so it may be chance" if verdict.sure is None else ""
        return f"{len(verdict.names)} of {verdict.count}: {names}{share}{doubt}"
    if verdict.standing == "tied":
        return f"the first {len(verdict.names)} cannot be told apart: {names}{share}"
    if verdict.standing == "spread":
        return f"none of {verdict.count} stands out; the worst is {worst}"
    if verdict.standing == "no_score":
        return f"none of {verdict.count} has a score"
    return f"none of {verdict.count} changes the outputs"


def _more(count: int) -> str:
    return f" and {count - _LISTED} more" if count > _LISTED else ""


def _heading(metric: str) -> str:
    return _HEADINGS.get(metric, metric)


def sensitivity_tables(report: SensitivityReport, *, most: int | None = None) -> RenderableType:
    """A table for each kind, the worst first.

    Args:
        report: What to show.
        most: Show at most so many rows of each, and say how many were left out; all when None.
    """
    parts: list[RenderableType] = []
    marks: set[str] = set()
    for kind, rows in report.rankings.items():
        parts += [*([Text("")] if parts else []), _table(kind, rows[:most], report, marks)]
        parts += left_out_lines(len(rows) - len(rows[:most]))
    if _TIE in marks:
        parts.append(Text(f"{_TIE} cannot be told apart from the next row", style="dim"))
    if _UNKNOWN in marks:
        text = f"{_UNKNOWN} not known whether it differs from the next row; give more samples"
        parts.append(Text(text, style="dim"))
    parts += note_lines(report.notes, report.preparation)
    return Group(*parts)


def _table(kind: str, rows: Sequence[SensitivityRow], report: SensitivityReport, marks: set[str]) -> Table:
    first, *others = report.metrics[: 1 + _OTHER_METRICS]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column(kind, overflow="fold", min_width=12)
    # Of what nodes read, the operation that reads it first is known; nothing reads the outputs of the network.
    reader = kind in ("weight", "activation")
    table.add_column("read by" if reader else "op", overflow="ellipsis", no_wrap=True, max_width=8)
    table.add_column(_heading(first), justify="right", no_wrap=True)
    table.add_column("95% between", justify="right", no_wrap=True)
    for metric in others:
        table.add_column(_heading(metric), justify="right", no_wrap=True)
    several = len({row.samples for row in rows}) > 1
    if several:
        table.add_column("samples", justify="right", no_wrap=True)
    # Where nothing is estimated, everything is measured.
    by_engine = bool(report.effort.estimated)
    if by_engine:
        table.add_column("by", no_wrap=True)
    for place, row in enumerate(rows):
        mark = _mark(row, last=place + 1 == len(report.rankings[kind]))  # type: ignore[index]
        marks.add(mark)
        table.add_row(
            str(row.rank),
            mark,
            Text(short_name(row.name)),
            Text(row.op_type or ("(output)" if reader else "")),
            _value(first, row),
            _interval(first, row),
            *(_value(metric, row) for metric in others),
            *([str(row.samples)] if several else []),
            *([_ENGINES[row.engine]] if by_engine else []),
        )
    return table


def _mark(row: SensitivityRow, *, last: bool) -> str:
    if last or row.told_apart:
        return ""
    return _UNKNOWN if row.told_apart is None else _TIE


def _value(metric: str, row: SensitivityRow) -> str:
    value = row.scores[metric]
    if math.isnan(value):
        return "-" if row.engine == "estimate" else "no score"
    return score_text(metric, value)


def _interval(metric: str, row: SensitivityRow) -> str:
    interval = row.intervals[metric]
    return "" if interval is None else " .. ".join(score_text(metric, end) for end in interval)


def sensitivity_csv(report: SensitivityReport) -> str:
    """All rows of all rankings with all metrics, their intervals, and each output."""
    out = io.StringIO()
    writer = csv.writer(out)
    columns = []
    for metric in report.metrics:
        columns += [metric, f"{metric} low", f"{metric} high"]
        columns += [safe_cell(f"{metric} at {output}") for output in report.outputs]
    start = ("kind", "rank", "name", "node", "op_type", "tensor", "quantizers", "samples", "told_apart_from_next")
    writer.writerow((*start, "worst_sample", "engine", *columns))
    for kind, rows in report.rankings.items():
        for row in rows:
            writer.writerow(_cells(kind, row, report))
    return out.getvalue()


def _cells(kind: str, row: SensitivityRow, report: SensitivityReport) -> list[object]:
    told = {None: "unknown", True: "yes", False: "no"}[row.told_apart]
    texts = map(safe_cell, (row.name, row.node, row.op_type, row.tensor, " ".join(row.quantizers)))
    cells: list[object] = [kind, row.rank, *texts, row.samples, told, safe_cell(row.worst_sample), row.engine]
    for metric in report.metrics:
        interval = row.intervals[metric]
        cells += [repr(row.scores[metric]), *(("", "") if interval is None else map(repr, interval))]
        cells += [repr(value) for value in row.per_output[metric]]
    return cells
