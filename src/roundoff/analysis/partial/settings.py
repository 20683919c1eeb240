"""How to sweep."""

import math
from dataclasses import dataclass

from roundoff.analysis.evaluation import Evaluator
from roundoff.analysis.partial.knee import parse_goal
from roundoff.core.partial import Raise
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest

__all__ = ["ACCURACY", "OUTPUT_SCORES", "PartialSettings", "check_settings"]

OUTPUT_SCORES = ("cosine", "sqnr_db", "same_top1")
"""How outputs agree with those in float; the last is the share of rows with the same highest class."""

ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class PartialSettings:
    """How to sweep.

    Attributes:
        to: What subjects are changed to.
        top: Try up to so many subjects; all when None.
        score: One of `OUTPUT_SCORES`, or ``accuracy`` where there are labels; by
            default accuracy with labels, else the cosine.
        goal: What to reach, as users write it: ``99%`` of the float network's score, or a score; by default
            `roundoff.analysis.partial.knee.default_goal`.
        stop_at_goal: Whether to end when it is reached. Only evaluators can; others measure all at once.
        evaluator: Measures each network.
        labels: The right class of each row of the outputs.
        samples: Use at most so many samples, the first ones; all when None.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
        ranking: Where the order of the subjects comes from, in words.
    """

    to: Raise = "float"
    top: int | None = 20
    score: str = ""
    goal: str = ""
    stop_at_goal: bool = False
    evaluator: Evaluator | None = None
    labels: Array | None = None
    samples: int | None = None
    max_memory: int | None = None
    threads: int | None = None
    ranking: str = "as given"


def check_settings(settings: PartialSettings, *, labelled: bool) -> None:
    """Refuse settings that contradict each other, before any work.

    Args:
        settings: The settings; their labels may still be missing.
        labelled: Whether there are labels.

    Raises:
        BadInput: They do.
    """
    if settings.evaluator is not None and (labelled or settings.score):
        given = "labels" if labelled else f"the score {settings.score!r}"
        what = f"An evaluator and {given} were given, but only one of them can decide."
        raise BadInput(what, fix="leave one of them out")
    if settings.stop_at_goal and settings.evaluator is None:
        what = "Without an evaluator all networks are measured at once, so that none can be left out at the goal."
        raise BadInput(what, fix="leave --stop-at-goal out, or measure fewer networks with --top")
    if settings.score == ACCURACY and not labelled:
        raise BadInput("Accuracy needs to know what is right.", fix="give --labels FILE or --evaluator FILE")
    if settings.score and settings.score not in (*OUTPUT_SCORES, ACCURACY):
        raise BadInput(
            f"There is no score {settings.score!r}.", fix=nearest(settings.score, (*OUTPUT_SCORES, ACCURACY))
        )
    if settings.goal:
        endless = settings.score == "sqnr_db"
        score = math.inf if endless else 1.0
        parse_goal(settings.goal, score=settings.score, float_score=score, higher_is_better=True)
