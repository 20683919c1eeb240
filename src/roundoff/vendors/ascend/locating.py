"""Where a table of results says that an error begins: at one operator, or little by little along the way."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roundoff.vendors.ascend.limits import farthest, least_cosine
from roundoff.vendors.ascend.rows import Columns, Row

__all__ = ["Located", "locate"]

_JUMP = 3.0
"""An operator whose output is this much farther off than its inputs makes the error itself."""


@dataclass(frozen=True, slots=True)
class Located:
    """What was found.

    Attributes:
        kind: ``none``, ``node`` or ``accumulated``.
        op: The operator at which the error begins, or becomes too large.
        distance: Relative Euclidean distance of its output.
        before: That of what it reads; NaN when unknown.
        reaches_end: Whether the last tensor is wrong, too.
        compared: How many tensors were compared.
        wrong: How many of them are wrong.
    """

    kind: Literal["none", "node", "accumulated"]
    op: str = ""
    distance: float = math.nan
    before: float = math.nan
    reaches_end: bool = False
    compared: int = 0
    wrong: int = 0


@dataclass(slots=True)
class _Operator:
    """Distances of what an operator reads and writes."""

    read: float = math.nan
    written: float = math.nan
    wrong: bool = False


def locate(rows: Sequence[Row], columns: Columns) -> Located:
    """Find where the error begins.

    Args:
        rows: A table in the order of execution, with cosine similarity and relative Euclidean distance.
        columns: Its columns.
    """
    cosine, distance = (
        columns.algorithms.index(name) for name in ("CosineSimilarity", "RelativeEuclideanDistance")
    )
    operators: dict[str, _Operator] = {}
    scored = [
        (row, float(row.values[cosine]), float(row.values[distance]))
        for row in rows
        if row.values and _are_numbers(row.values[cosine], row.values[distance])
    ]
    for row, score, away in scored:
        name, role, _ = row.tensor.rsplit(":", 2)
        operator = operators.setdefault(name, _Operator())
        if role == "input":
            operator.read = _larger(operator.read, away)
        else:
            operator.written = _larger(operator.written, away)
            operator.wrong |= score < least_cosine() or away > farthest()
    wrong = sum(operator.wrong for operator in operators.values())
    if not wrong:
        return Located("none", compared=len(scored))
    written = [name for name, operator in operators.items() if not math.isnan(operator.written)]
    ends_wrong = operators[written[-1]].wrong
    name, before, own = _first_wrong(operators)
    kind: Literal["node", "accumulated"] = "node" if own else "accumulated"
    return Located(kind, name, operators[name].written, before, ends_wrong, len(scored), wrong)


def _first_wrong(operators: dict[str, _Operator]) -> tuple[str, float, bool]:
    """The first wrong operator that makes its error itself, else the first; what it reads; which of the two."""
    previous = math.nan
    fallback = ("", math.nan, False)
    for name, operator in operators.items():
        before = previous if math.isnan(operator.read) else operator.read
        if operator.wrong:
            fallback = fallback if fallback[0] else (name, before, False)
            # Where nothing is known of what it reads, nothing before it can be blamed.
            if math.isnan(before) or operator.written > _JUMP * before:
                return name, before, True
        if not math.isnan(operator.written):
            previous = operator.written
    return fallback


def _larger(left: float, right: float) -> float:
    """The larger number; the other one where one is none."""
    return right if math.isnan(left) else max(left, right)


def _are_numbers(*texts: str) -> bool:
    try:
        return not any(math.isnan(float(text)) for text in texts)
    except ValueError:
        return False
