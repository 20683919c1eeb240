"""A finished comparison in a few lines: how much was compared, and where it is worst."""

import math
import textwrap

from roundoff.vendors.ascend.advisor import Advice
from roundoff.vendors.ascend.algorithms import SCALAR
from roundoff.vendors.ascend.limits import least_cosine
from roundoff.vendors.ascend.locating import Located, locate
from roundoff.vendors.ascend.running import Result

__all__ = ["summarize", "wrapped"]

_SHOWN = 3
_WIDTH = 79


def summarize(result: Result) -> list[str]:
    """Lines about a result, each with a word in front."""
    compared = [row for row in result.rows if row.values]
    lines = [f"compared  {len(compared)} tensors, {len(result.rows) - len(compared)} rows without a comparison"]
    remarks = sum(row.reason not in ("", SCALAR) for row in compared)
    if remarks:
        lines.append(f"remarks   {remarks} compared tensors have one in CompareFailReason")
    names = result.columns.algorithms
    if "CosineSimilarity" in names:
        place, limit = names.index("CosineSimilarity"), least_cosine()
        scores = [(float(row.values[place]), row.tensor) for row in compared if _is_number(row.values[place])]
        bad = [score for score in scores if score[0] < limit]
        without = f", {count} without a number" if (count := len(compared) - len(scores)) else ""
        if compared:
            lines.append(f"cosine    {len(bad) or 'none'} below {limit}{without}")
        lines += [f"lowest    {value:.6f} at {tensor}" for value, tensor in sorted(scores)[: _SHOWN if bad else 1]]
        if "RelativeEuclideanDistance" in names:
            lines += _begins(locate(result.rows, result.columns))
    overflow = [row.tensor for row in result.rows if row.overflow == "YES"]
    if overflow:
        more = f" and {len(overflow) - _SHOWN} more" if len(overflow) > _SHOWN else ""
        lines.append(f"overflow  {', '.join(overflow[:_SHOWN])}{more}")
    if result.advice is not None:
        lines += wrapped(result.advice)
    return lines


def _begins(found: Located) -> list[str]:
    """Where the error begins, and how many only pass it on."""
    if found.kind == "none":
        return []
    victims = f"{found.wrong - 1} others are wrong" if found.wrong > 1 else "no other is wrong"
    how = "is introduced by" if found.kind == "node" else "accumulates, and is too large from"
    return [f"error     {how} {found.op}; {victims}"]


def wrapped(advice: Advice) -> list[str]:
    """Advice in lines that fit a terminal."""
    return [
        line
        for part in advice.lines
        for line in textwrap.wrap(f"advice    {part}", _WIDTH, subsequent_indent=" " * 10)
    ]


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
