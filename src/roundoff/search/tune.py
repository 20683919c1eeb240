"""Accuracy-based search: from a float model, samples and a goal to the cheapest quantized model that meets it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundoff.core.coverage import Doubt
from roundoff.core.names import shown
from roundoff.core.plan import QuantPlan, Recipe, inputs_text
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.target import Costs, Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import share_text
from roundoff.quantize.calibration.calibration import Observe
from roundoff.quantize.recipes import BuildSettings, BuiltModel, RecipeBuilder, added_cost
from roundoff.quantize.steps import INSTALLED, StepLibrary
from roundoff.run.capture import Samples, read_feed
from roundoff.run.evaluators import JoinedSamples, Subset, split_samples
from roundoff.search.cost import CostModel
from roundoff.search.engine import SearchFound, TrialModels, TrialRunner, run_search
from roundoff.search.evaluators import (
    FedSamples,
    FunctionJudge,
    JudgeOptions,
    VendorJudge,
    calibration_in,
    make_judge,
    with_evaluator,
)
from roundoff.search.goal import GoalReading, TuneGoal, loss_interval, make_goal
from roundoff.search.judges import Measure, TrialJudge
from roundoff.search.problem import SENSITIVITIES, ModelProblem, Ranker
from roundoff.search.result import ForcedNode, HoldOut, Trial, Tuning, TuningVerdict
from roundoff.search.store import JOURNAL_NAME, TrialJournal
from roundoff.search.strategies import STRATEGIES
from roundoff.search.strategies.ranked import one_less, pareto_front
from roundoff.search.strategies.strategy import Strategy, TrialBudget
from roundoff.studies.sensitivity.ranking import UserSensitivity

MODEL_FACT = "the model"
"""Under this name the hash of the model is among what results depend on."""

_PLAIN = Recipe()
_AGREEMENT = JudgeOptions()


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
        deadline: When no new trial is begun any more; a part of the time goes to each calibration.
        holdout: Share of the evaluation samples that the search does not use, 0 for none; where nobody says, and
            no others are given, a third of them, of few samples up to half.
        sensitivity: What nodes are ranked by.
        local: Rank nodes by what they hand on themselves, instead of by the outputs of the network.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        library: Applies transforms and corrections.
    """

    target: Target
    base: Recipe = _PLAIN
    options: Mapping[str, float] = field(default_factory=dict)
    strategy: Strategy = STRATEGIES["greedy"]
    judge: JudgeOptions = _AGREEMENT
    max_drop: str = ""
    min_metric: float | None = None
    max_cost: float | None = None
    costs: Costs | None = None
    max_trials: int | None = None
    deadline: Deadline = NO_DEADLINE
    holdout: float | None = None
    sensitivity: str | UserSensitivity = SENSITIVITIES[0]
    local: bool = False
    threads: int | None = None
    max_memory: int | None = None
    library: StepLibrary = INSTALLED


@dataclass(frozen=True, slots=True)
class TuneData:
    """Samples of a search.

    Attributes:
        calibration: What activations are observed on, and nodes ranked.
        evaluation: What candidates are measured on.
        test: What the answer is measured on at the end; None when there is nothing more.
        kept_from: Places of evaluation samples that may not be used: somebody else judges the answer on them.
    """

    calibration: Samples
    evaluation: Samples
    test: TestSet | None = None
    kept_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TuneStore:
    """Where what is found is kept.

    Attributes:
        folder: Where the journal and statistics go, so that a later run goes on from there; nowhere when None.
        problem: Everything the results depend on, by name; a journal of another problem is refused.
        on_best: Told of each model that is the best so far.
        on_trial: Told of each trial when it is over, of the best so far, and what the metric is called.
        elsewhere: Given a judge and the float network, what measures candidates in the judge's place; None for
            nobody.
        observe: Observes activations in other processes; None for nobody.
    """

    folder: Path | None = None
    problem: Mapping[str, str] = field(default_factory=dict)
    on_best: Callable[[BuiltModel, Trial], None] | None = None
    on_trial: Callable[[Trial, Trial, str], None] | None = None
    elsewhere: Callable[[TrialJudge, Model], Measure] | None = None
    observe: Observe | None = None


IN_MEMORY = TuneStore()
"""Keeps everything in memory, as long as the search takes."""


# Fewer say nothing of other samples.
_FEWEST = 10


@dataclass(frozen=True, slots=True)
class Unseen:
    """Samples that a search does not use.

    Attributes:
        judge: Measures on them, and perhaps on others.
        indices: Which they are.
    """

    judge: TrialJudge
    indices: tuple[int, ...]

    def score(self, built: BuiltModel) -> HoldOut:
        """What a quantized model scores on them.

        Raises:
            BadInput: The user's function failed.
            ModelFailed: The model cannot be run.
        """
        judge = self.judge
        quantized = switch_on(built.quantized.float_model, built.quantized.quantizers)
        ours, sign = judge.float_values(), 1 if judge.higher_is_better else -1
        if isinstance(judge, FunctionJudge) and not judge.by_sample:
            return HoldOut(len(self.indices), float(ours), *judge.with_interval(quantized))
        theirs = judge.measure(quantized, self.indices)
        if not judge.by_sample:
            return HoldOut(len(self.indices), float(ours), float(theirs), None)
        ours = ours[list(self.indices)]
        interval = loss_interval((ours - theirs) * sign, judge)
        return HoldOut(len(self.indices), float(ours.mean()), float(theirs.mean()), interval)


def make_unseen(
    model: Model, judge: TrialJudge, data: TuneData, *, settings: TuneSettings, held_out: Sequence[int]
) -> Unseen | None:
    """The samples a search does not use: those of a test set, or those that were held out; None without any.

    A function of the user's sees samples of a test set numbered on behind those of the evaluation, so that its
    lists can go on, too.

    Raises:
        BadInput: The evaluator cannot measure on other samples, or fails on them.
        ModelFailed: The model cannot be run.
    """
    if data.test is None and held_out and not judge.by_sample:
        # A metric with one number is measured on these alone.
        apart = make_judge(model, data.evaluation, settings.judge, indices=held_out)
        return Unseen(apart, tuple(range(apart.total)))
    if data.test is None:
        return Unseen(judge, tuple(held_out)) if held_out else None
    if isinstance(judge, VendorJudge):
        what = english(
            "evaluate(model) of the evaluator brings its own samples, so that test data have no effect."
        )
        raise BadInput(what, fix=english("leave --test-data out, or let it be evaluate(run, samples)"))
    samples, indices = data.test.samples, None
    if settings.judge.evaluator is not None:
        first = len(data.evaluation.names)
        indices = range(first, first + len(samples.names))
        samples = JoinedSamples(data.evaluation, samples)
    options = replace(settings.judge, labels=data.test.labels)
    test = make_judge(model, samples, options, indices=indices)
    return Unseen(test, tuple(range(test.total)))


@dataclass(frozen=True, slots=True)
class SearchParts:
    """What of the evaluation samples a search uses.

    Attributes:
        used: Places of those that it uses; None for all of them.
        held_out: Places of those that its answer is judged on.
        notes: Why none are held out, where nobody asked for that.
        whole: Whether that is since the user's measure is of all samples, or of its own: a note is all it gets.
    """

    used: tuple[int, ...] | None = None
    held_out: tuple[int, ...] = ()
    notes: tuple[Message, ...] = ()
    whole: bool = False


def split_evaluation(judge: TrialJudge, data: TuneData, settings: TuneSettings) -> SearchParts:
    """Hold out samples that the answer is judged on.

    Raises:
        BadInput: A share was asked for, and the evaluator cannot measure samples apart, or too few would be left.
    """
    total, share = judge.total, settings.holdout
    if data.kept_from:
        kept = set(data.kept_from)
        return SearchParts(tuple(at for at in range(total) if at not in kept))
    if share == 0 or data.test is not None:
        return SearchParts()
    if not judge.by_sample and not (isinstance(judge, FunctionJudge) and judge.splits()):
        if share is None:
            return SearchParts(notes=(message("search.note_whole_metric", metric=judge.name),), whole=True)
        what = english("Samples can only be held out where the evaluator gives a value for each, in any order.")
        raise BadInput(
            what,
            fix=english("leave --holdout out, or let evaluate(run, samples) return one number per sample"),
        )
    labels = settings.judge.labels
    classes = None if labels is None or labels.size % max(total, 1) else labels.reshape(total, -1)[:, 0]
    split = split_samples(total, share=share, labels=classes, fewest=_FEWEST)
    if split.held_out:
        return SearchParts(split.used, split.held_out)
    if share is None:
        return SearchParts(notes=(message("search.note_too_few", count=total, least=2 * _FEWEST),))
    what = english(
        "--holdout {share_text} of {total} samples leaves {count} to test on.",
        share_text=share_text(share, 0),
        total=total,
        count=round(share * total),
    )
    raise BadInput(
        what, fix=english("hold out at least {fewest}, and leave as many to search with", fewest=_FEWEST)
    )


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
    built: BuiltModel


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
    settings = replace(settings, judge=with_evaluator(settings.judge))
    journal = TrialJournal(None if keeping.folder is None else keeping.folder / JOURNAL_NAME, keeping.problem)
    try:
        if builder is None:
            making = BuildSettings(
                settings.options,
                settings.threads,
                settings.max_memory,
                progress,
                folder=keeping.folder,
                key=keeping.problem.get(MODEL_FACT, ""),
                library=settings.library,
                observe=keeping.observe,
                deadline=settings.deadline,
            )
            builder = RecipeBuilder(model, data.calibration, settings.target, making=making)
        settings = replace(settings, base=builder.plain(settings.base))
        judge = make_judge(builder.prepared.model, data.evaluation, settings.judge)
        parts = split_evaluation(judge, data, settings)
        if parts.held_out and data.calibration is data.evaluation and parts.used is not None:
            # Ranges that know the largest values of the held-out samples would flatter them.
            data = replace(data, calibration=Subset(data.calibration, parts.used))
            builder = builder.on(data.calibration)
        search = _TuneSearch(
            builder, judge, settings, data=data, parts=parts, journal=journal, progress=progress, keeping=keeping
        )
        told = keeping.on_trial
        found = run_search(
            search.problem,
            search.bench,
            settings.strategy,
            budget=TrialBudget(settings.max_trials, settings.deadline),
            on_best=search.teller(keeping.on_best),
            on_trial=None if told is None else lambda trial, best: told(trial, best, judge.name),
        )
        return search.result(found, model)
    finally:
        journal.close()


class _TuneSearch:
    """The parts of one search."""

    def __init__(  # noqa: PLR0913 - what is searched for, on what, and where that is kept
        self,
        builder: RecipeBuilder,
        judge: TrialJudge,
        settings: TuneSettings,
        *,
        data: TuneData,
        parts: SearchParts,
        journal: TrialJournal,
        progress: Progress,
        keeping: TuneStore,
    ) -> None:
        model, used = builder.prepared.model, parts.used
        self._unseen = make_unseen(model, judge, data, settings=settings, held_out=parts.held_out)
        if used is not None and not judge.by_sample:
            judge, used = make_judge(model, data.evaluation, settings.judge, indices=used), None
        self._builder, self._judge, self._settings, self._journal = builder, judge, settings, journal
        self._data, self._parts = data, parts
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
        measure = None if keeping.elsewhere is None else keeping.elsewhere(judge, model)
        self.workbench = TrialModels(builder, judge, measure=measure)
        reading = GoalReading(judge, self.goal, early=settings.strategy.early, indices=used)
        self.bench = TrialRunner(self.workbench, reading, journal=journal, plain=settings.base, progress=progress)

    def teller(self, on_best: Callable[[BuiltModel, Trial], None] | None) -> Callable[[Trial], None] | None:
        """Tells somebody of the best model so far."""
        return None if on_best is None else lambda trial: on_best(self.workbench.build(trial.recipe), trial)

    def result(self, found: SearchFound, model: Model) -> Tuned:
        """What was found, as a document."""
        reading, settings, answer = self.bench.reading, self._settings, found.answer
        built = self.workbench.build(answer.recipe)
        held = self._hold_out(built)
        verdict: TuningVerdict = "met" if answer.met else "best_effort"
        plain = answer.recipe == found.trials[0].recipe == settings.base
        if answer.met and plain:
            verdict = "nothing_to_do"
        # What was chosen on samples is proven by others; where nothing was chosen, others may only refute it.
        refuted = held is not None and held.met is False
        unseen = not self._parts.whole if held is None else held.shown is False
        if answer.met and (refuted or (unseen and not plain)):
            verdict = "unproven"
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
            added=None if plain else self._added(built),
            dragged=forced_nodes(built.plan, self._builder.plan(settings.base)),
            ranking=self.problem.last_ranking,
            front=tuple(trial.number for trial in front),
            evaluations=1 + sum(count == reading.everything for count in counts),
            sample_runs=self._judge.total + reading.samples(sum(counts)),
            ranking_runs=self.problem.ranking_runs(),
            holdout=held,
            stopped=found.stopped,
            notes=tuple(
                dict.fromkeys(
                    (*self._judge.notes, *self._parts.notes, *self._fed(), *self._skipped(), *built.notes)
                )
            ),
            doubts=(*self._judge.doubts, *_out_of_time(found.stopped, hurried=self._builder.hurried)),
        )
        return Tuned(tuning, built)

    def _added(self, built: BuiltModel) -> Message | None:
        """What the answer has that the plain quantized model has not."""
        plain = self._builder.build(self._settings.base).quantized
        feed = read_feed(plain.float_model, self._data.calibration, 0)
        return added_cost(plain, built.quantized, feed).text

    def _goal(self, used: Sequence[int] | None) -> TuneGoal:
        settings, judge = self._settings, self._judge
        values = judge.float_values().reshape(-1)
        score = float((values if used is None else values[list(used)]).mean())
        if judge.satisfied(score, score) is not None:
            if settings.max_drop or settings.min_metric is not None:
                option = "--max-drop" if settings.max_drop else "--min-metric"
                what = english(
                    "metric_eval() of the evaluator decides what is good enough, so that {option} has no effect.",
                    option=option,
                )
                raise BadInput(what, fix=english("leave {option} or metric_eval out", option=option))
            return TuneGoal(message("search.goal_metric_eval"), None)
        return self._goal_of(score)

    def _goal_of(self, float_score: float) -> TuneGoal:
        """What the options ask for where float has some score."""
        return make_goal(
            max_drop=self._settings.max_drop,
            min_metric=self._settings.min_metric,
            name=self._judge.name,
            float_score=float_score,
            higher_is_better=self._judge.higher_is_better,
            limits=self._judge.limits,
        )

    def _fed(self) -> Iterator[Message]:
        """Whether the evaluator's own calibration data were used."""
        samples = self._data.calibration
        if isinstance(samples, FedSamples):
            yield message("search.note_observed_feeds", file=samples.label, count=len(samples.names))
        elif calibration_in(self._settings.judge) is not None:
            yield message("search.note_calibration_not_called", file=samples.label)

    def _skipped(self) -> Iterator[Message]:
        if self.problem.unpromising:
            yield message("search.note_not_tried", changes=tuple(self.problem.unpromising))
        for option, why in self.problem.failed.items():
            yield message("search.note_option_failed", option=option, why=why)

    def _hold_out(self, built: BuiltModel) -> HoldOut | None:
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
        sign, slack = (1 if self._judge.higher_is_better else -1), _SLACK * max(1.0, abs(wanted))
        allowed = sign * (held.float_score - wanted) + slack
        shown = None if held.interval is None else held.interval[1] <= allowed
        return replace(held, met=sign * (held.score - wanted) >= -slack, shown=shown)

    def _minimal(self, answer: Trial, found: SearchFound) -> bool | None:
        """Whether all recipes with one thing less that costs something were tried and miss the goal."""
        tried = {trial.recipe: trial.met for trial in found.trials}
        less = one_less(answer.recipe, self.problem)
        if not answer.met or not less:
            return None
        return all(recipe in tried and not tried[recipe] for recipe in less)


def forced_nodes(plan: QuantPlan, plain: QuantPlan) -> tuple[ForcedNode, ...]:
    """Nodes that compute in another precision than with the plain plan although no rule names them."""
    named = {node for resolution in plan.resolutions for node in resolution.matched}
    # What is computed as one is in one precision.
    units = {node.unit for node in plan.nodes if node.node in named}
    before = {node.node: (node.seen.activation, node.seen.weight) for node in plain.nodes}
    return tuple(
        ForcedNode(node.node, inputs_text(node.seen), node.reason)
        for node in plan.nodes
        if node.node in before and node.node not in named and node.unit not in units
        if (node.seen.activation, node.seen.weight) != before[node.node]
    )


def _out_of_time(stopped: Message, *, hurried: bool) -> tuple[Doubt, ...]:
    """What was not tried or not observed for want of time may be better: nothing good is said of such a search."""
    return (Doubt("time"),) if hurried or stopped.key == "search.ended_time" else ()
