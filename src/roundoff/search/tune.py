"""Accuracy-based search: from a float model, samples and a goal to the cheapest quantized model that meets it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quant_plan import QuantPlan, precision_text
from roundoff.core.recipe import Recipe
from roundoff.core.student import mean_interval
from roundoff.core.target import Costs, Target
from roundoff.core.tensors import Array
from roundoff.core.tuning import Dragged, HoldOut, Trial, Tuning
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.quantize.recipes import Built, Making, RecipeBuilder
from roundoff.quantize.workshop import INSTALLED, Workshop
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed
from roundoff.search.bench import Bench, Workbench
from roundoff.search.cost import CostModel
from roundoff.search.driver import Budget, Found, run_search
from roundoff.search.goal import TuneGoal, make_goal
from roundoff.search.journal import Journal
from roundoff.search.judges import Judge, JudgeOptions, make_judge
from roundoff.search.problem import ModelProblem
from roundoff.search.ranking import SENSITIVITIES, Ranker, UserSensitivity
from roundoff.search.reading import Reading
from roundoff.search.strategies import STRATEGIES, Strategy
from roundoff.search.strategies.giving_back import one_less
from roundoff.search.strategies.pareto import pareto_front

__all__ = ["TestSet", "TuneSettings", "Tuned", "tune"]

_HELD_OUT_SEED = 1
# Fewer say nothing of other samples.
_FEWEST_HELD_OUT = 10


@dataclass(frozen=True, slots=True)
class TestSet:
    """Samples that the search does not use.

    Attributes:
        samples: The samples.
        labels: The right class of each row of the outputs; None when nobody knows.
    """

    samples: Samples
    labels: Array | None = None


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """What to search for, and how.

    Attributes:
        target: For which chip.
        base: The plain recipe: what the user wants in any case.
        options: Options of calibration methods.
        strategy: How to search.
        judge: What candidates are measured by.
        max_drop: What may be lost: ``1%`` of the float score, or a difference.
        min_metric: The metric to reach, instead.
        max_cost: What a model may cost, where the plain one is 1; None for no limit.
        costs: What work costs; as the target says when None.
        max_trials: Most recipes to try; None for no limit.
        time_s: Seconds after which no new trial is begun; None for no limit.
        holdout: Share of the evaluation samples that the search does not use.
        test: Other samples that the search does not use.
        sensitivity: What nodes are ranked by.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        workshop: Applies transforms and corrections.
    """

    target: Target
    base: Recipe = Recipe()
    options: Mapping[str, float] = field(default_factory=dict)
    strategy: Strategy = STRATEGIES["greedy"]
    judge: JudgeOptions = JudgeOptions()
    max_drop: str = ""
    min_metric: float | None = None
    max_cost: float | None = None
    costs: Costs | None = None
    max_trials: int | None = None
    time_s: float | None = None
    holdout: float = 0.0
    test: TestSet | None = None
    sensitivity: str | UserSensitivity = SENSITIVITIES[0]
    threads: int | None = None
    max_memory: int | None = None
    workshop: Workshop = INSTALLED


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
    samples: Samples,
    evaluation: Samples,
    settings: TuneSettings,
    *,
    folder: Path | None = None,
    problem: Mapping[str, str] | None = None,
    on_best: Callable[[Built, Trial], None] | None = None,
    progress: Progress = SILENT,
) -> Tuned:
    """Search for the cheapest quantized model that meets a goal.

    Args:
        model: The float model.
        samples: What activations are observed on, and nodes ranked.
        evaluation: What candidates are measured on.
        settings: What to search for.
        folder: Where the journal and statistics are kept, so that a later run goes on from there.
        problem: Everything the results depend on, by name; a journal of another problem is refused.
        on_best: Told of each model that is the best so far.
        progress: Told how far it is.

    Raises:
        BadInput: The model, the samples and the settings do not fit together, or code of the user's failed.
        ModelFailed: The model cannot be run.
    """
    deadline = None if settings.time_s is None else time.monotonic() + settings.time_s
    journal = Journal(None if folder is None else folder / JOURNAL_NAME, problem or {})
    try:
        making = Making(
            settings.options,
            settings.threads,
            settings.max_memory,
            progress,
            folder=folder,
            key=(problem or {}).get("model", ""),
            workshop=settings.workshop,
        )
        builder = RecipeBuilder(model, samples, settings.target, making=making)
        judge = make_judge(builder.prepared.model, evaluation, settings.judge)
        search = _Search(builder, judge, settings, samples=samples, journal=journal, progress=progress)
        found = run_search(
            search.problem,
            search.bench,
            settings.strategy,
            budget=Budget(settings.max_trials, deadline),
            on_best=None
            if on_best is None
            else lambda trial: on_best(search.workbench.build(trial.recipe), trial),
        )
        return search.result(found, model)
    finally:
        journal.close()


JOURNAL_NAME = "journal.sqlite"
"""The file of a search's folder that remembers what was measured."""


class _Search:
    """The parts of one search."""

    def __init__(
        self,
        builder: RecipeBuilder,
        judge: Judge,
        settings: TuneSettings,
        *,
        samples: Samples,
        journal: Journal,
        progress: Progress,
    ) -> None:
        self._builder, self._judge, self._settings, self._journal = builder, judge, settings, journal
        used, self._held_out = _split(judge, settings.holdout)
        self.goal = self._goal(used)
        costs = settings.costs or settings.target.costs
        prepared = builder.prepared.model
        self._costs = CostModel(prepared, read_feed(prepared, samples, 0), costs)
        ranker = Ranker(samples, settings.sensitivity, settings.threads, settings.max_memory, progress)
        self.problem = ModelProblem(
            builder, settings.base, costs=self._costs, ranker=ranker, journal=journal, max_cost=settings.max_cost
        )
        self.workbench = Workbench(builder, judge)
        reading = Reading(judge, self.goal, early=settings.strategy.early, indices=used)
        self.bench = Bench(self.workbench, reading, journal=journal, plain=settings.base, progress=progress)

    def result(self, found: Found, model: Model) -> Tuned:
        """What was found, as a document."""
        reading, settings, answer = self.bench.reading, self._settings, found.answer
        built = self.workbench.build(answer.recipe)
        plain = found.trials[0]
        verdict = "nothing_to_do" if plain.met and answer.recipe == plain.recipe else "met" if answer.met else "best_effort"  # fmt: skip
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
            verdict=verdict,  # type: ignore[arg-type]
            answer=[trial.recipe for trial in found.trials].index(answer.recipe) + 1,
            trials=found.trials,
            samples=reading.samples(reading.everything),
            interval=reading.interval(self.bench.measure(answer.recipe).values),
            minimal=self._minimal(answer, found),
            remaining=self._costs.remaining(built.plan),
            dragged=dragged_nodes(built.plan, self._builder.plan(settings.base)),
            ranking=self.problem.last_ranking,
            front=tuple(trial.number for trial in front),
            evaluations=1 + sum(count == reading.everything for count in counts),
            sample_runs=self._judge.total + reading.samples(sum(counts)),
            ranking_runs=self.problem.ranking_runs(),
            holdout=self._hold_out(built),
            stopped=found.stopped,
            notes=tuple(dict.fromkeys((*self._judge.notes, *built.notes))),
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
        return make_goal(
            max_drop=settings.max_drop,
            min_metric=settings.min_metric,
            name=judge.name,
            float_score=score,
            higher_is_better=judge.higher_is_better,
        )

    def _minimal(self, answer: Trial, found: Found) -> bool | None:
        """Whether all recipes with one thing less were tried and miss the goal."""
        tried = {trial.recipe: trial.met for trial in found.trials}
        less = one_less(answer.recipe, self.problem)
        if not answer.met or not less:
            return None
        return all(recipe in tried and not tried[recipe] for recipe in less)

    def _hold_out(self, built: Built) -> HoldOut | None:
        """The metric on samples that the search did not use."""
        settings, judge, indices = self._settings, self._judge, self._held_out
        if settings.test is not None:
            options = JudgeOptions(labels=settings.test.labels, threads=settings.threads)
            judge = make_judge(self._builder.prepared.model, settings.test.samples, options)
            indices = tuple(range(judge.total))
        if not indices:
            return None
        quantized = switch_on(built.quantized.float_model, built.quantized.quantizers)
        ours, theirs = judge.float_values()[list(indices)], judge.measure(quantized, indices)
        losses = (ours - theirs) * (1 if judge.higher_is_better else -1)
        return HoldOut(len(indices), float(ours.mean()), float(theirs.mean()), mean_interval(losses))


def _split(judge: Judge, share: float) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The samples that the search uses, None for all of them, and those that it does not."""
    if not share:
        return None, ()
    if not judge.by_sample:
        what = "Samples can only be held out where the evaluator gives a value for each, in any order."
        raise BadInput(what, fix="leave --holdout out, or let evaluate(run, samples) return one number per sample")
    count = round(share * judge.total)
    if not _FEWEST_HELD_OUT <= count <= judge.total - _FEWEST_HELD_OUT:
        what = f"--holdout {share:.0%} of {judge.total} samples leaves {count} to test on."
        raise BadInput(what, fix=f"hold out at least {_FEWEST_HELD_OUT}, and leave as many to search with")
    order = np.random.default_rng(_HELD_OUT_SEED).permutation(judge.total)
    return tuple(map(int, sorted(order[count:]))), tuple(map(int, sorted(order[:count])))


def dragged_nodes(plan: QuantPlan, plain: QuantPlan) -> tuple[Dragged, ...]:
    """Nodes that compute in another precision than with the plain plan although no rule names them."""
    named = {node for resolution in plan.resolutions for node in resolution.matched}
    before = {node.node: node.seen for node in plain.nodes}
    return tuple(
        Dragged(node.node, precision_text(node.seen), node.reason)
        for node in plan.nodes
        if node.node in before and node.node not in named
        if (node.seen.activation, node.seen.weight) != (before[node.node].activation, before[node.node].weight)
    )
