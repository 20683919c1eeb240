"""What it brings to leave more and more of a network in float, or to raise it to 16 bits, as data."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from roundoff.core.coverage import Judgement
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.measure.metrics import Metric, get_metric, judging, require
from roundoff.measure.rows import ROW_FIELDS
from roundoff.messages.message import Message, english, message
from roundoff.run.evaluators import Evaluator

Raise = Literal["float", "s16", "u16"]


@dataclass(frozen=True, slots=True)
class ScoreGoal:
    """What a score has to reach.

    Attributes:
        text: As the user wrote it: ``99%`` of the float score, or a score.
        value: The score to reach.
    """

    text: str
    value: float


@dataclass(frozen=True, slots=True)
class PartialStep:
    """The network with the first so many subjects changed.

    Attributes:
        count: How many.
        subject: The one that was added last; empty for the fully quantized network.
        op_type: The operation of the node it is on; empty when that is not known.
        quantizers: Names of the quantizers changed in this step, which earlier ones left as they were.
        score: The score.
        share: Score over that of the float network; None where that says nothing.
        scores: Other scores that were measured, by name.
    """

    count: int
    subject: str
    op_type: str
    quantizers: tuple[str, ...]
    score: float
    share: float | None = None
    scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartialQuantization:
    """Scores with more and more subjects changed.

    Attributes:
        reference: Where the float network came from.
        samples: How many samples were used.
        score: What is measured: ``cosine``, ``sqnr_db``, ``same_top1``, ``accuracy``, or the evaluator's.
        higher_is_better: Which way it is better.
        float_score: The score of the float network.
        to: What subjects are changed to.
        ranking: Where their order comes from, in words.
        subjects: All subjects in that order, also those that were not tried.
        steps: In order of their counts, from 0.
        goal: What is to be reached.
        knee: The smallest count whose score reaches the goal; None when none does.
        levels_off: The smallest count with 95 % of what any count gains over none; None when nothing is gained.
        drops: Counts whose score is worse than that of the count before; empty when it rises all the way.
        complete: Whether all counts that were asked for were tried.
        exact_weights: Whether the float weights are the values of their codes already, so that the float network
            is not the one before quantization.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
        judgement: What it rests on, and whether that allows a verdict; None in documents of older versions.
    """

    reference: str
    samples: int
    score: str
    higher_is_better: bool
    float_score: float
    to: Raise
    ranking: Message
    subjects: tuple[str, ...]
    steps: tuple[PartialStep, ...]
    goal: ScoreGoal
    knee: int | None
    levels_off: int | None
    drops: tuple[int, ...]
    complete: bool
    exact_weights: bool = False
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()
    judgement: Judgement | None = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """The subjects to change: up to the knee, else up to where the score levels off."""
        count = self.knee if self.knee is not None else self.levels_off
        return tuple(step.subject for step in self.steps[1 : (count or 0) + 1])


# Where a sweep has done enough: goals, the knee, and the point from which more brings little.

MOST_OF_IT = 0.95
"""A sweep levels off at the smallest count that has this share of all that any count gains over none."""

_SHARE = re.compile(r"(?P<number>[0-9]*\.?[0-9]+)\s*%")
_DEFAULT_SHARE, _DEFAULT_DB = "99%", "20"


def default_goal(float_score: float) -> str:
    """What is asked for when nobody says: 99 % of float; in decibels, of which float has endless ones, 20."""
    return _DEFAULT_DB if float_score == math.inf else _DEFAULT_SHARE


def parse_goal(text: str, *, score: str, float_score: float | None, higher_is_better: bool) -> ScoreGoal:
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
            what = english("--goal {text!r} is neither a share of the float score nor a score.", text=text)
            raise BadInput(what, fix=english("write 99% or a score such as 0.78"))
        return ScoreGoal(stripped, value)
    part = float(share["number"]) / 100
    if not 0 < part <= 1:
        raise BadInput(
            english("--goal {text!r} is not a share of the float score.", text=text),
            fix=english("write up to 100%, e.g. 99%"),
        )
    # Anything reaches a share of nothing.
    empty = float_score == 0 and higher_is_better
    if float_score is None or not math.isfinite(float_score) or float_score < 0 or empty:
        said = "none" if float_score is None else f"{float_score:g}"
        what = english(
            "--goal {text} is a share of the float network's {score}, which is {said}.",
            text=text,
            score=score,
            said=said,
        )
        raise BadInput(what, fix=english("give a score to reach, e.g. --goal 20"))
    return ScoreGoal(stripped, float_score * part if higher_is_better else float_score / part)


def reaches(score: float, goal: ScoreGoal, *, higher_is_better: bool) -> bool:
    """Whether a score is good enough."""
    return score >= goal.value if higher_is_better else score <= goal.value


def knee(scores: Sequence[float], goal: ScoreGoal, *, higher_is_better: bool) -> int | None:
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


SHOWN_METRICS = ("cosine", "sqnr_db")
"""How outputs agree with those in float is always shown by these; the first one decides when nobody says."""

SAME_TOP1 = "same_top1"
"""The share of rows with the same highest class."""

ACCURACY = "accuracy"


def score_metrics(score: str) -> tuple[Metric, ...]:
    """What outputs are compared by: the score, where it is a metric, and those that are always shown.

    Raises:
        BadInput: There is no such score, or it needs what is not gathered of outputs.
    """
    known = (*judging(ROW_FIELDS), SAME_TOP1, ACCURACY)
    try:
        names = SHOWN_METRICS if score in ("", SAME_TOP1, ACCURACY) else (get_metric(score).name, *SHOWN_METRICS)
    except BadInput as error:
        raise BadInput(english("There is no score {score!r}.", score=score), fix=nearest(score, known)) from error
    return require(names, command="partial", offers=ROW_FIELDS)


def float_side(score: str) -> tuple[float | None, bool]:
    """What the float network scores against itself, None where that is measured, and whether higher is better."""
    if score == SAME_TOP1:
        return 1.0, True
    if score == ACCURACY:
        return None, True
    metric = get_metric(score)
    return metric.perfect, metric.direction == "higher"


_AS_GIVEN = message("partial.as_given")


@dataclass(frozen=True, slots=True)
class PartialSettings:
    """How to sweep.

    Attributes:
        to: What subjects are changed to.
        top: Try up to so many subjects; all when None.
        score: A metric of the outputs, ``same_top1``, or ``accuracy`` where there are labels; by default accuracy
            with labels, else the cosine.
        goal: What to reach, as users write it: ``99%`` of the float network's score, or a score; by default
            `roundoff.studies.partial.result.default_goal`.
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
    ranking: Message = _AS_GIVEN


def check_settings(settings: PartialSettings, *, labelled: bool) -> None:
    """Refuse settings that contradict each other, before any work.

    Args:
        settings: The settings; their labels may still be missing.
        labelled: Whether there are labels.

    Raises:
        BadInput: They do.
    """
    if settings.evaluator is not None and (labelled or settings.score):
        given = "labels" if labelled else english("the score {score!r}", score=settings.score)
        what = english("An evaluator and {given} were given, but only one of them can decide.", given=given)
        raise BadInput(what, fix=english("leave one of them out"))
    if settings.stop_at_goal and settings.evaluator is None:
        what = english(
            "Without an evaluator all networks are measured at once, so that none can be left out at the goal."
        )
        raise BadInput(what, fix=english("leave --stop-at-goal out, or measure fewer networks with --top"))
    if settings.score == ACCURACY and not labelled:
        raise BadInput(
            english("Accuracy needs to know what is right."), fix=english("give --labels FILE or --evaluator FILE")
        )
    score_metrics(settings.score)
    if not settings.score:
        perfect, higher = 1.0, True
    else:
        found, higher = float_side(settings.score)
        perfect = 1.0 if found is None else found
    if perfect == 0 and (not settings.goal or _SHARE.fullmatch(settings.goal.strip())):
        what = english("A share of the float network's {score}, which is 0, means nothing.", score=settings.score)
        raise BadInput(what, fix=english("give a score to reach, e.g. --goal 0.01"))
    if settings.goal:
        parse_goal(settings.goal, score=settings.score, float_score=perfect, higher_is_better=higher)
