"""Which rows of a comparison a table shows: those that fail always come before those that do not."""

import math
from bisect import bisect
from collections.abc import Sequence
from typing import Literal

from roundoff.core.comparison import TensorComparison
from roundoff.report.words import told

__all__ = ["Sort", "choose_rows", "left_out"]

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
