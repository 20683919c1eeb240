"""The repair of what was diagnosed: remedies of single places, else a search for a better recipe.

Loaded for every --help, so it imports the standard library alone until something is repaired.
"""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from roundoff.cli.quantize_options import settings_from
from roundoff.errors import BadInput, RoundoffError, reason
from roundoff.messages.message import Message, message, shown
from roundoff.messages.sentences import recognised

if TYPE_CHECKING:
    from roundoff.cli.subject import Subject
    from roundoff.cli.terminal import Terminal
    from roundoff.core.plan import Recipe
    from roundoff.core.target import Target
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.diagnosis.repair import Fixed, Goal
    from roundoff.diagnosis.result import CostClass, Diagnosis, Measure, Repair, RepairStep
    from roundoff.graph.load import Model
    from roundoff.quantize.recipes import Built, RecipeBuilder
    from roundoff.search.judge_options import JudgeOptions
    from roundoff.search.result import Trial, Tuning
    from roundoff.search.settings import TuneSettings, TuneStore

__all__ = ["repaired"]

# So much of the time that is left goes to the search; what it found is measured and written in the rest.
_FOR_SEARCH = 0.85
_EIGHT = 8
# A search of fewer has tried nothing.
_TRIALS = 2


def repaired(
    args: argparse.Namespace,
    subject: "Subject",
    found: "Diagnosis",
    settings: "DiagnoseSettings",
    terminal: "Terminal",
) -> "Fixed | None":
    """Carry out the remedies that were named, cheapest first; None where there is nothing to carry out.

    Whatever fails is a step with its reason: what was diagnosed is worth telling all the same.
    """
    if _wants_search(found):
        return _searched(args, subject, found, settings, terminal)
    if not found.accused:
        return None
    mended = _mended(args, subject, found, settings, terminal)
    if mended.repair.reached or found.kind != "culprits":
        return mended
    return _better_of(mended, _searched(args, subject, found, settings, terminal))


def _better_of(mended: "Fixed", searched: "Fixed") -> "Fixed":
    """What remedies of single places and a search came to: the better of both, with the steps of both."""
    step, ours = searched.repair.steps[0], mended.repair
    begun, got = ours.measures[0], step.measure
    if not step.kept or not replace(got, before=begun.after).improved:
        last = replace(step, kept=False, why=step.why or message("diagnosis.repair_no_better"))
        return replace(mended, repair=replace(ours, steps=(*ours.steps, last)))
    better = message("diagnosis.search_better")
    steps = [replace(each, kept=False, why=better) if each.kept else each for each in ours.steps]
    return replace(searched, repair=replace(searched.repair, steps=(*steps, step)))


def _wants_search(found: "Diagnosis") -> bool:
    """Whether the remedy is a search: no single place is to blame."""
    remedies = [each.remedy for each in found.accused if each.remedy is not None]
    return found.kind == "distributed" or any(
        change.kind == "search" for remedy in remedies for change in remedy.changes
    )


def _mended(
    args: argparse.Namespace,
    subject: "Subject",
    found: "Diagnosis",
    settings: "DiagnoseSettings",
    terminal: "Terminal",
) -> "Fixed":
    """Remedies of single places: in the recipe of a model that is made here, else in a model's quantizers."""
    from roundoff.diagnosis.repair import Fixed, fix_model, fix_recipe, untried

    try:
        if args.target is None:
            return fix_model(found, subject.quantized, subject.samples, settings)
        builder, recipe = _recipe(args, subject, terminal)
        return fix_recipe(found, builder, recipe, subject.samples, settings=settings)
    except Exception as error:  # noqa: BLE001 - a search may still find something
        why = message("diagnosis.repair_failed", reason=reason(error))
        return Fixed(subject.quantized, untried(found, why))


def _recipe(args: argparse.Namespace, subject: "Subject", terminal: "Terminal") -> "tuple[RecipeBuilder, Recipe]":
    """What makes the model that was diagnosed, and how."""
    from roundoff.graph.load import load_model
    from roundoff.quantize.recipes import Making, RecipeBuilder

    how = settings_from(args)
    making = Making(how.options, threads=args.threads, max_memory=args.max_memory, progress=terminal)
    return RecipeBuilder(load_model(args.model), subject.samples, how.target, making=making), _begun(args)


def _begun(args: argparse.Namespace) -> "Recipe":
    """The recipe that the options ask for."""
    from roundoff.core.plan import Recipe

    if args.target is None:
        return Recipe()
    how = settings_from(args)
    method = how.methods[0] if how.methods else ""
    return Recipe(method=method, weight_method=how.weight_method, rules=how.rules)


def _searched(
    args: argparse.Namespace,
    subject: "Subject",
    found: "Diagnosis",
    settings: "DiagnoseSettings",
    terminal: "Terminal",
) -> "Fixed":
    """Search for a better recipe, and keep it when it helps."""
    from roundoff.diagnosis.result import RepairStep

    number = next((each.number for each in found.accused), 0)
    plain = RepairStep(message("diagnosis.search"), "free", number, _measured(found, settings), kept=False)
    try:
        return _search(args, subject, found, settings, terminal=terminal, plain=plain)
    except RoundoffError as error:
        return _unsearched(subject, plain, recognised(error.what))
    except Exception as error:  # noqa: BLE001 - the diagnosis does not depend on it
        return _unsearched(subject, plain, message("diagnosis.repair_failed", reason=reason(error)))


def _search(
    args: argparse.Namespace,
    subject: "Subject",
    found: "Diagnosis",
    settings: "DiagnoseSettings",
    *,
    terminal: "Terminal",
    plain: "RepairStep",
) -> "Fixed":
    from roundoff.diagnosis.repair import Fixed, aim
    from roundoff.diagnosis.result import Repair
    from roundoff.search.settings import TuneData
    from roundoff.search.tune import tune

    target, why = _target(args, subject)
    left = settings.deadline.left
    if target is None or left <= _least_seconds(found, settings):
        return _unsearched(subject, plain, why or message("diagnosis.repair_no_time"))
    model = _model(args, subject)
    goal = aim(found, subject.quantized.float_model, subject.samples, settings)
    before = goal.judged(subject.quantized)
    how = _tune_settings(args, subject, target, time_s=left * _FOR_SEARCH if args.time is not None else None)
    terminal.wrapped(shown(message("diagnosis.search_begins", target=target.name)))
    data = TuneData(subject.samples, subject.samples)
    result = tune(model, data, how, keeping=_keeping(terminal), progress=terminal)
    after = goal.judged(result.built.quantized)
    step = _step(plain, goal, result.tuning, before=before, after=after)
    reached = step.kept and (result.tuning.verdict != "best_effort" or after >= goal.score)
    repair = Repair((step,), (step.measure if step.kept else replace(step.measure, after=step.measure.before),))
    if not step.kept:
        return Fixed(subject.quantized, repair)
    return _fixed(result.built, target, replace(repair, reached=reached))


def _measured(found: "Diagnosis", settings: "DiagnoseSettings") -> "Measure":
    """What was measured before: the user's metric if there is one."""
    metric = settings.metric
    ours = (each for each in found.measures if metric is not None and each.what == metric.name)
    return next(ours, found.measures[0])


def _least_seconds(found: "Diagnosis", settings: "DiagnoseSettings") -> float:
    """What a search takes at least: samples are observed again, and two recipes are measured."""
    known = {each.name: each.seconds for each in found.checks}
    scored = 0.0 if settings.metric is None else known.get(settings.metric.name, 0.0)
    return settings.opened_s + _TRIALS * (scored + known.get(message("diagnosis.check_outputs"), 0.0))


def _unsearched(subject: "Subject", plain: "RepairStep", why: Message) -> "Fixed":
    """No search, and why."""
    from roundoff.diagnosis.repair import Fixed
    from roundoff.diagnosis.result import Repair

    told = replace(plain.measure, after=plain.measure.before)
    return Fixed(subject.quantized, Repair((replace(plain, measure=told, why=why),), (told,)))


def _fixed(built: "Built", target: "Target", repair: "Repair") -> "Fixed":
    from roundoff.diagnosis.repair import Fixed

    return Fixed(built.quantized, repair, built.plan, built.recipe.method or target.calibration.method)


def _step(plain: "RepairStep", goal: "Goal", found: "Tuning", *, before: float, after: float) -> "RepairStep":
    """What the search came to."""
    measure = replace(goal.measure, before=goal.sign * before, after=goal.sign * after)
    title = message("diagnosis.search_trials", count=len(found.trials), change=recognised(found.best.change))
    step = replace(plain, title=title, cost=_cost(found.best), measure=measure, kept=after > before)
    return step if step.kept else replace(step, why=message("diagnosis.repair_no_better"))


def _cost(best: "Trial") -> "CostClass":
    """What the dearest part of a recipe costs on the chip."""
    from roundoff.core.plan import FLOAT

    asked = [word for rule in best.recipe.rules for word in (rule.precision.activation, rule.precision.weight)]
    if FLOAT in asked:
        return "float"
    return "16 bit" if best.cost > 1 else "free"


def _keeping(terminal: "Terminal") -> "TuneStore":
    """Tells of each trial in a line."""
    from roundoff.search.settings import TuneStore
    from roundoff.search.terminal import trial_line

    return TuneStore(on_trial=lambda trial, best, metric: terminal.wrapped(trial_line(trial, best, metric)))


def _tune_settings(
    args: argparse.Namespace, subject: "Subject", target: "Target", *, time_s: float | None
) -> "TuneSettings":
    from roundoff.search.settings import TuneSettings

    options = settings_from(args).options if args.target is not None else {}
    return TuneSettings(
        target=target,
        base=_begun(args),
        options=options,
        judge=_judge(args, subject),
        time_s=time_s,
        threads=args.threads,
        max_memory=args.max_memory,
    )


def _judge(args: argparse.Namespace, subject: "Subject") -> "JudgeOptions":
    """The same measure as that of the diagnosis."""
    from roundoff.samples.labels import load_labels
    from roundoff.search.judge_options import JudgeOptions

    labels = None if args.labels is None else load_labels(args.labels, subject.samples.names)
    if labels is not None and args.samples is not None:
        # Whoever takes the first samples only means the first labels too.
        labels = labels[: len(subject.samples.names)]
    metric = args.evaluator is not None or labels is not None
    return JudgeOptions(args.evaluator, labels=labels, decibels=not metric, threads=args.threads)


def _model(args: argparse.Namespace, subject: "Subject") -> "Model":
    """What is quantized anew: the float model, or what remains of the quantized one without its quantizers."""
    from roundoff.graph.load import load_model

    return subject.quantized.float_model if args.model is None else load_model(args.model)


def _target(args: argparse.Namespace, subject: "Subject") -> "tuple[Target | None, Message | None]":
    """The chip to search for; for a model that another tool made, one that is like it. None, and why."""
    from roundoff.quantize.plan_file import load_plan
    from roundoff.quantize.targets.loading import load_target

    if args.target is not None:
        return settings_from(args).target, None
    if args.quantized.is_dir():
        name = load_plan(args.quantized).plan.target
        try:
            return load_target(name), None
        except BadInput:
            return None, message("diagnosis.search_unknown_target", name=name)
    quantizers = subject.quantized.quantizers
    if any(each.spec.bits != _EIGHT for each in quantizers if each.kind != "bias"):
        return None, message("diagnosis.search_not_eight")
    sliced = any(each.params.scale.size > 1 for each in quantizers if each.kind == "weight")
    return load_target("generic-int8" if sliced else "generic-int8-per-tensor"), None
