"""The comparison for people: a verdict of a few lines, then a table."""

import csv
import io
import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import score_text
from roundoff.messages.phrases import commas, count_of, few, headline, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.coverage import coverage_lines
from roundoff.studies.compare.result import Comparison, TensorComparison, was_not_read

__all__ = [
    "Sort",
    "choose_rows",
    "comparison_csv",
    "comparison_table",
    "comparison_verdict",
    "left_out",
]


# Which rows of a comparison a table shows: those that fail always come before those that do not.

Sort = Literal["order", "worst"]
_Rows = Sequence[TensorComparison]


def choose_rows(rows: _Rows, *, sort: Sort, most: int | None) -> list[TensorComparison]:
    """The rows to show, in the order to show them.

    Args:
        rows: All rows, in execution order.
        sort: ``worst`` puts failing rows first, the worst of them on top; ``order`` keeps the order and fills what
            room the failing rows leave with the rows nearest to them.
        most: How many rows there is room for; None for all.
    """
    if sort == "worst":
        return sorted(rows, key=_badness, reverse=True)[:most]
    if most is None or len(rows) <= most:
        return list(rows)
    failing = [index for index, row in enumerate(rows) if row.passed is False]
    chosen = sorted(range(len(rows)), key=lambda index: _distance(index, failing))[:most]
    return [rows[index] for index in sorted(chosen)]


def left_out(rows: _Rows, shown: _Rows) -> str:
    """A sentence on the rows that are not shown; empty when all are."""
    orders = {row.order for row in shown}
    left = [row for row in rows if row.order not in orders]
    if not left:
        return ""
    failing = sum(row.passed is False for row in left)
    if failing:
        return told("comparison_text.left_failing", count=len(left), failing=failing)
    if all(row.passed for row in left):
        return told("comparison_text.left_passing", count=len(left))
    return told("comparison_text.left_unjudged", count=len(left))


def _badness(row: TensorComparison) -> tuple[bool, float]:
    """Larger is worse: failing before all others, then by error; a score of a part only, or none, is worst."""
    partial = row.score.status in ("nonfinite", "unreadable", "shape")
    error = math.inf if partial else row.score.values.get("relative_euclidean", math.inf)
    return row.passed is False, error


def _distance(index: int, failing: Sequence[int]) -> int:
    """How many rows away the nearest failing row is; with none of them, the first rows are the nearest."""
    position = bisect(failing, index)
    return min((abs(index - other) for other in failing[max(0, position - 1) : position + 1]), default=index)


_LISTED = 5
_STYLES = {"pass": "bold green", "fail": "bold red", "incomplete": "bold yellow"}
# A change of layout that concerns no more tensors than this is said with their names.
_NAMED_LAYOUT = 3
# Longer remarks are cut in the table; JSON and CSV have all of them.
_REMARK_COLUMNS = 60
# A label and what it says.
_Line = tuple[str, str]


def comparison_verdict(comparison: Comparison, next_steps: Sequence[str] = ()) -> RenderableType:
    """What a busy person reads: passed or not, where it starts, what it looks like, who is only a victim.

    Args:
        comparison: What to show.
        next_steps: Commands that lead on.
    """
    rows = {row.reference: row for row in comparison.rows}
    lines = [
        *_judged(comparison),
        *coverage_lines(comparison.outputs, other="candidate"),
        *_start(comparison, rows),
        *_worst(comparison, rows),
        *_culprits(comparison),
    ]
    lines += [*_not_read(comparison), *_alignment(comparison), *_unmatched(comparison)]
    lines += [(told("terminal.note_label"), sentence(note)) for note in comparison.notes]
    lines += [("" if place else told("comparison_text.next"), step) for place, step in enumerate(next_steps)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(f"  {label}", Text(text))
    return Group(_headline(comparison), grid)


def comparison_table(comparison: Comparison, *, sort: Sort = "order", most: int | None = None) -> RenderableType:
    """One line per tensor.

    Args:
        comparison: What to show.
        sort: Execution order, or failing rows first and the worst of them on top.
        most: Show at most so many rows, failing ones before all others, and say how many were left out.
    """
    shown = choose_rows(comparison.rows, sort=sort, most=most)
    usual = _usual_layout(comparison)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right")
    table.add_column(told("common.tensor"), overflow="fold", ratio=3, min_width=12)
    table.add_column(told("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=12)
    table.add_column(told("comparison_text.column_cosine"), justify="right", no_wrap=True)
    table.add_column("sqnr dB", justify="right", no_wrap=True)
    table.add_column(told("comparison_text.column_relative"), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column(told("comparison_text.column_difference"), overflow="fold", ratio=4, min_width=14)
    for row in shown:
        table.add_row(*_cells(row, layout="" if row.layout == usual else row.layout))
    left = left_out(comparison.rows, shown)
    return Group(table, Text(left, style="dim")) if left else table


def _headline(comparison: Comparison) -> Text:
    verdict = comparison.verdict
    state, judged = comparison.state, verdict.passed + verdict.failed
    text = told(
        "comparison_text.headline",
        passed=verdict.passed,
        judged=judged,
        number=1 if 1 in (verdict.passed, judged) else judged,
        samples=count_of(len(comparison.samples), "sample"),
    )
    if state == "fail" and comparison.exit_good:
        text = commas(text, told("comparison_text.no_gate"))
    if state == "incomplete":
        text = commas(text, told("comparison_text.not_all_outputs"))
    return headline(told(f"comparison_text.word_{state}"), _STYLES[state], text)


def _judged(comparison: Comparison) -> Iterator[_Line]:
    limits = comparison.thresholds
    text = limits.describe()
    if limits.name != "given":
        text = told("comparison_text.profile", limits=text, name=limits.name)
    yield told("comparison_text.judged_by"), text


def _start(comparison: Comparison, rows: dict[str, TensorComparison]) -> Iterator[_Line]:
    first = comparison.verdict.first_divergence
    if first is not None:
        what = sentence(rows[first].difference or rows[first].score.detail)
        yield told("comparison_text.starts_at"), _said(rows[first], what)
    elif any(row.passed is False and not was_not_read(row) for row in comparison.rows):
        yield told("comparison_text.starts_at"), told("comparison_text.start_unknown")


def _worst(comparison: Comparison, rows: dict[str, TensorComparison]) -> Iterator[_Line]:
    worst = [name for name in comparison.verdict.worst if not was_not_read(rows[name])]
    if worst == [comparison.verdict.first_divergence]:
        return  # It has been named already.
    for index, name in enumerate(worst):
        label = "" if index else told("comparison_text.worst")
        yield label, _said(rows[name], _score_in_words(rows[name]))


def _not_read(comparison: Comparison) -> Iterator[_Line]:
    """Tensors that fail because nothing is known of them."""
    unread = [row for row in comparison.rows if row.passed is False and was_not_read(row)]
    for index, row in enumerate(unread[:_LISTED]):
        label = "" if index else told("comparison_text.not_read")
        yield label, _said(row, sentence(row.score.detail))
    if len(unread) > _LISTED:
        yield "", few([row.reference for row in unread[_LISTED:]], _LISTED)


def _said(row: TensorComparison, text: str) -> str:
    return told("comparison_text.said", name=_named(row), text=text)


def _score_in_words(row: TensorComparison) -> str:
    # The scores of the other elements would praise a tensor whose NaNs are its fault.
    if row.score.status == "nonfinite" or not row.score.values:
        return sentence(row.difference or row.score.detail)
    return commas(told("comparison_text.score", cosine=_cosine(row), db=_db(row)), sentence(row.difference))


def _culprits(comparison: Comparison) -> Iterator[_Line]:
    verdict = comparison.verdict
    if verdict.introduces:
        yield told("comparison_text.introduced_by"), few(verdict.introduces, _LISTED)
    if verdict.victims:
        names = few(verdict.victims, _LISTED)
        yield told("comparison_text.victims"), told("comparison_text.victims_why", names=names)


def _alignment(comparison: Comparison) -> Iterator[_Line]:
    changed: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.layout:
            changed.setdefault(row.layout, []).append(row.reference)
    if changed:
        layouts = few([_layout(name, who) for name, who in changed.items()], _LISTED)
        yield told("comparison_text.layouts"), told("comparison_text.undone", layouts=layouts)
    by_value = [row for row in comparison.rows if row.how == "value"]
    by_shape = [row for row in comparison.rows if row.how == "shape"]
    if by_value or by_shape:
        least = min([*by_value, *by_shape], key=lambda row: row.confidence)
        doubt = told(
            "comparison_text.least_sure",
            reference=least.reference,
            candidate=least.candidate,
            confidence=f"{least.confidence:.2f}",
        )
        only_shape = told("comparison_text.by_shape", count=len(by_shape)) if by_shape else ""
        many = told("comparison_text.by_value", count=len(by_value), all=len(comparison.rows))
        yield told("comparison_text.matching"), semicolons(commas(many, only_shape), doubt)


def _layout(name: str, tensors: list[str]) -> str:
    who = ", ".join(tensors) if len(tensors) <= _NAMED_LAYOUT else count_of(len(tensors), "tensor")
    return f"{name} ({who})"


def _usual_layout(comparison: Comparison) -> str:
    """The change of layout that most tensors share: no news in a single row."""
    [(layout, count)] = Counter(row.layout for row in comparison.rows).most_common(1) or [("", 0)]
    return layout if 2 * count > len(comparison.rows) else ""


def _unmatched(comparison: Comparison) -> Iterator[_Line]:
    for side, names in (
        ("reference", comparison.unmatched_reference),
        ("candidate", comparison.unmatched_candidate),
    ):
        if names:
            text = told(f"comparison_text.only_{side}", count=len(names), names=few(names, _LISTED))
            yield told("comparison_text.unmatched"), text


def _named(row: TensorComparison) -> str:
    return f"{row.reference} ({row.op_type})" if row.op_type else row.reference


def _cells(row: TensorComparison, *, layout: str) -> tuple[RenderableType, ...]:
    mark = {
        True: Text(told("comparison_text.ok"), style="green"),
        False: Text(told("comparison_text.fail"), style="red"),
        None: Text("-", style="dim"),
    }[row.passed]
    turned = told("comparison_text.layout", layout=layout) if layout else ""
    remark = Text(semicolons(_cut(sentence(row.difference or row.score.detail)), turned))
    if row.role:
        role = told(f"comparison_text.{row.role}")
        remark = Text(f"[{role}] ", style="bold" if row.role == "introduces" else "dim") + remark
    return (
        str(row.order),
        Text(short_name(row.reference)),
        Text(row.op_type),
        *_numbers(row),
        mark,
        remark,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _REMARK_COLUMNS else text[: _REMARK_COLUMNS - 3].rstrip() + "..."


def _numbers(row: TensorComparison) -> tuple[str, ...]:
    numbers = (_cosine(row), _db(row), _short(row.score.values.get("relative_euclidean")))
    # In parentheses: of the other elements only, not of the tensor.
    partial = row.score.status == "nonfinite" and row.score.values
    return tuple(f"({number})" for number in numbers) if partial else numbers


def _cosine(row: TensorComparison) -> str:
    value = row.score.values.get("cosine")
    if value is None:
        return "-"
    return score_text("cosine", value, decimals=6)


def _db(row: TensorComparison) -> str:
    value = row.score.values.get("sqnr_db")
    return "-" if value is None else score_text("sqnr_db", value)


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value == 0 or 1e-3 <= value < 1e3 else f"{value:.1e}"


# The comparison as CSV.

_COLUMNS = (
    "order", "reference", "candidate", "node", "op_type", "reference_dtype", "candidate_dtype", "reference_shape",
    "candidate_shape", "matched_by", "confidence", "layout", "samples", "status", "passed", "kind", "difference",
    "role", "detail",
)  # fmt: skip


def comparison_csv(comparison: Comparison) -> str:
    """All rows, scored or not, and the unmatched tensors of both sides as rows with status missing."""
    metrics = list(dict.fromkeys(name for row in comparison.rows for name in row.score.values))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow((*_COLUMNS, *metrics))
    for row in comparison.rows:
        writer.writerow((*_cells_tables(row), *(_number(row.score.values.get(name)) for name in metrics)))
    for side, names in (
        ("reference", comparison.unmatched_reference),
        ("candidate", comparison.unmatched_candidate),
    ):
        for name in names:
            cells = {side: safe_cell(name), "status": "missing", "detail": f"only in the {side}"}
            writer.writerow([cells.get(column, "") for column in (*_COLUMNS, *metrics)])
    return out.getvalue()


def _cells_tables(row: TensorComparison) -> tuple[object, ...]:
    return (
        row.order,
        safe_cell(row.reference),
        safe_cell(row.candidate),
        safe_cell(row.node),
        safe_cell(row.op_type),
        *row.dtypes,
        *(_shape(shape) for shape in row.shapes),
        row.how,
        f"{row.confidence:.3f}",
        row.layout,
        row.samples,
        row.score.status,
        "" if row.passed is None else ("yes" if row.passed else "no"),
        row.kind,
        safe_cell(row.difference),
        row.role,
        safe_cell(row.score.detail),
    )


def _shape(shape: Iterable[int]) -> str:
    return "x".join(str(size) for size in shape)


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))
