"""Repairing what was diagnosed: remedies on a model that was given, or on the recipe of one that is made here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

from roundoff.core.plan import QuantPlan, Recipe
from roundoff.core.progress import Deadline
from roundoff.diagnosis.interventions import InterventionRunner
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.repairable_model import EditedModel, RecipeModel
from roundoff.diagnosis.result import COSTS, Change, CostClass, Diagnosis, Finding, Measure, Repair, RepairStep
from roundoff.diagnosis.subject import open_case
from roundoff.diagnosis.task_metric import Metric
from roundoff.errors import reason
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.messages.message import Argument, Message, message
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples

__all__ = [
    "Attempt",
    "Fixed",
    "Goal",
    "Judged",
    "Workpiece",
    "aim",
    "attempts",
    "fix_model",
    "fix_recipe",
    "repair",
    "untried",
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
    changes: tuple[Change, ...]


class Workpiece(Protocol):
    """A quantized network that can be changed."""

    def changed(self, changes: Sequence[Change]) -> Self | None:
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


def _title(change: Change, name: str) -> Message | None:
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


@dataclass(frozen=True, slots=True)
class Goal:
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


def fix_model(
    found: Diagnosis,
    quantized: QuantizedModel,
    samples: Samples,
    settings: DiagnoseSettings,
) -> Fixed:
    """Repair a model by changing its quantizers.

    Raises:
        BadInput: The user's metric fails.
        ModelFailed: The model cannot be run.
    """
    pace = _Pace(settings.deadline)
    if pace.out_of_time():
        return Fixed(quantized, untried(found))
    case = open_case(
        quantized,
        samples,
        arithmetic=settings.arithmetic,
        threads=settings.threads,
        most=found.samples,
    )
    goal = aim(found, quantized.float_model, samples, settings)
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


def fix_recipe(
    found: Diagnosis,
    builder: RecipeBuilder,
    recipe: Recipe,
    samples: Samples,
    *,
    settings: DiagnoseSettings,
) -> Fixed:
    """Repair a model by changing the recipe it is made with.

    Raises:
        BadInput: The user's metric fails.
        ModelFailed: The model cannot be run.
    """
    pace = _Pace(settings.deadline)
    if pace.out_of_time():
        built = builder.build(recipe)
        return Fixed(built.quantized, untried(found), built.plan)
    goal = aim(found, builder.float_model(recipe), samples, settings)
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


def aim(found: Diagnosis, model: Model, samples: Samples, settings: DiagnoseSettings) -> Goal:
    """What repaired networks are scored by: the user's metric, else the outputs' signal to noise.

    Raises:
        BadInput: The user's metric fails.
        ModelFailed: The model cannot be run.
    """
    metric = settings.metric
    if metric is not None:
        return _by_metric(metric, metric.measure(model))
    runners: dict[int, tuple[Model, InterventionRunner]] = {}

    def judged(quantized: QuantizedModel) -> float:
        mine = quantized.float_model
        if id(mine) not in runners:
            shapes = {name: array.shape for name, array in read_feed(mine, samples, 0).items()}
            runner = InterventionRunner(
                mine, samples, everything=values(mine, shapes), threads=settings.threads, most=found.samples
            )
            runners[id(mine)] = (mine, runner)
        return runners[id(mine)][1].loss(quantized.quantizers, more=True).sqnr_db

    expected = found.measures[0]
    name = message("diagnosis.measure_outputs")
    return Goal(judged, Measure(name, "dB", 0.0, 0.0, samples=found.samples), expected.after - _GOOD_DB)


def _by_metric(metric: Metric, in_float: float) -> Goal:
    sign = 1 if metric.higher_is_better else -1

    def judged(quantized: QuantizedModel) -> float:
        return sign * metric.measure(switch_on(quantized.float_model, quantized.quantizers))

    measure = Measure(metric.name, "", 0.0, 0.0, metric.higher_is_better, samples=metric.samples)
    return Goal(judged, measure, sign * in_float - _GOOD_PART * abs(in_float))
