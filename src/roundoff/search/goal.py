"""What a search has to reach: a largest drop from float, a smallest metric, or the evaluator's own rule."""

import math
import re
from dataclasses import dataclass

from roundoff.errors import BadInput

__all__ = ["DEFAULT_DROP", "DEFAULT_SQNR_DB", "TuneGoal", "make_goal"]

DEFAULT_DROP = "1%"
"""What is allowed when nobody says."""

DEFAULT_SQNR_DB = 20.0
"""What is asked for in decibels, of which float has endless ones."""

_SHARE = re.compile(r"(?P<number>[0-9]*\.?[0-9]+)\s*%")


@dataclass(frozen=True, slots=True)
class TuneGoal:
    """What a metric has to reach.

    Attributes:
        text: In words.
        value: The metric that is good enough; None where the evaluator's own rule decides.
    """

    text: str
    value: float | None


def make_goal(
    *, max_drop: str = "", min_metric: float | None = None, name: str, float_score: float, higher_is_better: bool
) -> TuneGoal:
    """The goal that options ask for.

    Args:
        max_drop: ``1%`` of the float score, or a difference in the metric's own unit such as ``0.01``.
        min_metric: A value of the metric; where lower is better the largest that will do.
        name: Of the metric.
        float_score: What the float network scores.
        higher_is_better: Which way it is better.

    Raises:
        BadInput: They cannot be read, or contradict each other.
    """
    sign = 1.0 if higher_is_better else -1.0
    if max_drop and min_metric is not None:
        raise BadInput("--max-drop and --min-metric were both given.", fix="leave one of them out")
    if not max_drop and min_metric is None and name == "sqnr_db":
        min_metric = DEFAULT_SQNR_DB
    if min_metric is not None:
        if not math.isfinite(min_metric):
            raise BadInput(f"--min-metric {min_metric} is not a value of the metric.", fix="write a number")
        word = "at least" if higher_is_better else "at most"
        beyond = sign * float_score < sign * min_metric
        # A quantized model is better than float by luck only; the best that there is serves all the same.
        return TuneGoal(f"{word} {min_metric:g}{', beyond float' if beyond else ''}", min_metric)
    text = (max_drop or DEFAULT_DROP).strip()
    share = _SHARE.fullmatch(text)
    drop = float(share["number"]) / 100 * abs(float_score) if share else _number(text)
    words = f"within {text} of float" if share else f"within {drop:g} of float"
    return TuneGoal(words, float_score - sign * drop)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        what = f"--max-drop {text!r} is neither a share of the float score nor a difference."
        raise BadInput(what, fix="write 1% for a hundredth of the float score, or 0.01 for that much less")
    return value
