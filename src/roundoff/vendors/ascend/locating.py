"""Where a table of results says that an error begins: at one operator, or little by little along the way."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roundoff.vendors.ascend.algorithms import ALL_ZERO, NOT_COMPUTED
from roundoff.vendors.ascend.limits import farthest, least_cosine, other_limits
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
        distance: Relative Euclidean distance of its output; infinite where only the golden one is finite, or zero.
        before: That of what it reads; NaN when unknown.
        reaches_end: Whether the last tensor is wrong, too.
        compared: How many tensors were compared.
        wrong: How many of them are wrong.
        hint: The first tensor, by its operator, that is beyond another of the vendor's limits while none is wrong.
        hinted: Which limit.
    """

    kind: Literal["none", "node", "accumulated"]
    op: str = ""
    distance: float = math.nan
    before: float = math.nan
    reaches_end: bool = False
    compared: int = 0
    wrong: int = 0
    hint: str = ""
    hinted: str = ""


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
    operators: dict[str, _Operator] = {}
    scored = [(row, *scores) for row in rows if (scores := _scores(row, columns)) is not None]
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
        hint, hinted = _hint([row for row, _, _ in scored], columns)
        return Located("none", compared=len(scored), hint=hint, hinted=hinted)
    written = [name for name, operator in operators.items() if not math.isnan(operator.written)]
    ends_wrong = operators[written[-1]].wrong
    name, before, own = _first_wrong(operators)
    kind: Literal["node", "accumulated"] = "node" if own else "accumulated"
    return Located(kind, name, operators[name].written, before, ends_wrong, len(scored), wrong)


def _hint(rows: Sequence[Row], columns: Columns) -> tuple[str, str]:
    for row in rows:
        found = dict(zip(columns.algorithms, row.values, strict=True))
        name, role, _ = row.tensor.rsplit(":", 2)
        for algorithm, limit in other_limits().items():
            if role == "output" and _number(found.get(algorithm, "")) > limit:
                return name, f"{algorithm} of {float(found[algorithm]):.4g}, more than {limit:g}"
    return "", ""


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


def _scores(row: Row, columns: Columns) -> tuple[float, float] | None:
    """Cosine similarity and distance of a row; None when it tells neither right from wrong."""
    if not row.values:
        return None
    found = dict(zip(columns.algorithms, row.values, strict=True))
    cosine, distance = found["CosineSimilarity"], found["RelativeEuclideanDistance"]
    if cosine == NOT_COMPUTED and ALL_ZERO in row.reason:
        # One side is nothing but zeros; where it is the golden one, the vendor gives no distance.
        away = _number(distance)
        return None if math.isnan(away) else (0.0, away or math.inf)
    scores = _number(cosine), _number(distance)
    if not any(map(math.isnan, scores)):
        return scores
    golden = found.get("StandardDeviation", "").rpartition("(")[2].partition(";")[0]
    return (0.0, math.inf) if cosine != NOT_COMPUTED and math.isfinite(_number(golden)) else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
