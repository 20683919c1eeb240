"""Repairing what was diagnosed: remedies on a model that was given, or on the recipe of one that is made here.

Samples are split first. Ranges are found and remedies are chosen on one part of them; what came of it is measured
on the other, which nothing was fitted to.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, Self, TypeVar, get_args

import numpy as np

from roundoff.core.plan import QuantPlan, Recipe, Step
from roundoff.core.progress import Deadline
from roundoff.core.tensors import Array
from roundoff.diagnosis.error_profile import network_score
from roundoff.diagnosis.interventions import InterventionRunner, can_fuse
from roundoff.diagnosis.investigation import DiagnoseSettings, TaskMetric
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.margins import MOST_OBSERVED, UnseenSamples, decibel_interval
from roundoff.diagnosis.repairable_model import EditedModel, RecipeModel
from roundoff.diagnosis.result import (
    COSTS,
    CostClass,
    Diagnosis,
    Finding,
    Measure,
    NetworkName,
    NetworkScore,
    RemedyChange,
    Repair,
    RepairStep,
    is_unexplained,
)
from roundoff.diagnosis.subject import open_case
from roundoff.errors import reason
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.measure.inference import (
    agreement_interval,
    mean_interval,
    paired_energy_gain_db,
)
from roundoff.messages.message import Argument, Message, message
from roundoff.quantize.recipes import AddedCost, RecipeBuilder, added_cost
from roundoff.run.capture import Samples, read_feed
from roundoff.run.evaluators import Subset, split_samples

# Remedies tried from cheapest to dearest: what helps is kept.


@dataclass(frozen=True, slots=True)
class Attempt:
    """One change to try.

    Attributes:
        finding: Number of the finding it is for.
        title: What it is.
        cost: What it costs on the chip.
        changes: The same as data.
    """

    finding: int
    title: Message
    cost: CostClass
    changes: tuple[RemedyChange, ...]


class RepairableModel(Protocol):
    """A quantized network that can be changed."""

    def changed(self, changes: Sequence[RemedyChange]) -> Self | None:
        """The same with changes; None where they cannot be made in it."""
        ...

    def quantized(self) -> QuantizedModel:
        """The network."""
        ...


PieceT = TypeVar("PieceT", bound=RepairableModel)

# So many samples are looked at, at most, to see how far values reach.
_MOST_REACHED = 4 * MOST_OBSERVED
_BITS_COST: CostClass = "16 bit"
_NO_TIME = message("diagnosis.repair_no_time")


def attempts(findings: Sequence[Finding]) -> list[Attempt]:
    """All changes that proven findings ask for, cheapest first; one after the other where a remedy has several."""
    found = [each for finding in findings if finding.proven for each in _of(finding)]
    return sorted(found, key=lambda each: COSTS.index(each.cost))


def _of(finding: Finding) -> Iterator[Attempt]:
    remedy = finding.remedy
    if remedy is None:
        return
    name = finding.tensors[0] if finding.tensors else finding.nodes[0] if finding.nodes else "all"
    for change in remedy.changes:
        if change.kind in ("search", "report", "per_slice", "accumulator", "input"):
            continue
        cost: CostClass = _BITS_COST if change.kind == "bits" and change.value.endswith("16") else remedy.cost
        cost = "float" if change.kind == "float" else cost
        yield Attempt(finding.number, _title(change, name) or remedy.title, cost, (change,))


def _title(change: RemedyChange, name: str) -> Message | None:
    """One change of several that a remedy makes; None where the remedy says it."""
    others = len(change.tensors) - 1
    where: Argument = f"'{name}'"
    if others > 0:
        where = message("terminal.and_more", names=where, count=others)
    if change.kind in ("bits", "float", "per_channel"):
        return message(f"diagnosis.repair_{change.kind}", where=where)
    if change.kind == "transform":
        step = "" if change.step is None else change.step.name
        return message(
            "diagnosis.repair_equalize" if step == "equalize" else "diagnosis.repair_transform", step=step
        )
    return message("diagnosis.repair_variation") if change.kind == "variation" else None


# What networks are scored by, sample by sample: two of them are compared on the same ones.

# Held out, so many samples are run at most where outputs are compared; all that were given for it alone.
_MOST_HELD_OUT = 64
# Samples of which none tells anything of the next.
_NO_SAMPLE = frozenset({"repeated", "constant", "single"})
# What groups of samples add differs by rounding alone.
_STILL = 1e-9
# As good as what was expected, within so many decibels; and a metric within this part of its value in float.
_GOOD_DB, _GOOD_PART = 1.5, 0.01
# A file that is worse than its quantizers by this much has something else in it.
_WORSE_DB = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class SampleScores:
    """What a network scores on some samples.

    Attributes:
        value: Of all of them, as it is told.
        harm: What each sample, or group of samples, loses, less being better: energy of its error, or the metric
            with its sign; None where only the whole is known.
        energy: Whether that is energy, and the value decibels.
        loss: What is lost at each part of the outputs, where energies are compared.
        grouped: Whether one number for all samples is known by what groups of them add to it.
    """

    value: float
    harm: Array | None = None
    energy: bool = False
    loss: Loss | None = None
    grouped: bool = False

    def gain(self, before: "SampleScores") -> tuple[float, float] | None:
        """What is gained over another network on the same samples, with a confidence of 95 %."""
        if self.harm is None or before.harm is None:
            return None
        if self.energy:
            return paired_energy_gain_db(before.harm, self.harm)
        gains = before.harm - self.harm
        if self.grouped and float(np.ptp(gains)) > _STILL:
            return mean_interval(gains)
        # Right and wrong answers, and shares of them: none that changed proves little.
        shares = all(each.min() >= -1 and each.max() <= 0 for each in (before.harm, self.harm))
        if shares:
            return _turned(agreement_interval(-gains))
        # Where no group changes, chance is not seen, which is not to say that there is none.
        return None if self.grouped else mean_interval(gains)


def _turned(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if ends is None else (-ends[1], -ends[0])


@dataclass(frozen=True, slots=True, eq=False)
class RepairSamples:
    """The two parts of the samples.

    Attributes:
        used: What ranges are found on and remedies are chosen by.
        held_out: What they are judged on; None where there are too few.
        apart: Whether the latter are others than the user diagnosed with.
        used_metric: The user's metric on the first; None without one.
        held_metric: The same on the others.
        doubts: Why none are held out.
    """

    used: Samples
    held_out: Samples | None = None
    apart: bool = False
    used_metric: TaskMetric | None = None
    held_metric: TaskMetric | None = None
    doubts: tuple[Message, ...] = ()


def split_for_repair(
    samples: Samples,
    metric: TaskMetric | None,
    model: Model,
    *,
    labels: Array | None = None,
    test: tuple[Samples, TaskMetric | None] | None = None,
) -> RepairSamples:
    """Hold out samples to judge a repair on.

    Args:
        samples: All of them.
        metric: The user's metric on them; None without one.
        model: The float model, on which is tried whether the metric can be measured on some samples.
        labels: The class of each sample.
        test: Samples of the user's for this alone, with the metric on them.
    """
    if test is not None:
        return RepairSamples(samples, test[0], True, metric, test[1])
    split = split_samples(len(samples.names), labels=labels)
    if not split.held_out:
        return RepairSamples(
            samples, used_metric=metric, doubts=(message("diagnosis.repair_too_few", count=len(samples.names)),)
        )
    if metric is not None and not metric.splits(model):
        return RepairSamples(
            samples, used_metric=metric, doubts=(message("diagnosis.repair_metric_whole", metric=metric.name),)
        )
    return RepairSamples(
        Subset(samples, split.used),
        Subset(samples, split.held_out),
        used_metric=None if metric is None else metric.on(split.used),
        held_metric=None if metric is None else metric.on(split.held_out),
    )


def _scored(loss: Loss) -> SampleScores:
    return SampleScores(loss.sqnr_db, np.array(loss.by_sample), True, loss)


class RepairScale(Protocol):
    """Scores networks on the samples that may be used."""

    @property
    def measure(self) -> Measure:
        """What is measured: its name, unit and direction."""
        ...

    def score(self, network: QuantizedModel) -> SampleScores:
        """What a network scores."""
        ...

    def enough(self, scores: SampleScores) -> bool:
        """Whether nothing that costs something has to be tried."""
        ...


class RepairJudge:
    """Scores networks by the user's metric, else by signal to noise of the outputs.

    Args:
        found: The diagnosis, which says what is to be expected.
        samples: What networks are scored on.
        settings: How the diagnosis was made.

    Attributes:
        samples: The same.
        measure: What is measured: its name, unit and direction.
        alike: Whether the samples are one and the same, which tells nothing of others.
    """

    def __init__(self, found: Diagnosis, samples: RepairSamples, settings: DiagnoseSettings) -> None:
        self.samples, self._settings, self._most = samples, settings, max(1, found.samples)
        self._metric = samples.used_metric
        self._runners: dict[tuple[int, bool], tuple[Model, InterventionRunner]] = {}
        doubts = () if found.judgement is None else found.judgement.doubts
        self.alike = any(each.kind in _NO_SAMPLE for each in doubts)
        if self._metric is None:
            name = message("diagnosis.measure_outputs")
            self.measure = Measure(name, "dB", 0.0, 0.0, samples=len(samples.used.names))
            self._goal = found.measures[0].after - _GOOD_DB
            return
        metric = self._metric
        self.measure = Measure(metric.name, "", 0.0, 0.0, metric.higher_is_better, samples=metric.samples)
        known = next((each.after for each in found.measures if each.what == metric.name), None)
        self._float = known if known is not None else float("nan")
        self._goal = self._sign * self._float - _GOOD_PART * abs(self._float)

    @property
    def _sign(self) -> int:
        return 1 if self.measure.higher_is_better else -1

    def enough(self, scores: SampleScores) -> bool:
        """Whether nothing that costs something has to be tried."""
        return self._sign * scores.value >= self._goal

    def score(self, network: QuantizedModel | Model, *, held_out: bool = False) -> SampleScores:
        """What a network scores on one part of the samples.

        Raises:
            BadInput: The user's metric fails.
            ModelFailed: The network cannot be run.
        """
        metric = self.samples.held_metric if held_out else self._metric
        if metric is None:
            return self._decibels(network, held_out=held_out)
        if isinstance(network, QuantizedModel):
            network = switch_on(network.float_model, network.quantizers)
        found = self._values(metric, network)
        harm = None if found.ndim == 0 else -self._sign * found
        return SampleScores(
            float(found.mean()), harm, grouped=metric.some is not None and found.size < metric.samples
        )

    def _values(self, metric: TaskMetric, network: Model) -> Array:
        """A value for each sample, or for each of a few groups of them where the metric has one number."""
        if metric.some is None:
            return np.asarray(metric.measure(network))
        found = metric.some(network, range(metric.samples))
        if found.ndim or self.samples.held_out is None:
            return found
        groups = metric.pseudo_values(network, float(found))
        # What is told is the value of all samples: the mean of what groups add is moved to it.
        return found if groups is None else groups + (float(found) - groups.mean())

    def _decibels(self, network: QuantizedModel | Model, *, held_out: bool) -> SampleScores:
        runner = self._runner(network, held_out=held_out)
        quantizers: Any = network.quantizers if isinstance(network, QuantizedModel) else network
        fused = isinstance(network, QuantizedModel) and can_fuse(quantizers)
        sums = LossMeter(runner.parts)
        for exact, found in runner.pairs(quantizers, fused=fused):
            sums.add(exact, found)
        return _scored(sums.loss())

    def _runner(self, network: QuantizedModel | Model, *, held_out: bool) -> InterventionRunner:
        mine = network.float_model if isinstance(network, QuantizedModel) else self._first
        key = id(mine), held_out
        if key not in self._runners:
            samples = self.samples.held_out if held_out else self.samples.used
            if samples is None:
                raise ValueError("no samples were held out")
            shapes = {name: array.shape for name, array in read_feed(mine, samples, 0).items()}
            runner = InterventionRunner(
                mine,
                samples,
                everything=values(mine, shapes),
                threads=self._settings.threads,
                max_memory=self._settings.max_memory,
                most=self._most_held if held_out else self._most,
            )
            self._runners[key] = mine, runner
        return self._runners[key][1]

    @property
    def _most_held(self) -> int:
        held = self.samples.held_out
        return len(held.names) if self.samples.apart and held is not None else _MOST_HELD_OUT

    @property
    def _first(self) -> Model:
        """The float model that files are compared with: that of the network which was scored first."""
        return next(iter(self._runners.values()))[0]


def repair(
    piece: PieceT,
    tries: Sequence[Attempt],
    judge: RepairScale,
    *,
    cost_of: Callable[[QuantizedModel, QuantizedModel], AddedCost],
    out_of_time: Callable[[], bool],
) -> tuple[PieceT, tuple[RepairStep, ...]]:
    """Try remedies and keep what helps; one that fails is listed with its reason, and the next is tried.

    What costs nothing is kept when it is better; what costs something only when chance does not explain it, and is
    not tried where the goal is met. What it costs is counted in the model.

    Args:
        piece: The network as it was given.
        tries: What to try, cheapest first.
        judge: Scores a network on the samples that may be used.
        cost_of: What a network costs beyond another one.
        out_of_time: Whether to stop trying.

    Returns:
        The repaired network, and what was tried.
    """
    best = judge.score(piece.quantized())
    steps: list[RepairStep] = []
    for attempt in tries:
        said = replace(judge.measure, before=best.value, after=best.value)
        step = RepairStep(attempt.title, attempt.cost, attempt.finding, said, kept=False)
        if attempt.cost != "free" and judge.enough(best):
            break
        if out_of_time():
            steps.append(replace(step, why=_NO_TIME))
            continue
        try:
            changed = piece.changed(attempt.changes)
            if changed is None:
                if attempt.finding:
                    steps.append(replace(step, why=message("diagnosis.repair_not_possible")))
                continue
            cost = cost_of(piece.quantized(), changed.quantized())
            score = judge.score(changed.quantized())
        except Exception as error:  # noqa: BLE001 - whatever it is, the next remedy may do
            steps.append(replace(step, why=message("diagnosis.repair_failed", reason=str(reason(error)))))
            continue
        step = replace(step, cost=cost.kind, added=cost.text, measure=replace(said, after=score.value))
        why = _refused(score, best, cost, judge, asked=bool(attempt.finding))
        if why is None:
            piece, best = changed, score
        steps.append(replace(step, kept=why is None, why=why))
    return piece, tuple(steps)


def _refused(
    score: SampleScores, best: SampleScores, cost: AddedCost, judge: RepairScale, *, asked: bool
) -> Message | None:
    """Why a change is not kept; None where it is. One that no finding asks for must do more than chance does."""
    if cost.kind != "free" and judge.enough(best):
        return message("diagnosis.repair_not_needed")
    if not replace(judge.measure, before=best.value, after=score.value).improved:
        return message("diagnosis.repair_no_better")
    gain = score.gain(best)
    if (cost.kind != "free" or not asked) and gain is not None and gain[0] <= 0:
        return message("diagnosis.repair_chance" if cost.kind != "free" else "diagnosis.repair_only_chance")
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A repaired network.

    Attributes:
        quantized: The network.
        repair: What was tried, and what came of it.
        plan: What each node became; None where no plan is known.
        method: Calibration method of its ranges.
        corrections: What its biases and weights were corrected by, on the samples that it was made of.
        searched: Whether a search made it, which tried many recipes on these.
    """

    quantized: QuantizedModel
    repair: Repair
    plan: QuantPlan | None = None
    method: str = ""
    corrections: tuple[str, ...] = ()
    searched: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RepairSource:
    """What was diagnosed, with what was loaded and prepared for it, for a repair to go on from.

    Attributes:
        quantized: The network.
        samples: What it was fed.
        model: The float model as it was given; None where only a quantized one was.
        builder: What made the quantized model; None where it was given.
        recipe: How that made it.
        target: The chip that a stored plan is for; empty where nobody knows.
        labels: The class of each sample; None where it is not known.
        test: Samples to judge the repair on, with the user's metric on them; some of the others when None.
    """

    quantized: QuantizedModel
    samples: Samples
    model: Model | None = None
    builder: RecipeBuilder | None = None
    recipe: Recipe = field(default_factory=Recipe)
    target: str = ""
    labels: Array | None = None
    test: tuple[Samples, TaskMetric | None] | None = None


def wants_repair(found: Diagnosis) -> bool:
    """Whether there is anything to carry out."""
    return bool(found.accused) or wants_search(found) or is_unexplained(found)


def wants_search(found: Diagnosis) -> bool:
    """Whether the remedy is a search: no single place is to blame."""
    remedies = [each.remedy for each in found.accused if each.remedy is not None]
    return found.kind == "distributed" or any(
        change.kind == "search" for remedy in remedies for change in remedy.changes
    )


def better_of(fixed: Fixed, searched: Fixed, judge: RepairJudge) -> Fixed:
    """What remedies of single places and a search came to: one of both, with the steps of both.

    A search makes the whole model anew, ranges that were not at fault among it: it has to be better beyond chance,
    on samples that neither was fitted to where there are some; better alone where it costs nothing and there is
    nothing else.
    """
    step, ours = searched.repair.steps[0], fixed.repair
    held_out, free = judge.samples.held_out is not None, step.cost == "free"
    refused = step.why
    if step.kept:
        mine, theirs = (judge.score(each.quantized, held_out=held_out) for each in (fixed, searched))
        gain = theirs.gain(mine)
        better = replace(judge.measure, before=mine.value, after=theirs.value).improved
        shown = gain[0] > 0 if gain is not None else held_out
        if better and not shown:
            refused = message("diagnosis.repair_only_chance" if free else "diagnosis.repair_chance")
        if better and (shown or (free and not any(each.kept for each in ours.steps))):
            why = message("diagnosis.search_better")
            steps = [replace(each, kept=False, why=why) if each.kept else each for each in ours.steps]
            return replace(searched, repair=replace(searched.repair, steps=(*steps, step)))
    last = replace(step, kept=False, why=refused or message("diagnosis.repair_no_better"))
    return replace(fixed, repair=replace(ours, steps=(*ours.steps, last)))


def fix_places(
    found: Diagnosis, source: RepairSource, settings: DiagnoseSettings, judge: RepairJudge | None = None
) -> Fixed:
    """Remedies of single places: in the recipe of a model that was made here, else in a model's quantizers.

    Whatever fails is listed with its reason: a search may still find something.
    """
    pace = _TimeBudget(settings.deadline)
    try:
        if pace.out_of_time():
            return Fixed(source.quantized, untried(found))
        judge = judge or _judge_for(found, source, settings)
        tries, late = attempts(found.findings), pace.out_of_time
        feed = read_feed(source.quantized.float_model, judge.samples.used, 0)
        cost = partial(added_cost, feed=feed)
        if source.builder is not None:
            made = source.builder.on(judge.samples.used)
            recipe, steps = repair(
                RecipeModel(made, source.recipe), _with_levers(tries), judge, cost_of=cost, out_of_time=late
            )
            built = recipe.built()
            method = recipe.recipe.method or made.target.calibration.method
            return Fixed(built.quantized, Repair(steps, ()), built.plan, method, _names(recipe.recipe.corrections))
        case = open_case(
            source.quantized,
            judge.samples.used,
            arithmetic=settings.arithmetic,
            threads=settings.threads,
            # Ranges end where the samples do: a diagnosis looked at few of them.
            most=max(found.samples, _MOST_REACHED),
            ranges_only=True,
        )
        edited = EditedModel(case, threads=settings.threads)
        piece, steps = repair(edited, _with_levers(tries), judge, cost_of=cost, out_of_time=late)
        return Fixed(piece.quantized(), Repair(steps, ()), corrections=_names(piece.corrections))
    except Exception as error:  # noqa: BLE001 - what was diagnosed is worth telling all the same
        why = message("diagnosis.repair_failed", reason=reason(error))
        return Fixed(source.quantized, untried(found, why))


def _names(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(step.name for step in steps)


def _judge_for(found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> RepairJudge:
    model = source.quantized.float_model
    parts = split_for_repair(source.samples, settings.metric, model, labels=source.labels, test=source.test)
    return RepairJudge(found, parts, settings)


# What any network may gain by at no cost, in the order of what it takes to try.
_LEVERS = (
    ("diagnosis.repair_bias_correct", RemedyChange("correction", step=Step("bias_correct"))),
    ("diagnosis.repair_equalize", RemedyChange("transform", step=Step("equalize"))),
)


def _with_levers(tries: Sequence[Attempt]) -> list[Attempt]:
    """What a recipe can have beside the remedies of findings, behind those that cost nothing."""
    named = {change.step.name for each in tries for change in each.changes if change.step is not None}
    levers = [
        Attempt(0, message(key, step=change.step.name), "free", (change,))
        for key, change in _LEVERS
        if change.step is not None and change.step.name not in named
    ]
    return sorted((*tries, *levers), key=lambda each: COSTS.index(each.cost))


def judge_repair(
    fixed: Fixed,
    source: RepairSource,
    settings: DiagnoseSettings,
    judge: RepairJudge,
    *,
    unseen: UnseenSamples | None = None,
    rare: Array | None = None,
) -> Fixed:
    """What a repair came to, measured before and after it on samples that it was not made of.

    One that is worse there is not kept. It is reached where other samples are shown to be served as well: within a
    decibel of the figure, or by the user's metric within what it may lose against float.

    Args:
        fixed: The repair.
        source: What was repaired.
        settings: How the diagnosis was made.
        judge: Scores networks.
        unseen: The samples with networks that do not know them; None for those that were held out, with what came
            of the repair.
        rare: Energy of errors that samples add which are rarer than these, by part of the outputs.

    Raises:
        BadInput: The user's metric fails.
        ModelFailed: The model cannot be run.
    """
    parts, held_out = judge.samples, judge.samples.held_out is not None
    steps, given = list(fixed.repair.steps), _given(source, settings, judge)
    before, after = (judge.score(each, held_out=held_out) for each in (given, fixed.quantized))
    if isinstance(given, Model):
        known = judge.score(source.quantized, held_out=held_out)
        said = replace(judge.measure, before=before.value, after=known.value)
        steps.insert(0, RepairStep(message("diagnosis.repair_written_anew"), "free", 1, said, kept=True))
    count, told = _counted(after, parts.held_out), _told(judge, before, after)
    rejected = not any(step.kept for step in steps) or (held_out and not told.improved)
    if rejected:
        # What was calibrated anew to try things on is no repair: without one the model is as it was given.
        why = message("diagnosis.repair_worse_elsewhere", count=count)
        steps = [replace(step, kept=False, why=why) if step.kept else step for step in steps]
        fixed = replace(fixed, quantized=source.quantized, plan=None, method="")
        after, told = before, replace(told, after=told.before)
    # Whether it is one is for the samples that were held out to say; how good it is, for all of them.
    gain, judged = None if judge.alike else after.gain(before), told.samples
    doubts = [*parts.doubts, *_left_out(count, parts.held_out)]
    if unseen is not None and not rejected and after.loss is not None:
        network = given if isinstance(given, Model) else switch_on(given.float_model, given.quantizers)
        before, after = _scored(unseen.before(network)), _scored(unseen.after())
        told = _told(judge, before, after)
    scores: tuple[NetworkScore, ...] = ()
    if told.improved and held_out and gain is None:
        doubts.append(message("diagnosis.repair_no_interval", metric=told.what))
    elif told.improved and gain is not None and gain[0] <= 0:
        doubts.append(message("diagnosis.repair_gain_chance", count=judged))
    proven = held_out and told.improved and gain is not None and gain[0] > 0
    if after.loss is not None:
        interval = None if judge.alike else _interval(after.loss, None if rejected else (unseen, rare))
        sure = replace(fixed.repair, measures=(told,), interval=interval).bounded
        if told.improved and not sure:
            doubts.append(message("diagnosis.repair_wide", count=told.samples))
    else:
        in_float = judge.score(source.quantized.float_model, held_out=held_out)
        interval, shown = _against_float(in_float, after, told)
        scores = _scores((in_float, before, after), told, held_out=held_out)
        sure = shown is None
        if shown is not None and told.improved:
            doubts.append(shown)
    done = replace(
        fixed.repair,
        steps=tuple(steps),
        measures=(told,),
        reached=proven and sure,
        used=len(parts.used.names),
        held_out=count,
        interval=interval,
        gain=gain,
        doubts=tuple(doubts),
        scores=scores,
    )
    return replace(fixed, repair=done)


def _interval(loss: Loss, crossed: tuple[UnseenSamples | None, Array | None] | None) -> tuple[float, float] | None:
    """Where decibels lie for other samples; of a repair by how samples were left out, and what rarer ones lose."""
    unseen, rare = crossed or (None, None)
    return decibel_interval(loss, rare, turns=0 if unseen is None else unseen.turns)


def _counted(scores: SampleScores, samples: Samples | None) -> int:
    """How many samples were measured of those that judge."""
    if samples is None:
        return 0
    return len(samples.names) if scores.loss is None else scores.loss.samples


def _left_out(count: int, samples: Samples | None) -> Iterator[Message]:
    """That not all samples were measured which were held out."""
    if samples is not None and count < len(samples.names):
        yield message("diagnosis.repair_left_out", count=count, all=len(samples.names))


def _scores(found: Sequence[SampleScores], told: Measure, *, held_out: bool) -> tuple[NetworkScore, ...]:
    """The user's metric of the float, the quantized and the repaired network on the same samples."""
    sign = -1 if told.higher_is_better else 1
    return tuple(
        network_score(
            name,
            np.asarray(each.value) if each.harm is None else sign * each.harm,
            samples=told.samples,
            held_out=held_out,
            grouped=each.grouped,
        )
        for name, each in zip(get_args(NetworkName), found, strict=True)
    )


def _told(judge: RepairJudge, before: SampleScores, after: SampleScores) -> Measure:
    what = judge.measure.what if after.loss is None else _what(before, after)
    count = _counted(after, judge.samples.held_out) or judge.measure.samples
    return replace(judge.measure, what=what, before=before.value, after=after.value, samples=count)


def _given(source: RepairSource, settings: DiagnoseSettings, judge: RepairJudge) -> QuantizedModel | Model:
    """The network as it was: by its quantizers, or the file as it runs where that is worse."""
    held_out, quantized = judge.samples.held_out is not None, source.quantized
    before = judge.score(quantized, held_out=held_out)
    if settings.given is None or not before.energy:
        return quantized
    as_file = judge.score(settings.given, held_out=held_out)
    return settings.given if before.value - as_file.value >= _WORSE_DB else quantized


def _what(before: SampleScores, after: SampleScores) -> Message:
    """What decibels are of: the part of the outputs that is worst off, before and after."""
    names = [each.loss.parts[each.loss.worst] for each in (before, after) if each.loss is not None]
    if len(set(names)) == 1:
        return message("diagnosis.measure_sqnr", name=names[0])
    return message("diagnosis.measure_worst")


# As many more samples like these are thought of at most, to say how many would do.
_MOST_TIMES = 100


def _against_float(
    in_float: SampleScores, after: SampleScores, told: Measure
) -> tuple[tuple[float, float] | None, Message | None]:
    """Where a metric lies for other samples, by what it loses against float; and why too much may be lost."""
    sign, allowed = (1 if told.higher_is_better else -1), _GOOD_PART * abs(in_float.value)
    lost = _turned(after.gain(in_float))
    if lost is None:
        # One number for all samples: that it is as good as in float is all that can be seen.
        if sign * (in_float.value - after.value) > allowed:
            return None, message("diagnosis.repair_loses", metric=told.what)
        return None, None if after.harm is None else message("diagnosis.repair_no_interval", metric=told.what)
    low, high = sorted(in_float.value - sign * each for each in lost)
    if after.harm is not None and after.harm.min() >= -1 and after.harm.max() <= 0:
        low, high = max(0.0, low), min(1.0, high)
    if lost[1] <= allowed:
        return (low, high), None
    if sign * (in_float.value - after.value) > allowed:
        return (low, high), message("diagnosis.repair_loses", metric=told.what)
    percent = f"{100 * _GOOD_PART:g}"
    return (low, high), message(
        "diagnosis.repair_too_few_to_show",
        count=told.samples,
        percent=percent,
        metric=told.what,
        needed=_needed(in_float, after, allowed, told.samples),
    )


def _needed(in_float: SampleScores, after: SampleScores, allowed: float, count: int) -> str:
    """How many samples like these would show that no more is lost than is allowed."""
    if after.harm is not None and in_float.harm is not None:
        for times in range(2, _MOST_TIMES):
            ours = replace(after, harm=np.tile(after.harm, times))
            lost = _turned(ours.gain(replace(in_float, harm=np.tile(in_float.harm, times))))
            if lost is not None and lost[1] <= allowed:
                return str(times * count)
    return f"{_MOST_TIMES * count}+"


@dataclass(slots=True)
class _TimeBudget:
    """Whether there is time for another attempt, if it takes as long as the longest so far."""

    deadline: Deadline
    _asked: float | None = None
    _longest: float = 0.0

    def out_of_time(self) -> bool:
        now = self.deadline.clock()
        if self._asked is not None:
            self._longest = max(self._longest, now - self._asked)
        self._asked = now
        return not self.deadline.allows(self._longest)


def untried(found: Diagnosis, why: Message = _NO_TIME) -> Repair:
    """All remedies, and why none of them was tried."""
    first = found.measures[0]
    told = replace(first, after=first.before)
    steps = [
        RepairStep(each.title, each.cost, each.finding, told, kept=False, why=why)
        for each in attempts(found.findings)
    ]
    return Repair(tuple(steps), (told,))
