"""Repairing what was diagnosed: remedies on a model that was given, or on the recipe of one that is made here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeVar

from roundoff.core.plan import QuantPlan, Recipe
from roundoff.core.progress import Deadline
from roundoff.diagnosis.interventions import InterventionRunner
from roundoff.diagnosis.investigation import DiagnoseSettings, TaskMetric
from roundoff.diagnosis.repairable_model import EditedModel, RecipeModel
from roundoff.diagnosis.result import (
    COSTS,
    CostClass,
    Diagnosis,
    Finding,
    Measure,
    RemedyChange,
    Repair,
    RepairStep,
)
from roundoff.diagnosis.subject import Case, open_case
from roundoff.errors import BadInput, reason
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.messages.message import Argument, Message, english, message
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.run.capture import Samples, read_feed

__all__ = [
    "Attempt",
    "Fixed",
    "Judged",
    "RepairGoal",
    "RepairSource",
    "Workpiece",
    "aim",
    "attempts",
    "better_of",
    "fix_model",
    "fix_places",
    "fix_recipe",
    "repair",
    "untried",
    "wants_search",
]


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


class Workpiece(Protocol):
    """A quantized network that can be changed."""

    def changed(self, changes: Sequence[RemedyChange]) -> Self | None:
        """The same with changes; None where they cannot be made in it."""
        ...

    def quantized(self) -> QuantizedModel:
        """The network."""
        ...


PieceT = TypeVar("PieceT", bound=Workpiece)

Judged = Callable[[QuantizedModel], float]
"""Scores a network, higher being better."""

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


def repair(
    piece: PieceT,
    findings: Sequence[Finding],
    judged: Judged,
    *,
    measure: Measure,
    goal: float,
    out_of_time: Callable[[], bool],
) -> tuple[PieceT, Repair]:
    """Try remedies and keep what helps; one that fails is listed with its reason, and the next is tried.

    Args:
        piece: The network as it was given.
        findings: With their remedies.
        judged: Scores a network, higher being better.
        measure: What is scored: its name, unit and direction.
        goal: A score that is good enough, so that nothing dearer is tried.
        out_of_time: Whether to stop trying.

    Returns:
        The repaired network, and what was tried.
    """
    first = best = judged(piece.quantized())
    sign = 1 if measure.higher_is_better else -1
    steps: list[RepairStep] = []
    for attempt in attempts(findings):
        told = replace(measure, before=sign * best, after=sign * best)
        step = RepairStep(attempt.title, attempt.cost, attempt.finding, told, kept=False)
        if best >= goal:
            break
        if out_of_time():
            steps.append(replace(step, why=_NO_TIME))
            continue
        try:
            changed = piece.changed(attempt.changes)
            if changed is None:
                steps.append(replace(step, why=message("diagnosis.repair_not_possible")))
                continue
            score = judged(changed.quantized())
        except Exception as error:  # noqa: BLE001 - whatever it is, the next remedy may do
            steps.append(replace(step, why=message("diagnosis.repair_failed", reason=str(reason(error)))))
            continue
        told = replace(told, after=sign * score)
        if score > best:
            piece, best = changed, score
            steps.append(replace(step, measure=told, kept=True))
        else:
            steps.append(replace(step, measure=told, why=message("diagnosis.repair_no_better")))
    told = replace(measure, before=sign * first, after=sign * best)
    return piece, Repair(tuple(steps), (told,), reached=best >= goal)


# As good as what was expected, within so many decibels; and a metric within this part of its value in float.
_GOOD_DB, _GOOD_PART = 1.5, 0.01
# A file that is worse than its quantizers by this much has something else in it.
_WORSE_DB = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A repaired network.

    Attributes:
        quantized: The network.
        repair: What was tried, and what came of it.
        plan: What each node became; None where no plan is known.
        method: Calibration method of its ranges.
    """

    quantized: QuantizedModel
    repair: Repair
    plan: QuantPlan | None = None
    method: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RepairSource:
    """What was diagnosed, with all that was loaded, prepared, observed and run for it, for a repair to go on from.

    Attributes:
        quantized: The network.
        samples: What it was fed.
        model: The float model as it was given; None where only a quantized one was.
        builder: What made the quantized model; None where it was given.
        recipe: How that made it.
        target: The chip that a stored plan is for; empty where nobody knows.
        case: The network as the diagnosis ran it; opened anew where None.
    """

    quantized: QuantizedModel
    samples: Samples
    model: Model | None = None
    builder: RecipeBuilder | None = None
    recipe: Recipe = field(default_factory=Recipe)
    target: str = ""
    case: Case | None = None


def wants_search(found: Diagnosis) -> bool:
    """Whether the remedy is a search: no single place is to blame."""
    remedies = [each.remedy for each in found.accused if each.remedy is not None]
    return found.kind == "distributed" or any(
        change.kind == "search" for remedy in remedies for change in remedy.changes
    )


def better_of(fixed: Fixed, searched: Fixed) -> Fixed:
    """What remedies of single places and a search came to: the better of both, with the steps of both."""
    step, ours = searched.repair.steps[0], fixed.repair
    begun, got = ours.measures[0], step.measure
    if not step.kept or not replace(got, before=begun.after).improved:
        last = replace(step, kept=False, why=step.why or message("diagnosis.repair_no_better"))
        return replace(fixed, repair=replace(ours, steps=(*ours.steps, last)))
    better = message("diagnosis.search_better")
    steps = [replace(each, kept=False, why=better) if each.kept else each for each in ours.steps]
    return replace(searched, repair=replace(searched.repair, steps=(*steps, step)))


def fix_places(found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> Fixed:
    """Remedies of single places: in the recipe of a model that was made here, else in a model's quantizers.

    Whatever fails is listed with its reason: a search may still find something.
    """
    try:
        if source.builder is None:
            return fix_model(found, source, settings)
        return fix_recipe(found, source, settings)
    except Exception as error:  # noqa: BLE001 - what was diagnosed is worth telling all the same
        why = message("diagnosis.repair_failed", reason=reason(error))
        return Fixed(source.quantized, untried(found, why))


@dataclass(frozen=True, slots=True)
class RepairGoal:
    """What networks are scored by.

    Attributes:
        judged: Scores a network, higher being better.
        measure: What it measures: name, unit and direction.
        score: A score that is good enough.
    """

    judged: Judged
    measure: Measure
    score: float

    @property
    def sign(self) -> int:
        """What a score is multiplied by to be a value of the measure."""
        return 1 if self.measure.higher_is_better else -1


def fix_model(found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> Fixed:
    """Repair a model by changing its quantizers.

    Raises:
        BadInput: The user's metric fails.
        ModelFailed: The model cannot be run.
    """
    pace = _Pace(settings.deadline)
    if pace.out_of_time():
        return Fixed(source.quantized, untried(found))
    case = source.case or open_case(
        source.quantized,
        source.samples,
        arithmetic=settings.arithmetic,
        threads=settings.threads,
        most=found.samples,
    )
    goal = aim(found, replace(source, case=case), settings)
    piece, done = repair(
        EditedModel(case),
        found.findings,
        goal.judged,
        measure=goal.measure,
        goal=goal.score,
        out_of_time=pace.out_of_time,
    )
    return Fixed(piece.quantized(), _with_file(done, found))


@dataclass(slots=True)
class _Pace:
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


def _with_file(done: Repair, found: Diagnosis) -> Repair:
    """What was done, with the first step of all: a file that was worse than its quantizers is written anew."""
    given, ours = found.measures[0], done.measures[0]
    if given.unit != ours.unit or ours.before - given.before < _WORSE_DB:
        return done
    told = replace(ours, before=given.before, after=ours.before)
    first = RepairStep(message("diagnosis.repair_written_anew"), "free", 1, told, kept=True)
    return replace(done, steps=(first, *done.steps), measures=(replace(ours, before=given.before),))


def fix_recipe(found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> Fixed:
    """Repair a model by changing the recipe it is made with.

    Raises:
        BadInput: The user's metric fails, or no recipe made the model.
        ModelFailed: The model cannot be run.
    """
    builder, recipe = source.builder, source.recipe
    if builder is None:
        raise BadInput(
            english("The quantized model was given, so that it has no recipe."),
            fix=english("change its quantizers"),
        )
    pace = _Pace(settings.deadline)
    if pace.out_of_time():
        built = builder.build(recipe)
        return Fixed(built.quantized, untried(found), built.plan)
    goal = aim(found, source, settings)
    piece, done = repair(
        RecipeModel(builder, recipe),
        found.findings,
        goal.judged,
        measure=goal.measure,
        goal=goal.score,
        out_of_time=pace.out_of_time,
    )
    built = piece.built()
    return Fixed(built.quantized, done, built.plan, piece.recipe.method or builder.target.calibration.method)


def aim(found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> RepairGoal:
    """What repaired networks are scored by: the user's metric, else the outputs' signal to noise.

    Raises:
        BadInput: The user's metric fails.
        ModelFailed: The model cannot be run.
    """
    metric, samples = settings.metric, source.samples
    if metric is not None:
        known = next((each.after for each in found.measures if each.what == metric.name), None)
        return _by_metric(metric, metric.measure(source.quantized.float_model) if known is None else known)
    runners: dict[int, tuple[Model, InterventionRunner]] = {}
    if source.case is not None:
        runners[id(source.case.runner.model)] = source.case.runner.model, source.case.runner

    def judged(quantized: QuantizedModel) -> float:
        mine = quantized.float_model
        if id(mine) not in runners:
            shapes = {name: array.shape for name, array in read_feed(mine, samples, 0).items()}
            runners[id(mine)] = (
                mine,
                InterventionRunner(
                    mine, samples, everything=values(mine, shapes), threads=settings.threads, most=found.samples
                ),
            )
        return runners[id(mine)][1].loss(quantized.quantizers, more=True).sqnr_db

    expected = found.measures[0]
    name = message("diagnosis.measure_outputs")
    return RepairGoal(judged, Measure(name, "dB", 0.0, 0.0, samples=found.samples), expected.after - _GOOD_DB)


def _by_metric(metric: TaskMetric, in_float: float) -> RepairGoal:
    sign = 1 if metric.higher_is_better else -1

    def judged(quantized: QuantizedModel) -> float:
        return sign * metric.measure(switch_on(quantized.float_model, quantized.quantizers))

    measure = Measure(metric.name, "", 0.0, 0.0, metric.higher_is_better, samples=metric.samples)
    return RepairGoal(judged, measure, sign * in_float - _GOOD_PART * abs(in_float))
