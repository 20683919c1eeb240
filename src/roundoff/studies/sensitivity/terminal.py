"""Rankings of what hurts for people: what stands out, then a table for each kind, the worst first."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.measure.metrics import mean_of
from roundoff.messages.catalogue import told
from roundoff.messages.numbers import in_decibels, score_heading, score_text, share_text
from roundoff.messages.phrases import commas, count_of, few, headline, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.pages.terminal import left_out_lines, note_lines
from roundoff.studies.sensitivity.result import KindVerdict, SensitivityReport, SensitivityRow

__all__ = ["SENSITIVITY_CSV_START", "sensitivity_csv", "sensitivity_tables", "sensitivity_verdict"]

SENSITIVITY_CSV_START = "kind,rank,name,node,"
"""How the CSV begins."""

_LISTED = 5
# Beside the one that ranks; a terminal of 80 columns has no room for more.
_OTHER_METRICS = 1
_Line = tuple[str, str]
_SHORT = {"mean_relative_error": "mre"}
_TIE, _UNKNOWN = "~", "?"
# What alone leaves this little of the outputs has to be mended, whatever else is.
_BAD_DB = 15


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
    samples = count_of(used[-1], "sample") if used else told("sensitivity_text.no_samples")
    if len(used) > 1:
        samples = told("sensitivity_text.between", least=used[0], most=samples)
    key = "sensitivity_text.samples" if report.complete else "sensitivity_text.samples_incomplete"
    samples = told(key, samples=samples)
    if not report.verdicts:
        return headline(told("sensitivity_text.nothing_measured"), "bold red", samples)
    first = report.verdicts[0]
    style = "bold green" if first.standing == "nothing_lost" else "bold yellow"
    if first.standing in ("stand_out", "no_score"):
        style = "bold red"
    how = told(f"sensitivity_text.{report.mode}")
    word = told(f"sensitivity_text.word_{first.standing}", count=len(first.names))
    if first.standing == "nothing_lost":
        kind = told(f"sensitivity_text.kind_{first.kind}")
        return headline(word, style, told("sensitivity_text.nothing_lost", kind=kind, how=how, samples=samples))
    of_all = count_of(first.count, first.kind)
    text = told(f"sensitivity_text.{first.standing}", all=of_all, how=how, samples=samples)
    return headline(word, style, text)


def _lines(report: SensitivityReport) -> Iterator[_Line]:
    for verdict in report.verdicts:
        yield told(f"sensitivity.{verdict.kind}"), _said(verdict, report.rankings[verdict.kind], report)
    metric = report.metrics[0]
    if report.quantized is not None:
        score = score_text(metric, report.quantized[metric])
        yield (
            told("sensitivity_text.quantized"),
            told("sensitivity_text.with_everything", metric=_heading(metric), score=score),
        )
    behind = _behind(report)
    if behind:
        yield told("sensitivity_text.beware"), behind
    yield told("sensitivity_text.at"), few(report.outputs, _LISTED)


def _behind(report: SensitivityReport) -> str:
    """Says when those that stand out are not all that has to be mended, as the others spoil the outputs, too."""
    metric = report.metrics[0]
    first = report.verdicts[0] if report.verdicts else None
    if first is None or first.standing != "stand_out" or report.mode != "alone" or not in_decibels(metric):
        return ""
    others = [row for row in report.rankings[first.kind] if row.name not in first.names]
    bad = sum(row.scores[metric] < _BAD_DB for row in others)
    if not bad:
        return ""
    return told(f"sensitivity_text.behind_{first.kind}", count=bad, limit=_BAD_DB)


def _said(verdict: KindVerdict, rows: Sequence[SensitivityRow], report: SensitivityReport) -> str:
    metric = report.metrics[0]
    count, total = len(verdict.names), verdict.count
    names = few(verdict.names, _LISTED)
    share = ""
    if verdict.share is not None:
        share = told("sensitivity_text.share", share=share_text(verdict.share), all=total)
    if verdict.standing == "stand_out":
        doubt = told("sensitivity_text.chance") if verdict.sure is None else ""
        text = told("sensitivity_text.said_stand_out", count=count, all=total, names=names)
        return semicolons(commas(text, share), doubt)
    if verdict.standing == "tied":
        return commas(told("sensitivity_text.said_tied", count=count, names=names), share)
    if verdict.standing == "spread":
        return told("sensitivity_text.said_spread", all=total, worst=_worst(rows, metric))
    return told(f"sensitivity_text.said_{verdict.standing}", all=total)


def _worst(rows: Sequence[SensitivityRow], metric: str) -> str:
    if not rows:
        return ""
    score = score_text(metric, rows[0].scores[metric])
    return told("sensitivity_text.worst", name=rows[0].name, metric=_heading(metric), score=score)


def _heading(metric: str) -> str:
    return _SHORT.get(metric) or score_heading(metric)


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
        parts.append(Text(told("sensitivity_text.legend_tie", mark=_TIE), style="dim"))
    if _UNKNOWN in marks:
        parts.append(Text(told("sensitivity_text.legend_unknown", mark=_UNKNOWN), style="dim"))
    parts += note_lines(report.notes, report.preparation)
    return Group(*parts)


def _table(kind: str, rows: Sequence[SensitivityRow], report: SensitivityReport, marks: set[str]) -> Table:
    first, *others = report.metrics[: 1 + _OTHER_METRICS]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column(told(f"sensitivity_text.kind_{kind}"), overflow="fold", min_width=12)
    # Of what nodes read, the operation that reads it first is known; nothing reads the outputs of the network.
    reader = kind in ("weight", "activation")
    by = told("sensitivity_text.column_reader") if reader else told("terminal.operation")
    table.add_column(by, overflow="ellipsis", no_wrap=True, max_width=8)
    table.add_column(_heading(first), justify="right", no_wrap=True)
    table.add_column(told("sensitivity_text.column_interval"), justify="right", no_wrap=True)
    for metric in others:
        table.add_column(_heading(metric), justify="right", no_wrap=True)
    several = len({row.samples for row in rows}) > 1
    if several:
        table.add_column(told("sensitivity_text.column_samples"), justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        mark = _mark(row, last=place + 1 == len(report.rankings[kind]))  # type: ignore[index]
        marks.add(mark)
        table.add_row(
            str(row.rank),
            mark,
            Text(short_name(row.name)),
            Text(row.op_type or (told("sensitivity_text.output") if reader else "")),
            _value(first, row),
            _interval(first, row),
            *(_value(metric, row) for metric in others),
            *([str(row.samples)] if several else []),
        )
    return table


def _mark(row: SensitivityRow, *, last: bool) -> str:
    if last or row.told_apart:
        return ""
    return _UNKNOWN if row.told_apart is None else _TIE


def _value(metric: str, row: SensitivityRow) -> str:
    value = row.scores[metric]
    if math.isnan(value):
        return told("terminal.no_score")
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
        mean = mean_of(metric)
        columns += [metric, *([mean] if mean != metric else []), f"{mean} low", f"{mean} high"]
        columns += [safe_cell(f"{metric} at {output}") for output in report.outputs]
    start = ("kind", "rank", "name", "node", "op_type", "tensor", "quantizers", "samples", "told_apart_from_next")
    writer.writerow((*start, "worst_sample", *columns))
    for kind, rows in report.rankings.items():
        for row in rows:
            writer.writerow(_cells(kind, row, report))
    return out.getvalue()


def _cells(kind: str, row: SensitivityRow, report: SensitivityReport) -> list[object]:
    told = {None: "unknown", True: "yes", False: "no"}[row.told_apart]
    texts = map(safe_cell, (row.name, row.node, row.op_type, row.tensor, " ".join(row.quantizers)))
    cells: list[object] = [kind, row.rank, *texts, row.samples, told, safe_cell(row.worst_sample)]
    for metric in report.metrics:
        interval = row.intervals[metric]
        # What the interval is of: the mean over samples, where the metric itself is not one.
        mean = row.means.get(metric)
        cells += [repr(row.scores[metric])]
        cells += [] if mean_of(metric) == metric else ["" if mean is None else repr(mean)]
        cells += ("", "") if interval is None else map(repr, interval)
        cells += [repr(value) for value in row.per_output[metric]]
    return cells
