"""Where a sweep has done enough: goals, the knee, and the point from which more brings little."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from roundoff.core.partial import Goal
from roundoff.errors import BadInput

__all__ = ["MOST_OF_IT", "default_goal", "drops", "knee", "levels_off", "parse_goal", "reaches"]

MOST_OF_IT = 0.95
"""A sweep levels off at the smallest count that has this share of all that any count gains over none."""

_SHARE = re.compile(r"(?P<number>[0-9]*\.?[0-9]+)\s*%")
_DEFAULT_SHARE, _DEFAULT_DB = "99%", "20"


def default_goal(score: str) -> str:
    """What is asked for when nobody says: 99 % of float; in decibels, of which float has endless ones, 20."""
    return _DEFAULT_DB if score == "sqnr_db" else _DEFAULT_SHARE


def parse_goal(text: str, *, score: str, float_score: float | None, higher_is_better: bool) -> Goal:
    """Read a goal: ``99%`` of the float network's score, or a score.

    Where lower is better, a share allows for as much more: 99% of a loss of 0.5 is 0.505.

    Raises:
        BadInput: It is neither, or there is no float score to take a share of.
    """
    stripped = text.strip()
    share = _SHARE.fullmatch(stripped)
    if share is None:
        try:
            value = float(stripped)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            what = f"--goal {text!r} is neither a share of the float score nor a score."
            raise BadInput(what, fix="write 99% or a score such as 0.78")
        return Goal(stripped, value)
    part = float(share["number"]) / 100
    if not 0 < part <= 1:
        raise BadInput(f"--goal {text!r} is not a share of the float score.", fix="write up to 100%, e.g. 99%")
    # Anything reaches a share of nothing.
    empty = float_score == 0 and higher_is_better
    if float_score is None or not math.isfinite(float_score) or float_score < 0 or empty:
        said = "none" if float_score is None else f"{float_score:g}"
        what = f"--goal {text} is a share of the float network's {score}, which is {said}."
        raise BadInput(what, fix="give a score to reach, e.g. --goal 20")
    return Goal(stripped, float_score * part if higher_is_better else float_score / part)


def reaches(score: float, goal: Goal, *, higher_is_better: bool) -> bool:
    """Whether a score is good enough."""
    return score >= goal.value if higher_is_better else score <= goal.value


def knee(scores: Sequence[float], goal: Goal, *, higher_is_better: bool) -> int | None:
    """The smallest count whose score reaches the goal."""
    good = (reaches(score, goal, higher_is_better=higher_is_better) for score in scores)
    return next((count for count, reached in enumerate(good) if reached), None)


def levels_off(scores: Sequence[float], *, higher_is_better: bool) -> int | None:
    """The smallest count with most of what is gained by any; None when nothing is.

    Endless scores, as signal to noise without any noise, count as the best of the others.
    """
    gains = [(score - scores[0]) * (1 if higher_is_better else -1) for score in scores]
    most = max((gain for gain in gains if math.isfinite(gain)), default=0.0) or max(gains, default=0.0)
    if not most > 0:
        return None
    return next(count for count, gain in enumerate(gains) if gain >= MOST_OF_IT * most)


def drops(scores: Sequence[float], *, higher_is_better: bool) -> tuple[int, ...]:
    """Counts whose score is worse than that of the count before."""
    sign = 1 if higher_is_better else -1
    pairs = pairwise(scores)
    return tuple(count for count, (before, after) in enumerate(pairs, 1) if sign * after < sign * before)
