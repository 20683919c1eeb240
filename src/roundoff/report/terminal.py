"""The comparison for people: a verdict of a few lines, then a table."""

import math
from collections.abc import Iterator
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.comparison import Comparison, TensorComparison

__all__ = ["Sort", "comparison_table", "comparison_verdict"]

Sort = Literal["order", "worst"]

_LISTED = 5
# A label and what it says.
_Line = tuple[str, str]


def comparison_verdict(comparison: Comparison) -> RenderableType:
    """What a busy person reads: passed or not, where it starts, what it looks like, who is only a victim."""
    rows = {row.reference: row for row in comparison.rows}
    lines = [*_start(comparison, rows), *_worst(comparison, rows), *_culprits(comparison)]
    lines += [*_alignment(comparison), *_unmatched(comparison), *(("note", note) for note in comparison.notes)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(f"  {label}", Text(text))
    return Group(_headline(comparison), grid) if lines else _headline(comparison)


def comparison_table(comparison: Comparison, *, sort: Sort = "order", most: int | None = None) -> RenderableType:
    """One line per tensor.

    Args:
        comparison: What to show.
        sort: Execution order, or worst first.
        most: Show at most so many rows, and say how many were left out.
    """
    rows = sorted(comparison.rows, key=_badness, reverse=True) if sort == "worst" else list(comparison.rows)
    shown = rows if most is None else rows[:most]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("tensor", overflow="fold", ratio=3, min_width=12)
    table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=12)
    table.add_column("cosine", justify="right", no_wrap=True)
    table.add_column("sqnr dB", justify="right", no_wrap=True)
    table.add_column("rel.err", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("difference", overflow="fold", ratio=4, min_width=14)
    for row in shown:
        table.add_row(*_cells(row))
    left = len(rows) - len(shown)
    if not left:
        return table
    return Group(table, Text(f"... and {left} more rows; --rows all shows them, so does the CSV", style="dim"))


def _headline(comparison: Comparison) -> Text:
    verdict, limits = comparison.verdict, comparison.thresholds
    good = verdict.failed == 0
    samples = len(comparison.samples)
    text = Text()
    text.append("PASS" if good else "FAIL", style="bold green" if good else "bold red")
    text.append(f": {verdict.passed} of {verdict.passed + verdict.failed} tensors pass ")
    text.append(f"({samples} sample{'s' * (samples != 1)}; {limits.describe()}")
    text.append(")" if limits.name == "given" else f"; profile {limits.name})")
    return text


def _start(comparison: Comparison, rows: dict[str, TensorComparison]) -> Iterator[_Line]:
    first = comparison.verdict.first_divergence
    if first is not None:
        yield "starts at", f"{_named(rows[first])}: {rows[first].difference or rows[first].score.detail}"
    elif comparison.verdict.failed:
        yield "starts at", "unknown, because the order of execution is: give the model with --model"


def _worst(comparison: Comparison, rows: dict[str, TensorComparison]) -> Iterator[_Line]:
    for index, name in enumerate(comparison.verdict.worst):
        row = rows[name]
        numbers = f"cosine {_cosine(row)}, {_db(row)} dB" if row.score.values else row.score.detail
        yield "" if index else "worst", ", ".join(filter(None, (f"{_named(row)}: {numbers}", row.difference)))


def _culprits(comparison: Comparison) -> Iterator[_Line]:
    verdict = comparison.verdict
    if verdict.introduces:
        yield "introduced by", _few(verdict.introduces)
    if verdict.victims:
        yield "victims", f"{_few(verdict.victims)} (their inputs were wrong already)"


def _alignment(comparison: Comparison) -> Iterator[_Line]:
    counts: dict[str, int] = {}
    for row in comparison.rows:
        if row.layout:
            counts[row.layout] = counts.get(row.layout, 0) + 1
    if counts:
        yield "layouts", "undone: " + _few(tuple(f"{name} ({count} tensors)" for name, count in counts.items()))
    by_value = [row for row in comparison.rows if row.how == "value"]
    if by_value:
        least = min(by_value, key=lambda row: row.confidence)
        doubt = f"least sure: {least.reference} = {least.candidate} ({least.confidence:.2f})"
        yield "matching", f"{len(by_value)} of {len(comparison.rows)} tensors matched by value; {doubt}"


def _unmatched(comparison: Comparison) -> Iterator[_Line]:
    for side, names in (
        ("reference", comparison.unmatched_reference),
        ("candidate", comparison.unmatched_candidate),
    ):
        if names:
            yield "unmatched", f"{len(names)} only in the {side}: {_few(names)}"


def _named(row: TensorComparison) -> str:
    return f"{row.reference} ({row.op_type})" if row.op_type else row.reference


def _few(names: tuple[str, ...]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _cells(row: TensorComparison) -> tuple[RenderableType, ...]:
    mark = {True: Text("ok", style="green"), False: Text("FAIL", style="red"), None: Text("-", style="dim")}[
        row.passed
    ]
    values = row.score.values
    remark = Text(row.difference or row.score.detail)
    if row.role:
        remark = Text(f"[{row.role}] ", style="bold" if row.role == "introduces" else "dim") + remark
    return (
        str(row.order),
        Text(row.reference),
        Text(row.op_type),
        _cosine(row),
        _db(row),
        _short(values.get("relative_euclidean")),
        mark,
        remark,
    )


def _cosine(row: TensorComparison) -> str:
    value = row.score.values.get("cosine")
    if value is None:
        return "-"
    # 1.000000 is shown only for what really is 1: rounding up would hide a difference.
    return f"{math.floor(value * 1e6) / 1e6:.6f}"


def _db(row: TensorComparison) -> str:
    value = row.score.values.get("sqnr_db")
    return "-" if value is None else f"{value:.1f}"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value == 0 or 1e-3 <= value < 1e3 else f"{value:.1e}"


def _badness(row: TensorComparison) -> float:
    return row.score.values.get("relative_euclidean", math.inf)
