"""Scores as text: as many digits as mean something, and never rounded up to perfect."""

import math
from collections.abc import Sequence

from roundoff.core.wording import EXACT_DB

__all__ = ["BLOCKS", "PLAIN_BLOCKS", "score_text", "share_text", "text_curve"]

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "_.-~=+*#"
"""The same heights for terminals that know ASCII alone."""

# Scores up to 1 whose distance from 1 is what matters.
_NEAR_ONE = frozenset({"cosine", "same_top1", "within_1e3", "within_5e3"})

_FIVE_DECIMALS = 100_000
# Of a mean over many samples.
_FLOAT_NOISE = 1e-12


def score_text(name: str, value: float | None) -> str:
    """A score in a table.

    Args:
        name: Of the score.
        value: Its value; nothing is shown for None.
    """
    if value is None:
        return ""
    if name.endswith("_db"):
        return f">{EXACT_DB:.0f}" if value > EXACT_DB else f"{value:.1f}"
    if name in _NEAR_ONE and math.isfinite(value):
        return _down(value)
    if name == "accuracy":
        return share_text(value)
    return f"{value:.4g}"


def _down(value: float) -> str:
    """Five decimals, rounded down: 1.00000 is shown only for what really is 1."""
    nearest = round(value * _FIVE_DECIMALS)
    # A mean of 29 of 100 is a little below 0.29, and means it.
    exact = math.isclose(value * _FIVE_DECIMALS, nearest, rel_tol=_FLOAT_NOISE) and (nearest / _FIVE_DECIMALS < 1)
    return f"{(nearest if exact else math.floor(value * _FIVE_DECIMALS)) / _FIVE_DECIMALS:.5f}"


def share_text(share: float) -> str:
    """A share in per cent with two decimals, 100 only for what really is all."""
    percent = 100 * share
    return f"{99.99 if 99.99 < percent < 100 else percent:.2f}%"


def text_curve(
    values: Sequence[float | None],
    limits: tuple[float, float],
    *,
    width: int,
    higher_is_better: bool = True,
    blocks: str = BLOCKS,
) -> str:
    """A curve in one line; good values are high, whichever way the score goes.

    Args:
        values: From left to right; where several share a place the worst of them is shown, where none is known a
            blank.
        limits: The smallest and the largest value that all curves to be compared have.
        width: At most so many characters.
        higher_is_better: Which way the score is better.
        blocks: Characters of growing height.
    """
    low, high = limits
    columns = min(width, len(values))
    line = []
    for column in range(columns):
        part = values[column * len(values) // columns : (column + 1) * len(values) // columns]
        known = [value for value in part if value is not None]
        if not known:
            line.append(" ")
            continue
        worst = min(known) if higher_is_better else max(known)
        height = _height(worst, low, high)
        line.append(blocks[round((height if higher_is_better else 1 - height) * (len(blocks) - 1))])
    return "".join(line)


def _height(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1."""
    if not low < high:
        return 1.0
    return (min(max(value, low), high) - low) / (high - low)
