"""A ranking of samples for people, and as CSV."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import csv_text, score_text
from roundoff.messages.phrases import commas, semicolons
from roundoff.messages.sanitize import short_name
from roundoff.pages.terminal import note_lines
from roundoff.studies.samples.result import OutputScore, SampleScore, WorstSamples

__all__ = ["WORST_SAMPLES_CSV_START", "worst_samples_csv", "worst_samples_page"]

WORST_SAMPLES_CSV_START = "rank,sample,index,score,moved_top"
"""By this an earlier table of ours is known."""


def worst_samples_page(worst: WorstSamples, *, most: int | None = 10) -> RenderableType:
    """The worst samples.

    Args:
        worst: The ranking.
        most: Show at most so many; all when None.
    """
    kept = worst.samples[:most]
    parts: list[RenderableType] = [_headline(worst), Text(""), _table(worst, kept)]
    parts += note_lines(worst.notes, worst.preparation)
    return Group(*parts)


def _headline(worst: WorstSamples) -> Text:
    metric, first = worst.metrics[0], worst.samples[0]
    if worst.unscored == len(worst.samples):
        return Text(told("samples_text.no_score", count=worst.unscored), "bold")
    total = len(worst.samples)
    score = told("terminal.no_score") if first.score is None else f"{metric} {score_text(metric, first.score)}"
    name = first.sample or told("samples_text.only")
    text = told("samples_text.worst", count=total, sample=name, score=score)
    if worst.median is not None:
        text = commas(text, told("samples_text.median", value=score_text(metric, worst.median)))
    if worst.moved_top is not None:
        text = semicolons(text, told("samples_text.moves", count=worst.moved_top, all=total))
    if worst.unscored:
        text = semicolons(text, told("samples_text.unscored", count=worst.unscored))
    return Text(text, "bold")


def _table(worst: WorstSamples, kept: tuple[SampleScore, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column(told("samples.sample"), overflow="fold", min_width=8)
    # Side by side the metrics of several outputs do not fit a terminal; CSV has them all.
    several = len(worst.samples[0].outputs) > 1
    named = (told("samples_text.column_output"),) if several else ()
    counted_rows = any(output.rows for each in worst.samples for output in each.outputs)
    for heading in (*named, *worst.metrics, *((told("samples_text.column_moved"),) if counted_rows else ())):
        table.add_column(Text(heading), justify="left" if heading in named else "right", overflow="fold")
    for each in kept:
        output = _worst_output(each, worst)
        cells = [output.output] if several else []
        cells += [score_text(metric, output.values.get(metric)) for metric in worst.metrics]
        if counted_rows:
            rows = sum(output.rows for output in each.outputs)
            cells.append(told("samples_text.moved", moved=each.moved_top, rows=rows))
        table.add_row(str(each.rank), Text(short_name(each.sample)), *map(Text, cells))
    return table


def _worst_output(each: SampleScore, worst: WorstSamples) -> OutputScore:
    def badness(output: OutputScore) -> float:
        value = output.values.get(worst.metrics[0])
        if value is None:
            return float("-inf")
        return value if worst.higher_is_better else -value

    return min(each.outputs, key=badness)


def worst_samples_csv(worst: WorstSamples) -> str:
    """All samples, the worst first."""
    names = [output.output for output in worst.samples[0].outputs] if worst.samples else []
    heading = WORST_SAMPLES_CSV_START.split(",")
    for name in names:
        heading += [f"{name} {column}" for column in ("status", *worst.metrics, "rows", "moved_top")]

    def row(each: SampleScore) -> list[object]:
        cells: list[object] = [each.rank, each.sample, each.index, each.score, each.moved_top]
        for output in each.outputs:
            values = [output.values.get(metric) for metric in worst.metrics]
            cells += [output.status, *values, output.rows, output.moved_top]
        return cells

    return csv_text(heading, (row(each) for each in worst.samples))
