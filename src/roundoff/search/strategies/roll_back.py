"""The way of AMCT's auto-calibration: all layers quantized, other calibration algorithms, layers back to float.

Which layers go back is asked of a stepper, the vendor's bisection or a class of the user's. Where bisection ends
with nothing although the loss did not shrink evenly, counts near the best one are looked at, too.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from roundoff.messages.message import english
from roundoff.run.evaluators import roll_back_answer
from roundoff.search.strategies.strategy import BudgetSpent

RollBackStatus = Literal["ALL_QUANTIZED", "PARTIAL_ROLL_BACK", "ALL_ROLL_BACK", "STOPPED"]
"""All layers stay quantized; some went back to float; only all in float would do; the budget ended first."""

Ranking = Sequence[tuple[str, float]]
"""The layers, most sensitive first, with numbers that are higher for less sensitive ones."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """A model to try.

    Attributes:
        config: For every layer whether it stays quantized.
        algorithm: The calibration algorithm that all layers have instead of their own; empty for that.
        original: Whether it is the float model itself, which was measured before and costs no trial.
    """

    config: Mapping[str, bool]
    algorithm: str = ""
    original: bool = False


@dataclass(frozen=True, slots=True)
class RollBackTrial:
    """One model that was tried.

    Attributes:
        roll_back_config: For every layer whether it stayed quantized.
        satisfied: Whether it was good enough.
        loss: What was lost, as the evaluator says.
        algorithm: The calibration algorithm that all layers had instead of their own; empty for that.
    """

    roll_back_config: Mapping[str, bool]
    satisfied: bool
    loss: float
    algorithm: str = ""

    @property
    def floats(self) -> int:
        """How many layers went back to float."""
        return sum(not stays for stays in self.roll_back_config.values())

    @property
    def key(self) -> tuple[str, frozenset[str]]:
        """What tells it from other models."""
        return self.algorithm, frozenset(name for name, stays in self.roll_back_config.items() if not stays)

    def better_than(self, other: "RollBackTrial | None") -> bool:
        """Whether to deliver this one rather than the other: good enough, then fewer in float, then less lost."""
        if other is None:
            return True
        if self.satisfied != other.satisfied:
            return self.satisfied
        if self.satisfied:
            return (self.floats, self.loss) < (other.floats, other.loss)
        return self.loss < other.loss


class RollBackStepper(Protocol):
    """Says which layers go back to float next."""

    def initialize(self, ranking_info: Mapping[str, float]) -> None:
        """Begin with a ranking."""
        ...

    def update_quant_config(self, metric_eval: tuple[bool, float]) -> Mapping[str, Any]:
        """The next ``roll_back_config``, and by ``stop_flag`` whether it is the last."""
        ...


def roll_back(
    layers: Sequence[str],
    rank: Callable[[], Ranking],
    stepper: RollBackStepper,
    *,
    alternatives: Sequence[str] = (),
    look_again: Callable[[], None] | None = None,
) -> Generator[RollBack, RollBackTrial, RollBackStatus]:
    """Search for a model that is good enough and no better one of which is proposed.

    Args:
        layers: All layers that are quantized.
        rank: Ranks them, once the model with all of them quantized was tried.
        stepper: Proposes layers that go back to float.
        alternatives: Algorithms that all layers are tried with before any goes back to float.
        look_again: Told when counts that bisection left out are tried; None where the stepper does not bisect.
    """
    trials: list[RollBackTrial] = []

    def remembered(candidate: RollBack) -> Generator[RollBack, RollBackTrial, RollBackTrial]:
        trials.append((yield candidate))
        return trials[-1]

    first = yield from remembered(RollBack(dict.fromkeys(layers, True)))
    ranking = rank()
    try:
        base = yield from _other_algorithms(first, alternatives, remembered)
    except BudgetSpent:
        return "STOPPED"
    if base.satisfied:
        return "ALL_QUANTIZED"
    if not ranking:
        yield from remembered(_float_model(first.roll_back_config))
        return "ALL_ROLL_BACK"
    stepper.initialize(dict(ranking))
    try:
        status = yield from _follow(stepper, base, [name for name, _ in ranking], remembered)
    except BudgetSpent:
        status = "PARTIAL_ROLL_BACK" if any(trial.satisfied for trial in trials) else "STOPPED"
    left_out = [] if look_again is None else _left_out(trials, len(ranking), base.algorithm)
    if look_again is None or not left_out:
        return status
    look_again()
    try:
        for count in left_out:
            config = {name: place >= count for place, (name, _) in enumerate(ranking)}
            trial = yield from remembered(RollBack(config, base.algorithm))
            if trial.satisfied:
                return "PARTIAL_ROLL_BACK"
    except BudgetSpent:
        pass
    return status


def _other_algorithms(
    first: RollBackTrial, algorithms: Sequence[str], remembered: "_Remembered"
) -> Generator[RollBack, RollBackTrial, RollBackTrial]:
    """The first trial that is good enough with all layers quantized, else the one that loses least."""
    best = first
    for algorithm in () if first.satisfied else algorithms:
        trial = yield from remembered(RollBack(first.roll_back_config, algorithm))
        if trial.satisfied:
            return trial
        best = trial if trial.loss < best.loss else best
    return best


_Remembered = Callable[[RollBack], Generator[RollBack, RollBackTrial, RollBackTrial]]


def _follow(
    stepper: RollBackStepper, last: RollBackTrial, layers: Sequence[str], remembered: _Remembered
) -> Generator[RollBack, RollBackTrial, RollBackStatus]:
    """Try what the stepper proposes until it ends."""
    tried: set[frozenset[str]] = set()
    of = english("update_quant_config() of {kind}", kind=type(stepper).__name__)
    while True:
        answer = stepper.update_quant_config((last.satisfied, last.loss))
        proposed, stop = roll_back_answer(answer, layers, tried=tried, of=of)
        tried.add(frozenset(name for name, stays in proposed.items() if not stays))
        if not any(proposed.values()):
            yield from remembered(_float_model(proposed))
            return "ALL_ROLL_BACK"
        if not stop or proposed != last.roll_back_config:
            last = yield from remembered(RollBack(proposed, last.algorithm))
        if stop:
            if not last.satisfied:
                return "ALL_ROLL_BACK"
            return "PARTIAL_ROLL_BACK" if last.floats else "ALL_QUANTIZED"


def _float_model(layers: Mapping[str, bool]) -> RollBack:
    """With all layers in float, the model is the original."""
    return RollBack(dict.fromkeys(layers, False), original=True)


def _left_out(trials: Sequence[RollBackTrial], layers: int, algorithm: str) -> list[int]:
    """Counts near the best one, a logarithm of them; none where one was good enough, or the loss shrank evenly."""
    tried = {
        trial.floats: trial.loss
        for trial in trials
        if trial.algorithm == algorithm and trial.floats < len(trial.roll_back_config)
    }
    uneven = any(tried[more] > tried[fewer] for fewer, more in pairwise(sorted(tried)))
    if not uneven or any(trial.satisfied and trial.floats < layers for trial in trials):
        return []
    promising = min(tried, key=lambda count: (tried[count], count))
    untried = sorted(set(range(1, layers)) - set(tried), key=lambda count: (abs(count - promising), count))
    return untried[: int(math.log2(layers)) + 1]
