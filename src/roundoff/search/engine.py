"""The engine of `tune`: recipes are built, measured on more and more samples, and decided as soon as possible.

A strategy is asked what to try until it ends or the budget is spent (`strategies.strategy.run_trials`); what was
measured is remembered in a journal, so that asking again costs nothing.
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roundoff.core.plan import Recipe
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, reason
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import ModelHashes, combined_hash, quantizer_hash
from roundoff.messages.message import NOTHING, Message, english, message, verbatim
from roundoff.quantize.recipes import BuiltModel, RecipeBuilder
from roundoff.search.goal import GoalReading
from roundoff.search.judges import Measure, TrialJudge
from roundoff.search.problem import TuneProblem
from roundoff.search.result import Trial
from roundoff.search.store import TrialJournal, describe, recipe_json, recipe_key
from roundoff.search.strategies.strategy import Strategy, TrialBudget, proposals, run_trials

# A model is built again rather than kept when others came after it.
_MOST_BUILT = 2


class TrialModels:
    """Builds and measures models of recipes, without remembering what was measured.

    Args:
        builder: Makes models of recipes.
        judge: Measures them.
        measure: Does so in its place, elsewhere; None for nobody.
    """

    def __init__(self, builder: RecipeBuilder, judge: TrialJudge, *, measure: Measure | None = None) -> None:
        self._builder, self._measure = builder, measure or judge.measure
        self._built: OrderedDict[Recipe, BuiltModel] = OrderedDict()
        self._measured: tuple[Recipe, Model] | None = None
        self._hashes = ModelHashes()

    def build(self, recipe: Recipe) -> BuiltModel:
        """The model of a recipe; that of the last ones is still there."""
        if recipe not in self._built:
            self._built[recipe] = self._builder.build(recipe)
            while len(self._built) > _MOST_BUILT:
                self._built.popitem(last=False)
        self._built.move_to_end(recipe)
        return self._built[recipe]

    def identity(self, recipe: Recipe) -> str:
        """A hash of the model of a recipe; empty when nothing of it would be quantized."""
        quantized = self.build(recipe).quantized
        if not quantized.quantizers:
            return ""
        return combined_hash([self._hashes.of(quantized.float_model), quantizer_hash(quantized.quantizers)])

    def measure(self, recipe: Recipe, indices: list[int]) -> Array:
        """What the judge says of some samples."""
        if self._measured is None or self._measured[0] != recipe:
            quantized = self.build(recipe).quantized
            self._measured = recipe, switch_on(quantized.float_model, quantized.quantizers)
        return self._measure(self._measured[1], indices)


@dataclass(frozen=True, slots=True)
class MeasuredTrial:
    """What is known of a recipe.

    Attributes:
        number: Its place among all recipes, from 1.
        problem: Why there is no model of it, or none that can be measured; None when there is one.
        values: What was measured, in the order of the samples.
        seconds: Building and measuring it.
    """

    number: int
    problem: Message | None
    values: Array
    seconds: float


class TrialRunner:
    """Tries recipes; what was measured before, in this run or an earlier one, is not measured again.

    Args:
        workbench: Builds and measures.
        reading: Reads what was measured.
        journal: Remembers it.
        plain: The recipe that must be possible.
        progress: Told how far it is.
    """

    def __init__(
        self,
        workbench: Any,
        reading: GoalReading,
        *,
        journal: TrialJournal,
        plain: Recipe,
        progress: Progress = SILENT,
    ) -> None:
        self._workbench, self._journal, self._plain, self._progress = workbench, journal, plain, progress
        self.reading = reading

    def measure(self, recipe: Recipe, *, whole: bool = False) -> MeasuredTrial:
        """Measure a recipe until it is decided, or wholly.

        Whatever fails with other recipes than the plain one is their problem, not the end of a search.

        Raises:
            BadInput: The plain recipe cannot be built, or the user's function fails on it.
            ModelFailed: The model cannot be run.
        """
        number = self.number(recipe)
        made = self._made(recipe)
        if made["problem"]:
            return MeasuredTrial(number, _problem_in(made), self._journal.chunks("")[0], made["seconds"])
        values, seconds = self._journal.chunks(made["model"])
        everything = self.reading.everything
        self._progress.start(f"trial {number}", everything)
        try:
            self._progress.advance(values.size)
            while values.size < everything and (whole or self.reading.decided(values) is None):
                size = values.size
                problem = self._continue(recipe, made["model"], size)
                if problem is not None:
                    return MeasuredTrial(number, problem, self._journal.chunks("")[0], made["seconds"] + seconds)
                values, seconds = self._journal.chunks(made["model"])
                self._progress.advance(values.size - size)
        finally:
            self._progress.finish()
        return MeasuredTrial(number, None, values, made["seconds"] + seconds)

    def number(self, recipe: Recipe) -> int:
        """The place of a recipe among all that were tried, from 1."""
        return self._journal.recipe(recipe_key(recipe), recipe_json(recipe))

    def decided(self, recipe: Recipe) -> bool:
        """Whether a recipe was decided before, so that asking for it costs nothing."""
        made = self._known(recipe)
        if made is None:
            return False
        return bool(made["problem"]) or self.reading.decided(self._journal.chunks(made["model"])[0]) is not None

    def trial(self, measured: MeasuredTrial, blank: Trial, *, known: bool = False) -> Trial:
        """What was measured of a recipe, as a trial.

        Args:
            measured: What was measured.
            blank: The trial with recipe, change and cost filled in.
            known: Tell all that is known, instead of what was known when it was decided.
        """
        blank = replace(blank, number=measured.number, seconds=measured.seconds)
        if measured.problem is not None:
            return replace(
                blank, change=message("search.without_model", change=blank.change, why=measured.problem)
            )
        reading, values = self.reading, measured.values
        decided = reading.decided(values)
        met, size = (False, values.size) if decided is None else decided
        size = values.size if known else size
        score = reading.score(values[:size])
        whole = values.size == reading.everything
        return replace(
            blank,
            met=met,
            score=score,
            loss=reading.loss(score),
            samples=reading.samples(size),
            whole=whole,
        )

    def _known(self, recipe: Recipe) -> dict[str, Any] | None:
        """What an earlier trial of a recipe came to; None when there was none."""
        key = recipe_key(recipe)
        made, failed = self._journal.fact(f"made {key}"), self._journal.fact(f"failed {key}")
        return None if made is None else {**made, **(failed or {})}

    def _made(self, recipe: Recipe) -> dict[str, Any]:
        """A hash of the model of a recipe and how long making it took, or why there is none."""
        known = self._known(recipe)
        if known is not None:
            return known
        began, model, problem = time.monotonic(), "", {"problem": ""}
        try:
            model = self._workbench.identity(recipe)
            problem = {"problem": ""} if model else {"problem": "impossible", "detail": ""}
        except Exception as error:
            # Without the plain recipe there is nothing to search from.
            if recipe == self._plain:
                raise
            problem = _problem(error)
        made = {"model": model, **problem, "seconds": time.monotonic() - began}
        self._journal.add_fact(f"made {recipe_key(recipe)}", made)
        return made

    def _continue(self, recipe: Recipe, key: str, start: int) -> Message | None:
        """Run the samples up to the next look; gives what went wrong, if anything did."""
        stop = next(size for size in self.reading.looks if size > start)
        began = time.monotonic()
        try:
            values = self._workbench.measure(recipe, [int(index) for index in self.reading.order[start:stop]])
        except Exception as error:
            if recipe == self._plain:
                raise
            problem = _problem(error)
            self._journal.add_fact(f"failed {recipe_key(recipe)}", problem)
            return _problem_in(problem)
        self._journal.add_chunk(key, start, values, seconds=time.monotonic() - began)
        return None


def _problem(error: Exception) -> dict[str, str]:
    """What is wrong with a recipe, as the journal holds it."""
    return {"problem": "impossible" if isinstance(error, BadInput) else "failed", "detail": reason(error)}


def _problem_in(fact: Mapping[str, Any]) -> Message:
    """What is wrong with a recipe; journals of earlier versions hold a sentence."""
    if "detail" not in fact:
        return verbatim(fact["problem"])
    return message(f"search.{fact['problem']}", why=fact["detail"] or message("search.nothing_quantized"))


# A strategy may ask for a recipe again to be sure of it; one that does nothing else would never end.
_MOST_REPEATS = 5
# Costs that differ less are the same, summed up in another order.
_COST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class SearchFound:
    """How a search ended.

    Attributes:
        answer: What it found.
        trials: All of it, in the order of numbers.
        stopped: Why it ended early; empty when it did not.
    """

    answer: Trial
    trials: tuple[Trial, ...]
    stopped: Message


def run_search(
    problem: TuneProblem,
    bench: TrialRunner,
    strategy: Strategy,
    *,
    budget: TrialBudget | None = None,
    on_best: Callable[[Trial], None] | None = None,
    on_trial: Callable[[Trial, Trial], None] | None = None,
) -> SearchFound:
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
    loop = _Loop(problem, bench, strategy, budget or TrialBudget(), _Listeners(on_best, on_trial))
    while True:
        history, stopped = loop.drive()
        answer = loop.choose(history)
        before = answer.samples
        answer = loop.trial(answer.recipe, whole=True, known=True)
        if loop.choose(history).recipe == answer.recipe and answer.samples == before:
            return SearchFound(answer, loop.table(history), stopped)


@dataclass(frozen=True, slots=True)
class _Listeners:
    best: Callable[[Trial], None] | None
    trial: Callable[[Trial, Trial], None] | None


class _Loop:
    def __init__(
        self,
        problem: TuneProblem,
        bench: TrialRunner,
        strategy: Strategy,
        budget: TrialBudget,
        listeners: _Listeners,
    ) -> None:
        self._problem, self._bench, self._strategy, self._budget = problem, bench, strategy, budget
        self._listeners = listeners
        self._told: Recipe | None = None
        self._tried: dict[Recipe, None] = {}

    def drive(self) -> tuple[list[Trial], Message]:
        """Ask the strategy from the start; what is known costs nothing."""
        history: list[Trial] = []
        asked: Counter[Recipe] = Counter()

        def refusal(recipe: Recipe) -> Message:
            asked[recipe] += 1
            if asked[recipe] > _MOST_REPEATS:
                return message("search.ended_repeating", change=repr(str(describe(recipe, self._problem.base))))
            return self._budget.exhausted(len(self._tried)) if history and self._is_new(recipe) else NOTHING

        def attempt(recipe: Recipe) -> Trial:
            new = self._is_new(recipe)
            history.append(self.trial(recipe))
            self._tried[recipe] = None
            self._tell(history, new=new)
            return history[-1]

        _, stopped = run_trials(proposals(self._strategy, self._problem), attempt, refusal=refusal)
        if not history:
            raise BadInput(
                english("The strategy proposed nothing."), fix=english("let it begin with problem.base")
            )
        return history, stopped

    def _is_new(self, recipe: Recipe) -> bool:
        return self._problem.affordable(recipe) and not self._bench.decided(recipe)

    def trial(self, recipe: Recipe, *, whole: bool = False, known: bool = False) -> Trial:
        """Try a recipe; one that costs more than is allowed is not measured."""
        cost = self._problem.cost(recipe)
        worst = self._bench.reading.worst
        change = describe(recipe, self._problem.base)
        blank = Trial(recipe, change, False, worst, math.inf, cost, samples=0, whole=True)
        if math.isfinite(cost) and not self._problem.affordable(recipe):
            change = message("search.costs_too_much", change=change)
            return replace(blank, change=change, number=self._bench.number(recipe))
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
