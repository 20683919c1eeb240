"""What a search has to reach: a largest drop from float, a smallest metric, or the evaluator's own rule."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure.inference import agreement_interval, mean_interval, two_sided_quantile
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import in_decibels, spaced_percent
from roundoff.search.judges import TrialJudge

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

    text: Message
    value: float | None


@dataclass(frozen=True, slots=True)
class _Metric:
    """What a goal is a value of: its name, which way it is better, and what it can be at all."""

    name: str
    higher_is_better: bool
    limits: tuple[float, float] | None


def make_goal(
    *,
    max_drop: str = "",
    min_metric: float | None = None,
    name: str,
    float_score: float,
    higher_is_better: bool,
    limits: tuple[float, float] | None = None,
) -> TuneGoal:
    """The goal that options ask for.

    Args:
        max_drop: ``1%`` of the float score, or a difference in the metric's own unit such as ``0.01``.
        min_metric: A value of the metric; where lower is better the largest that will do.
        name: Of the metric.
        float_score: What the float network scores.
        higher_is_better: Which way it is better.
        limits: Smallest and largest value it can have; None where nobody says.

    Raises:
        BadInput: They cannot be read, contradict each other, or ask for nothing.
    """
    sign, metric = 1.0 if higher_is_better else -1.0, _Metric(name, higher_is_better, limits)
    if max_drop and min_metric is not None:
        raise BadInput(
            english("--max-drop and --min-metric were both given."), fix=english("leave one of them out")
        )
    if not max_drop and min_metric is None and in_decibels(name):
        min_metric = DEFAULT_SQNR_DB
    if min_metric is not None:
        if not math.isfinite(min_metric):
            raise BadInput(
                english("--min-metric {min_metric} is not a value of the metric.", min_metric=min_metric),
                fix=english("write a number"),
            )
        word = "least" if higher_is_better else "most"
        _check_asked("--min-metric", f"{min_metric:g}", min_metric, metric)
        beyond = sign * float_score < sign * min_metric
        # A quantized model is better than float by luck only; the best that there is serves all the same.
        return TuneGoal(
            message(f"search.goal_{word}{'_beyond' if beyond else ''}", value=f"{min_metric:g}"), min_metric
        )
    text = (max_drop or DEFAULT_DROP).strip()
    share = _SHARE.fullmatch(text)
    drop = float(share["number"]) / 100 * abs(float_score) if share else _number(text)
    if share and higher_is_better and not float_score:
        raise BadInput(
            english("A share of the float network's {score}, which is 0, means nothing.", score=name),
            fix=english("check labels, evaluator and the order of the samples: the float network has to score"),
        )
    if share and higher_is_better and drop >= abs(float_score):
        raise BadInput(
            english("--max-drop {text} allows to lose all that the float network scores.", text=text),
            fix=english("write less than 100%, e.g. 1%"),
        )
    _check_asked("--max-drop", text, float_score - sign * drop, metric)
    words = message("search.goal_within", drop=spaced_percent(text) if share else f"{drop:g}")
    return TuneGoal(words, float_score - sign * drop)


def _check_asked(option: str, text: str, value: float, metric: _Metric) -> None:
    """Refuse what every model reaches, or none can: the metric is never worse, or never better.

    Raises:
        BadInput: It asks for that.
    """
    sign = 1.0 if metric.higher_is_better else -1.0
    if metric.limits is None:
        if in_decibels(metric.name) and value <= 0:
            raise BadInput(
                english("{option} {text} lets noise be as loud as the signal.", option=option, text=text),
                fix=english("ask for more, e.g. --min-metric 20"),
            )
        return
    worst, best = metric.limits if metric.higher_is_better else metric.limits[::-1]
    gaps = {"option": option, "text": text, "name": metric.name}
    if sign * value <= sign * worst:
        raise BadInput(
            english(
                "{option} {text} asks for nothing: {name} is never worse than {worst:g}.", worst=worst, **gaps
            ),
            fix=english("ask for more, e.g. --max-drop 1%"),
        )
    if sign * value > sign * best:
        raise BadInput(
            english("{option} {text} cannot be reached: {name} is never better than {best:g}.", best=best, **gaps),
            fix=english("ask for less, e.g. --max-drop 1%"),
        )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        what = english("--max-drop {text!r} is neither a share of the float score nor a difference.", text=text)
        raise BadInput(
            what, fix=english("write 1% for a hundredth of the float score, or 0.01 for that much less")
        )
    return value


# When enough samples were run to know whether a candidate meets its goal.
#
# Samples come in random order out of a finite set, and each is compared with the float model on the same sample.
# Where values have known limits, a bet against the claim that the goal is met (and one against the opposite) is
# carried on from sample to sample: under a true claim its wealth grows twentyfold with a probability of at most
# 5 %, however often one looks (Ville's inequality; Waudby-Smith and Ramdas, "Confidence sequences for sampling
# without replacement", 2020). When what is left could not change the outcome any more, the bet is won for certain.
# Without known limits it is Student's t, with the error probability shared among all looks.
#
# A trial that is given up stays so, and that is what the proof is for. One that seems to meet the goal only goes
# on to the next step, and before it is delivered all samples are run: it passes as soon as that is likely.

ERROR_PROBABILITY = 0.05
"""How probable it may be that a trial is given up although it would meet the goal."""

_FIRST_LOOK = 32
# A trial passes for the time being when its mean lies so many standard errors above what is needed, after so many.
_LIKELY, _FEWEST_TO_PASS = 1.0, 128
# A bet of more than this share of all one has loses it to a single surprise.
_LARGEST_STAKE = 0.75
# As if so many samples of this variance had been seen before the first.
_PRIOR_VARIANCE = 0.05


def look_sizes(total: int) -> tuple[int, ...]:
    """After how many samples a trial is looked at: 32, 64, 96, then half or a third as many more; at last all."""
    sizes = []
    size, step = _FIRST_LOOK, _FIRST_LOOK
    while size < total:
        sizes.append(size)
        if size == 4 * step:
            step *= 2
        size += step
    return (*sizes, total)


def decide(
    gains: Array, *, needed: float, total: int, limits: tuple[float, float] | None, looks: int
) -> bool | None:
    """Whether the mean gain over all samples is at least what is needed; None while that is open.

    Args:
        gains: By how much each sample run so far is better than in float, in random order, of shape (n,).
        needed: The mean gain over all samples that meets the goal; mostly negative.
        total: How many samples there are.
        limits: Smallest and largest gain that a sample can have; None when that is not known.
        looks: How often this is asked for one candidate.
    """
    if gains.size >= total:
        return bool(gains.mean() >= needed) if gains.size else None
    if not np.isfinite(gains).all():
        return None
    if gains.size >= _FEWEST_TO_PASS and _distance(gains, needed, total) >= _LIKELY:
        return True
    if limits is None:
        return _by_students_t(gains, needed=needed, total=total, looks=looks)
    return _by_betting(gains, needed=needed, total=total, limits=limits)


def _by_betting(gains: Array, *, needed: float, total: int, limits: tuple[float, float]) -> bool | None:
    low, high = limits
    if not low < high:
        return None
    values, claim = (gains - low) / (high - low), (needed - low) / (high - low)
    if _refuted(values, claim, total):
        return False
    # The same bet on the other side: that what is missing from 1 is more than is allowed.
    return True if _refuted(1 - values, 1 - claim, total) else None


def _refuted(values: Array, claim: float, total: int) -> bool:
    """Whether values between 0 and 1 refute that the mean of all is at least the claim."""
    wealth, seen, squares = 0.0, 0.0, 0.0
    for count, value in enumerate(values.tolist()):
        # What the mean of the rest has to be if the claim is true.
        rest = (total * claim - seen) / (total - count)
        if rest > 1:
            return True
        if rest <= 0:
            return False
        mean = (seen + 0.5) / (count + 1)
        variance = (squares + _PRIOR_VARIANCE) / (count + 1)
        edge = rest - mean
        stake = min(max(edge / (variance + edge * edge), 0.0), _LARGEST_STAKE / max(1 - rest, 1e-9))
        wealth += math.log1p(-stake * (value - rest))
        if wealth >= -math.log(ERROR_PROBABILITY):
            return True
        seen += value
        squares += (value - mean) ** 2
    return (total * claim - seen) / (total - values.size) > 1 if values.size < total else seen / total < claim


def _by_students_t(gains: Array, *, needed: float, total: int, looks: int) -> bool | None:
    if gains.size < 2:
        return None
    distance = _distance(gains, needed, total)
    reach = two_sided_quantile(gains.size - 1, 1 - 2 * ERROR_PROBABILITY / looks)
    return None if abs(distance) <= reach else distance > 0


def _distance(gains: Array, needed: float, total: int) -> float:
    """How many standard errors the mean lies above what is needed; 0 where all gains are the same."""
    spread = float(gains.std(ddof=1))
    # Drawn without replacement: the more of the set was seen, the less is open.
    error = spread / math.sqrt(gains.size) * math.sqrt(1 - gains.size / total)
    return (float(gains.mean()) - needed) / error if error > 0 else 0.0


# What measured values say of a candidate: its score, its loss, and whether it meets the goal.

# Samples come in this order whoever asks, so that a search can be repeated.
_SEED = 0


def loss_interval(losses: Array, judge: TrialJudge) -> tuple[float, float] | None:
    """Where the mean loss lies for many more samples like these.

    Right and wrong answers: that none of a few changed does not prove that none will.
    """
    return agreement_interval(losses) if judge.limits == (0.0, 1.0) else mean_interval(losses)


class GoalReading:
    """Reads values of candidates, measured in a fixed random order of the samples.

    Args:
        judge: What measured them.
        goal: What is to be reached.
        early: Whether a candidate may be decided before all samples were run.
        indices: Which samples are used; all of them by default, and always where samples have no values.

    Attributes:
        order: Indices of the samples in the order they are run.
        looks: After how many values a candidate is looked at; the last number is that of all.
        float_score: What the float network scores.
    """

    def __init__(
        self, judge: TrialJudge, goal: TuneGoal, *, early: bool = True, indices: Sequence[int] | None = None
    ) -> None:
        self._judge, self._goal = judge, goal
        self._sign = 1.0 if judge.higher_is_better else -1.0
        chosen = np.arange(judge.total) if indices is None else np.array(indices)
        self.order = np.random.default_rng(_SEED).permutation(chosen)
        looks = look_sizes(chosen.size) if judge.by_sample else (1,)
        self.looks = looks if early else looks[-1:]
        values = judge.float_values().reshape(-1)
        self._float = values[self.order] if judge.by_sample else values
        self.float_score = float(self._float.mean())
        self._limits = self._gain_limits()
        # Strategies are asked from the start again and again.
        self._known: dict[bytes, bool | None] = {}

    @property
    def everything(self) -> int:
        """How many values there are of a candidate that was measured wholly."""
        return self.looks[-1]

    def samples(self, values: int) -> int:
        """How many samples so many values stand for."""
        return values if self._judge.by_sample else self._judge.total * values

    def score(self, values: Array) -> float:
        """What values of some samples suggest for all: the score in float, and what they gain over it."""
        if values.size == self.everything:
            # As measured: a detour over the gains might change the last bit, and with it what a user's rule says.
            return float(values.mean())
        score = self.float_score + self._sign * float(self._gains(values).mean())
        return (
            score if self._judge.limits is None else min(max(score, self._judge.limits[0]), self._judge.limits[1])
        )

    def loss(self, score: float) -> float:
        """How much worse than float a score is, as the user's rule says if there is one."""
        rule = self._judge.satisfied(self.float_score, score)
        return self._sign * (self.float_score - score) if rule is None else rule[1]

    @property
    def worst(self) -> float:
        """A score worse than any."""
        return -self._sign * float("inf")

    def better(self, left: float, right: float) -> bool:
        """Whether a score is better than another."""
        return self._sign * left > self._sign * right

    def interval(self, values: Array) -> tuple[float, float] | None:
        """Where the loss lies for many more samples like these; None where samples have no values."""
        return loss_interval(-self._gains(values), self._judge) if self._judge.by_sample else None

    def decided(self, values: Array) -> tuple[bool, int] | None:
        """Whether the goal is met, and after how many values that was clear; None while it is open.

        All values together have the last word; where they agree with the first that were clear, it stays with
        these, so that a strategy is told the same whenever it is asked again.
        """
        early = None
        for size in self.looks:
            if size > values.size:
                return early
            met = self._met(values[:size])
            if size == self.everything:
                return early if early is not None and early[0] == met else (bool(met), size)
            if met is not None and early is None:
                early = met, size
        return early

    def _met(self, values: Array) -> bool | None:
        key = values.tobytes()
        if key not in self._known:
            self._known[key] = self._find_met(values)
        return self._known[key]

    def _find_met(self, values: Array) -> bool | None:
        whole = values.size == self.everything
        rule = self._judge.satisfied(self.float_score, self.score(values)) if whole else None
        if rule is not None:
            return rule[0]
        if self._goal.value is None:
            return None
        # Sums in another order may differ in the last bits from what the goal was computed by.
        slack = 1e-9 * max(1.0, abs(self._goal.value))
        needed = self._sign * (self._goal.value - self.float_score) - slack
        return decide(
            self._gains(values), needed=needed, total=self.everything, limits=self._limits, looks=len(self.looks)
        )

    def _gains(self, values: Array) -> Array:
        return np.asarray(self._sign * (values - self._float[: values.size]))

    def _gain_limits(self) -> tuple[float, float] | None:
        if self._judge.limits is None:
            return None
        low, high = sorted(self._sign * limit for limit in self._judge.limits)
        floats = self._sign * self._float
        return low - float(floats.max()), high - float(floats.min())
