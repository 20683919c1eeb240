"""The loop of a search: ask the strategy, try, remember; at the end make sure of the answer."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.search.bench import Bench
from roundoff.search.problem import Problem
from roundoff.search.recipe_text import describe
from roundoff.search.strategies.strategy import Strategy

__all__ = ["Budget", "Found", "run_search"]

# A strategy may ask for a recipe again to be sure of it; one that does nothing else would never end.
_MOST_REPEATS = 5
# Costs that differ less are the same, summed up in another order.
_COST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may take.

    Attributes:
        max_trials: Most recipes to try, those of earlier runs among them; None for no limit.
        deadline: When no new trial is begun any more, in the time of `time.monotonic`; None for no limit.
    """

    max_trials: int | None = None
    deadline: float | None = None

    def exhausted(self, trials: int) -> str:
        """Why nothing new may be tried; empty when something may."""
        if self.max_trials is not None and trials >= self.max_trials:
            return f"after {counted(trials, 'trial')}, as --max-trials says"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "when the time was over"
        return ""


@dataclass(frozen=True, slots=True)
class Found:
    """How a search ended.

    Attributes:
        answer: What it found.
        trials: All of it, in the order of numbers.
        stopped: Why it ended early; empty when it did not.
    """

    answer: Trial
    trials: tuple[Trial, ...]
    stopped: str


def run_search(
    problem: Problem,
    bench: Bench,
    strategy: Strategy,
    *,
    budget: Budget | None = None,
    on_best: Callable[[Trial], None] | None = None,
    on_trial: Callable[[Trial, Trial], None] | None = None,
) -> Found:
    """Search until the strategy has nothing more to try, or the budget is used up.

    The answer is the cheapest recipe that meets the goal on all samples, else the one that comes nearest to it.
    Where all samples say otherwise than the first ones did, the strategy is asked again from the start: all that
    was measured is still known.

    Args:
        problem: What the strategy may ask.
        bench: Tries recipes.
        strategy: Says which.
        budget: What the search may take.
        on_best: Told of each trial that is the best so far.
        on_trial: Told of each trial that was measured now, and of the best so far.

    Raises:
        BadInput: The plain recipe is impossible, or code of the user's failed.
        ModelFailed: The model cannot be run.
    """
    loop = _Loop(problem, bench, strategy, budget or Budget(), _Listeners(on_best, on_trial))
    while True:
        history, stopped = loop.drive()
        answer = loop.choose(history)
        before = answer.samples
        answer = loop.trial(answer.recipe, whole=True, known=True)
        if loop.choose(history).recipe == answer.recipe and answer.samples == before:
            return Found(answer, loop.table(history), stopped)


@dataclass(frozen=True, slots=True)
class _Listeners:
    best: Callable[[Trial], None] | None
    trial: Callable[[Trial, Trial], None] | None


class _Loop:
    def __init__(
        self, problem: Problem, bench: Bench, strategy: Strategy, budget: Budget, listeners: _Listeners
    ) -> None:
        self._problem, self._bench, self._strategy, self._budget = problem, bench, strategy, budget
        self._listeners = listeners
        self._told: Recipe | None = None
        self._tried: dict[Recipe, None] = {}

    def drive(self) -> tuple[list[Trial], str]:
        """Ask the strategy from the start; what is known costs nothing."""
        history: list[Trial] = []
        asked: Counter[Recipe] = Counter()
        while (recipe := self._strategy.propose(self._problem, tuple(history))) is not None:
            asked[recipe] += 1
            if asked[recipe] > _MOST_REPEATS:
                return history, f"because the strategy kept asking for {describe(recipe, self._problem.base)!r}"
            new = self._problem.affordable(recipe) and not self._bench.decided(recipe)
            if new:
                over = self._budget.exhausted(len(self._tried)) if history else ""
                if over:
                    return history, over
            history.append(self.trial(recipe))
            self._tried[recipe] = None
            self._tell(history, new=new)
        if not history:
            raise BadInput("The strategy proposed nothing.", fix="let it begin with problem.base")
        return history, ""

    def trial(self, recipe: Recipe, *, whole: bool = False, known: bool = False) -> Trial:
        """Try a recipe; one that costs more than is allowed is not measured."""
        cost = self._problem.cost(recipe)
        worst = self._bench.reading.worst
        change = describe(recipe, self._problem.base)
        blank = Trial(recipe, change, False, worst, math.inf, cost, samples=0, whole=True)
        if math.isfinite(cost) and not self._problem.affordable(recipe):
            return replace(blank, change=f"{change}: costs too much", number=self._bench.number(recipe))
        return self._bench.trial(self._bench.measure(recipe, whole=whole), blank, known=known)

    def choose(self, history: Sequence[Trial]) -> Trial:
        """The cheapest that meets the goal and of equally cheap ones the best; else the one that loses least.

        Of equal ones it is the first: what was tried later was tried to do without a part that costs nothing.
        """
        now = {trial.recipe: self.trial(trial.recipe, known=True) for trial in history}
        met = [trial for trial in now.values() if trial.met]
        if met:
            return min(met, key=lambda trial: (round(trial.cost, _COST_DIGITS), trial.loss, trial.number))
        return min(now.values(), key=lambda trial: (trial.loss, trial.cost, trial.number))

    def table(self, history: Sequence[Trial]) -> tuple[Trial, ...]:
        """All that was tried, those of earlier rounds among it."""
        known = {**self._tried, **{trial.recipe: None for trial in history}}
        return tuple(sorted((self.trial(recipe, known=True) for recipe in known), key=lambda trial: trial.number))

    def _tell(self, history: Sequence[Trial], *, new: bool) -> None:
        told = self._listeners
        best = self.choose(history)
        if told.trial is not None and new:
            told.trial(history[-1], best)
        if told.best is not None and best.recipe != self._told and best.samples:
            self._told = best.recipe
            told.best(best)
