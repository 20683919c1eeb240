"""Transforms and corrections on trial: the same network quantized without and with them, and what that brings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.plan import Step
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.classes import class_places, class_predictions
from roundoff.measure.inference import paired_energy_gain_db
from roundoff.measure.metrics import OutputAgreement
from roundoff.messages.message import english
from roundoff.messages.numbers import counted
from roundoff.quantize.agreement import JudgedOutputs, judge_outputs
from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.recipes import BuiltModel, added_cost
from roundoff.quantize.step_report import TransformReport, TransformScore
from roundoff.quantize.steps import correction_names, transform_names
from roundoff.run.bench import Bench, spread
from roundoff.run.capture import Samples, read_feed
from roundoff.run.evaluators import EvaluationSamples, Evaluator, Subset, split_samples
from roundoff.run.session import open_session

# Samples on which outputs are compared; labels and evaluators see all.
_COMPARED = 128
_SAME = 1e-9
# Answers gained and lost differ by less than so many standard deviations where it may be chance.
_DEVIATIONS = 2.0


@dataclass(frozen=True, slots=True)
class Judge:
    """What decides whether steps are kept.

    Attributes:
        samples: What both networks are judged on.
        unseen: Whether these are others than those that the steps use.
        labels: The right class of each row, int64; None when it is not known.
        evaluator: A function of the user's; None when there is none.
    """

    samples: Samples
    unseen: bool = False
    labels: Array | None = None
    evaluator: Evaluator | None = None


def hold_out(samples: Samples, labels: Array | None = None) -> tuple[Samples, Judge]:
    """What steps may use, and a judge of samples that were held out; of few both have all of them.

    Args:
        samples: All of them.
        labels: The right class of each row; None when it is not known.
    """
    total = len(samples.names)
    if labels is not None and labels.size != total:
        # Samples of several rows: which label is of which row is known when they have been run.
        return samples, Judge(samples, labels=labels)
    split = split_samples(total, labels=labels)
    if not split.held_out:
        return samples, Judge(samples, labels=labels)
    theirs = None if labels is None else labels[list(split.held_out)]
    return Subset(samples, split.used), Judge(Subset(samples, split.held_out), unseen=True, labels=theirs)


@dataclass(frozen=True, slots=True)
class TransformTrial:
    """What came of it.

    Attributes:
        report: What was done and gained.
        built: The network with the steps if they are kept, else without.
    """

    report: TransformReport
    built: BuiltModel

    @property
    def quantized(self) -> QuantizedModel:
        """The same without how it came about."""
        return self.built.quantized


def check_steps(steps: Sequence[Step]) -> None:
    """Refuse steps that do not exist, or are in an order in which they cannot be done.

    Raises:
        BadInput: Saying which.
    """
    known = (*transform_names(), *correction_names())
    corrected = ""
    for step in steps:
        if step.name not in known:
            raise BadInput(
                "There is no transform or correction {name!r}.", fix=nearest(step.name, known), name=step.name
            )
        if step.name in correction_names():
            corrected = step.name
        elif corrected:
            what = english(
                "{name} changes the float model and cannot come behind {corrected}, which changes codes.",
                name=step.name,
                corrected=corrected,
            )
            raise BadInput(what, fix=english("name transforms first, then corrections"))


def try_steps(
    model: Model,
    samples: Samples,
    steps: Sequence[Step],
    *,
    settings: QuantizeSettings,
    judge: Judge,
    progress: Progress = SILENT,
) -> TransformTrial:
    """Quantize a network without and with steps, and keep these unless it gets worse.

    Args:
        model: The float model.
        samples: What steps and calibration use.
        steps: Transforms, then corrections.
        settings: How to quantize, both times.
        judge: What decides.
        progress: Told how far it is.

    Raises:
        BadInput: Model, samples, steps and settings do not fit together.
        ModelFailed: The model cannot be run.
    """
    check_steps(steps)
    first = quantize_model(model, samples, settings, progress=progress)
    builder, plain = first.builder, first.best.recipe
    asked = {each.name for each in steps}
    # What quantizing does by itself is in both, unless it is what was asked for.
    plain = replace(plain, transforms=tuple(each for each in plain.transforms if each.name not in asked))
    recipe = replace(
        plain,
        transforms=tuple(
            dict.fromkeys((*plain.transforms, *(each for each in steps if each.name in transform_names())))
        ),
        corrections=tuple(each for each in steps if each.name in correction_names()),
    )
    built = builder.build(recipe)
    feed = read_feed(first.prepared.model, samples, 0)
    start = builder.build(plain)
    cost = added_cost(start.quantized, built.quantized, feed)
    report = replace(_judged(first, start, built, judge=judge, progress=progress), added=cost.text)
    if cost.kind != "free" and report.chance:
        # What costs something is taken only for a gain beyond chance.
        report = replace(report, kept=False)
    return TransformTrial(report, built if report.kept else start)


def _judged(
    first: Quantization, start: BuiltModel, built: BuiltModel, *, judge: Judge, progress: Progress
) -> TransformReport:
    quantized = built.quantized
    reference = first.prepared.model
    before = switch_on(start.quantized.float_model, start.quantized.quantizers)
    steps = tuple(each for each in built.steps if each not in start.steps)
    after = switch_on(quantized.float_model, quantized.quantizers)
    judged = [
        judge_outputs(
            reference,
            candidate,
            judge.samples,
            indices=spread(len(judge.samples.names), _COMPARED),
            progress=progress,
        )
        for candidate in (before, after)
    ]
    agreements = [each.agreement for each in judged]
    measured = _measured(judge, (reference, before, after), progress=progress)
    return TransformReport(
        target=first.target.name,
        method=first.best.method,
        steps=steps,
        samples=len(judge.samples.names),
        unseen=judge.unseen,
        before=agreements[0],
        after=agreements[1],
        score=None if measured is None else measured.score,
        kept=any(each.taken for each in steps) and not _worse(measured, agreements),
        notes=built.numbers.notes,
        doubts=judged[1].judgement.doubts,
        coverage=judged[1].judgement.coverage,
        gain=None if measured is not None and not measured.undecided else _gain(*judged),
    )


def _gain(before: JudgedOutputs, after: JudgedOutputs) -> tuple[float, float] | None:
    """Where the gain lies for other samples, at the output that is worst off with the steps."""
    known = [each for each in after.agreement if each.output in after.errors and each.output in before.errors]
    if not known:
        return None
    worst = min(known, key=lambda each: each.score.values.get("sqnr_db", -math.inf)).output
    return paired_energy_gain_db(before.errors[worst], after.errors[worst])


def _worse(measured: "_Measured | None", agreements: Sequence[Sequence[OutputAgreement]]) -> bool:
    """By the score of the task if that tells the two apart, else by the output that is worst off."""
    if measured is not None and not measured.undecided:
        score = measured.score
        return score.after < score.before if score.higher_is_better else score.after > score.before
    before, after = (
        min((each.score.values.get("sqnr_db", -math.inf) for each in side), default=0.0) for side in agreements
    )
    return after < before - _SAME


@dataclass(frozen=True, slots=True)
class _Measured:
    """A score, and whether the difference between before and after may be chance."""

    score: TransformScore
    undecided: bool


def _measured(judge: Judge, models: Sequence[Model], *, progress: Progress) -> _Measured | None:
    """The score of the task of the float network, and of the quantized one before and after."""
    if judge.evaluator is None and judge.labels is None:
        return None
    progress.start("measuring accuracy", len(models))
    try:
        if judge.evaluator is not None:
            evaluator, values = judge.evaluator, []
            for model in models:
                values.append(evaluator(_runner(model), EvaluationSamples(models[0], judge.samples)))
                progress.advance()
            score = TransformScore(evaluator.name, evaluator.higher_is_better, *values)
            return _Measured(score, score.before == score.after)
        rights = []
        for model in models:
            rights.append(_right_answers(model, judge))
            progress.advance()
    finally:
        progress.finish()
    _, before, after = rights
    gained, lost = np.count_nonzero(after & ~before), np.count_nonzero(before & ~after)
    # Answers that change are as likely to become right as wrong if nothing but chance changes them.
    undecided = abs(int(gained) - int(lost)) <= _DEVIATIONS * math.sqrt(gained + lost)
    return _Measured(TransformScore("accuracy", True, *(float(each.mean()) for each in rights)), undecided)


def _runner(model: Model) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    session, names = open_session(model), outputs(model)
    return lambda feed: dict(zip(names, session.run(feed), strict=True))


def _right_answers(model: Model, judge: Judge) -> Array:
    """In which rows the highest score is that of the right class, in the first output that has such rows."""
    labels, samples = judge.labels, judge.samples
    bench, found = Bench(model, samples), []
    for [results] in bench.run(range(len(samples.names)), bench.open()):
        given = list(results.values())
        rows = next((class_predictions(given[at]) for at in class_places(given)), None)
        if rows is None:
            what = english(
                "No output of the model has a row of scores for several classes, so that labels mean nothing."
            )
            raise BadInput(what, fix=english("give a function that measures accuracy with --evaluator"))
        found.append(rows)
    predicted = np.concatenate(found)
    if labels is None or predicted.size != labels.size:
        have = counted(0 if labels is None else labels.size, "label")
        raise BadInput(
            english("There are {have} for {size} {size:row|rows} of samples.", have=have, size=predicted.size),
            fix=english("give one label for each, in their order"),
        )
    return np.asarray(predicted == labels)
