"""Accuracy-based search: from a float model, samples and a goal to the cheapest quantized model that meets it."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from roundoff.core.names import shown
from roundoff.core.plan import QuantPlan, Recipe, inputs_text
from roundoff.core.progress import SILENT, Progress
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.messages.numbers import counted
from roundoff.quantize.recipes import Built, Making, RecipeBuilder
from roundoff.run.capture import read_feed
from roundoff.search.cost import CostModel
from roundoff.search.engine import TrialBudget, run_trials
from roundoff.search.evaluators import FedSamples
from roundoff.search.goal import GoalReading, TuneGoal, make_goal
from roundoff.search.holdout import make_unseen, split_samples
from roundoff.search.journal import TrialJournal, describe
from roundoff.search.judge_options import calibration_in, make_judge, with_evaluator
from roundoff.search.judges import TrialJudge
from roundoff.search.problem import ModelProblem, TuneProblem
from roundoff.search.ranking import Ranker
from roundoff.search.result import Dragged, HoldOut, Trial, Tuning, TuningVerdict
from roundoff.search.settings import IN_MEMORY, JOURNAL_NAME, MODEL_FACT, TuneData, TuneSettings, TuneStore
from roundoff.search.strategies.greedy import one_less
from roundoff.search.strategies.pareto import pareto_front
from roundoff.search.strategies.strategy import Strategy, proposals
from roundoff.search.trials import TrialModels, TrialRunner

__all__ = [
    "SearchFound",
    "Tuned",
    "dragged_nodes",
    "run_search",
    "tune",
]


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
    stopped: str


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

    def drive(self) -> tuple[list[Trial], str]:
        """Ask the strategy from the start; what is known costs nothing."""
        history: list[Trial] = []
        asked: Counter[Recipe] = Counter()

        def refusal(recipe: Recipe) -> str:
            asked[recipe] += 1
            if asked[recipe] > _MOST_REPEATS:
                return f"because the strategy kept asking for {describe(recipe, self._problem.base)!r}"
            return self._budget.exhausted(len(self._tried)) if history and self._is_new(recipe) else ""

        def attempt(recipe: Recipe) -> Trial:
            new = self._is_new(recipe)
            history.append(self.trial(recipe))
            self._tried[recipe] = None
            self._tell(history, new=new)
            return history[-1]

        _, stopped = run_trials(proposals(self._strategy, self._problem), attempt, refusal=refusal)
        if not history:
            raise BadInput("The strategy proposed nothing.", fix="let it begin with problem.base")
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


# Sums in another order may differ in their last bits.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """What a search found.

    Attributes:
        tuning: As data.
        built: The model.
    """

    tuning: Tuning
    built: Built


def tune(
    model: Model,
    data: TuneData,
    settings: TuneSettings,
    *,
    keeping: TuneStore = IN_MEMORY,
    progress: Progress = SILENT,
    builder: RecipeBuilder | None = None,
) -> Tuned:
    """Search for the cheapest quantized model that meets a goal.

    Args:
        model: The float model.
        data: Samples to observe, to measure and to test with.
        settings: What to search for.
        keeping: Where what is found is kept.
        progress: Told how far it is.
        builder: What made models of the same float model for the same target on the same samples already, so that
            nothing is prepared and observed again; made here when None.

    Raises:
        BadInput: The model, the samples and the settings do not fit together, or code of the user's failed.
        ModelFailed: The model cannot be run.
    """
    deadline = None if settings.time_s is None else time.monotonic() + settings.time_s
    settings = replace(settings, judge=with_evaluator(settings.judge))
    journal = TrialJournal(None if keeping.folder is None else keeping.folder / JOURNAL_NAME, keeping.problem)
    try:
        if builder is None:
            making = Making(
                settings.options,
                settings.threads,
                settings.max_memory,
                progress,
                folder=keeping.folder,
                key=keeping.problem.get(MODEL_FACT, ""),
                library=settings.library,
            )
            builder = RecipeBuilder(model, data.calibration, settings.target, making=making)
        judge = make_judge(builder.prepared.model, data.evaluation, settings.judge)
        search = _TuneSearch(builder, judge, settings, data=data, journal=journal, progress=progress)
        told = keeping.on_trial
        found = run_search(
            search.problem,
            search.bench,
            settings.strategy,
            budget=TrialBudget(settings.max_trials, deadline),
            on_best=search.teller(keeping.on_best),
            on_trial=None if told is None else lambda trial, best: told(trial, best, judge.name),
        )
        return search.result(found, model)
    finally:
        journal.close()


class _TuneSearch:
    """The parts of one search."""

    def __init__(
        self,
        builder: RecipeBuilder,
        judge: TrialJudge,
        settings: TuneSettings,
        *,
        data: TuneData,
        journal: TrialJournal,
        progress: Progress,
    ) -> None:
        self._builder, self._judge, self._settings, self._journal = builder, judge, settings, journal
        self._data = data
        used, held_out = split_samples(judge, settings.holdout)
        self._unseen = make_unseen(builder.prepared.model, judge, data, settings=settings, held_out=held_out)
        self.goal = self._goal(used)
        costs = settings.costs or settings.target.costs
        prepared = builder.prepared.model
        self._costs = CostModel(prepared, read_feed(prepared, data.calibration, 0), costs)
        ranker = Ranker(
            data.calibration, settings.sensitivity, settings.threads, settings.max_memory, progress, settings.local
        )
        self.problem = ModelProblem(
            builder,
            settings.base,
            costs=self._costs,
            ranker=ranker,
            journal=journal,
            max_cost=settings.max_cost,
        )
        self.workbench = TrialModels(builder, judge)
        reading = GoalReading(judge, self.goal, early=settings.strategy.early, indices=used)
        self.bench = TrialRunner(self.workbench, reading, journal=journal, plain=settings.base, progress=progress)

    def teller(self, on_best: Callable[[Built, Trial], None] | None) -> Callable[[Trial], None] | None:
        """Tells somebody of the best model so far."""
        return None if on_best is None else lambda trial: on_best(self.workbench.build(trial.recipe), trial)

    def result(self, found: SearchFound, model: Model) -> Tuned:
        """What was found, as a document."""
        reading, settings, answer = self.bench.reading, self._settings, found.answer
        built = self.workbench.build(answer.recipe)
        verdict: TuningVerdict = "met" if answer.met else "best_effort"
        if answer.met and answer.recipe == found.trials[0].recipe == settings.base:
            verdict = "nothing_to_do"
        pareto = settings.strategy.name == "pareto"
        front = pareto_front([trial for trial in found.trials if trial.whole]) if pareto else ()
        counts = self._journal.measured()
        tuning = Tuning(
            reference=shown(model.path),
            target=settings.target.name,
            strategy=settings.strategy.name,
            metric=self._judge.name,
            higher_is_better=self._judge.higher_is_better,
            float_score=reading.float_score,
            goal=self.goal.text,
            goal_value=self.goal.value,
            verdict=verdict,
            answer=[trial.recipe for trial in found.trials].index(answer.recipe) + 1,
            trials=found.trials,
            samples=reading.samples(reading.everything),
            interval=reading.interval(self.bench.measure(answer.recipe).values),
            minimal=self._minimal(answer, found),
            remaining=self._costs.of(built.quantized.float_model).remaining(built.plan),
            dragged=dragged_nodes(built.plan, self._builder.plan(settings.base)),
            ranking=self.problem.last_ranking,
            front=tuple(trial.number for trial in front),
            evaluations=1 + sum(count == reading.everything for count in counts),
            sample_runs=self._judge.total + reading.samples(sum(counts)),
            ranking_runs=self.problem.ranking_runs(),
            holdout=self._hold_out(built),
            stopped=found.stopped,
            notes=tuple(dict.fromkeys((*self._judge.notes, *self._fed(), *self._skipped(), *built.notes))),
        )
        return Tuned(tuning, built)

    def _goal(self, used: Sequence[int] | None) -> TuneGoal:
        settings, judge = self._settings, self._judge
        values = judge.float_values().reshape(-1)
        score = float((values if used is None else values[list(used)]).mean())
        if judge.satisfied(score, score) is not None:
            if settings.max_drop or settings.min_metric is not None:
                option = "--max-drop" if settings.max_drop else "--min-metric"
                what = (
                    f"metric_eval() of the evaluator decides what is good enough, so that {option} has no effect."
                )
                raise BadInput(what, fix=f"leave {option} or metric_eval out")
            return TuneGoal("as metric_eval() says", None)
        return self._goal_of(score)

    def _goal_of(self, float_score: float) -> TuneGoal:
        """What the options ask for where float has some score."""
        return make_goal(
            max_drop=self._settings.max_drop,
            min_metric=self._settings.min_metric,
            name=self._judge.name,
            float_score=float_score,
            higher_is_better=self._judge.higher_is_better,
        )

    def _fed(self) -> Iterator[str]:
        """Whether the evaluator's own calibration data were used."""
        samples = self._data.calibration
        if isinstance(samples, FedSamples):
            yield f"ranges are observed on what {samples.label} feeds: {counted(len(samples.names), 'run')}"
        elif calibration_in(self._settings.judge) is not None:
            yield f"calibration() of the evaluator is not called: ranges are observed on {samples.label}"

    def _skipped(self) -> Iterator[str]:
        if self.problem.unpromising:
            changes = ", ".join(self.problem.unpromising)
            yield f"not tried, because outputs are noisier or the same on calibration samples: {changes}"
        for option, why in self.problem.failed.items():
            yield f"not tried, because it failed: {option}, {why}"

    def _hold_out(self, built: Built) -> HoldOut | None:
        """The metric on samples that the search did not use, and whether the goal is met there."""
        if self._unseen is None:
            return None
        held = self._unseen.score(built)
        try:
            wanted = self._goal_of(held.float_score).value
        except BadInput:
            # Float itself does not reach what is asked for, on these samples.
            wanted = self._settings.min_metric
        if wanted is None:
            return held
        sign = 1 if self._judge.higher_is_better else -1
        return replace(held, met=sign * (held.score - wanted) >= -_SLACK * max(1.0, abs(wanted)))

    def _minimal(self, answer: Trial, found: SearchFound) -> bool | None:
        """Whether all recipes with one thing less that costs something were tried and miss the goal."""
        tried = {trial.recipe: trial.met for trial in found.trials}
        less = one_less(answer.recipe, self.problem)
        if not answer.met or not less:
            return None
        return all(recipe in tried and not tried[recipe] for recipe in less)


def dragged_nodes(plan: QuantPlan, plain: QuantPlan) -> tuple[Dragged, ...]:
    """Nodes that compute in another precision than with the plain plan although no rule names them."""
    named = {node for resolution in plan.resolutions for node in resolution.matched}
    # What is computed as one is in one precision.
    units = {node.unit for node in plan.nodes if node.node in named}
    before = {node.node: (node.seen.activation, node.seen.weight) for node in plain.nodes}
    return tuple(
        Dragged(node.node, inputs_text(node.seen), node.reason)
        for node in plan.nodes
        if node.node in before and node.node not in named and node.unit not in units
        if (node.seen.activation, node.seen.weight) != before[node.node]
    )
