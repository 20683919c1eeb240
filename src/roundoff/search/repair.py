"""The repair of what was diagnosed: remedies of single places, else a search for a better recipe.

A repair goes on from what the diagnosis loaded, prepared, calibrated and ran (`RepairSource`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from roundoff.core.progress import SILENT
from roundoff.core.quantizers import representable_range
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.diagnosis.error_profile import repaired_profile
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.margins import MOST_OBSERVED, RangeMargins, UnseenSamples
from roundoff.diagnosis.repair import (
    Fixed,
    RepairJudge,
    RepairSamples,
    RepairSource,
    SampleScores,
    better_of,
    fix_places,
    judge_repair,
    split_for_repair,
    untried,
    wants_repair,
    wants_search,
)
from roundoff.diagnosis.repairable_model import corrected, like_target
from roundoff.diagnosis.result import Check, Diagnosis, Measure, Repair, RepairStep, is_unexplained
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.errors import BadInput, RoundoffError, reason
from roundoff.messages.message import Message, message, verbatim
from roundoff.quantize.recipes import BIAS_CORRECTION, added_cost
from roundoff.quantize.targets.files import load_target
from roundoff.run.capture import read_feed
from roundoff.run.evaluators import JoinedSamples, Subset
from roundoff.search.evaluators import JudgeOptions
from roundoff.search.result import Trial, Tuning

# So much of the time that is left goes to the search; what it found is measured and written in the rest.
_FOR_SEARCH = 0.85
_EIGHT = 8
# A search of fewer has tried nothing.
_TRIALS = 2
_SET_RANGE = "diagnosis.set_range"


def _tell_nobody(text: Message) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class RepairSearch:
    """How to search where remedies of single places do not suffice.

    Attributes:
        judge: What candidates are measured by: the same as the diagnosis.
        on_trial: Told of each trial when it is over, of the best so far, and what the metric is called.
        tell: Told that a search begins.
    """

    judge: JudgeOptions = field(default_factory=lambda: JudgeOptions(decibels=True))
    on_trial: Callable[[Trial, Trial, str], None] | None = None
    tell: Callable[[Message], None] = _tell_nobody


def repair_diagnosis(
    found: Diagnosis, source: RepairSource, settings: DiagnoseSettings, search: RepairSearch | None = None
) -> Fixed | None:
    """Carry out the remedies that were named, cheapest first; None where there is nothing to carry out.

    Where no single place is to blame, or its remedies do not suffice, a better recipe is searched for, and the
    better of both is taken. What fails is a step with its reason: the diagnosis is worth telling all the same.
    Ranges are found and remedies chosen on a part of the samples; the word is about the others, on which the
    repaired model is diagnosed again.

    Args:
        found: The diagnosis.
        source: What it looked at.
        settings: How it was made.
        search: How to search; for signal to noise by default.
    """
    search = search or RepairSearch()
    if not wants_repair(found):
        return None
    try:
        model = source.quantized.float_model
        parts = split_for_repair(source.samples, settings.metric, model, labels=source.labels, test=source.test)
        judge = RepairJudge(found, parts, settings)
        fixed = _repaired(found, source, settings, search, judge=judge)
        fixed, unseen, rare = _with_margin_or_not(fixed, settings, judge)
        judged = judge_repair(fixed, source, settings, judge, unseen=unseen, rare=rare)
        done = _diagnosed_again(_with_written_ranges(judged), settings, judge)
        return _with_profile(done, found, source, settings)
    except Exception as error:  # noqa: BLE001 - what was diagnosed is worth telling all the same
        why = message("diagnosis.repair_failed", reason=reason(error))
        return Fixed(source.quantized, untried(found, why))


def _repaired(
    found: Diagnosis,
    source: RepairSource,
    settings: DiagnoseSettings,
    search: RepairSearch,
    *,
    judge: RepairJudge,
) -> Fixed:
    if wants_search(found):
        return _searched(found, source, settings, search, judge=judge)
    fixed = fix_places(found, source, settings, judge)
    if not (found.kind == "culprits" or is_unexplained(found)) or judge.enough(judge.score(fixed.quantized)):
        return fixed
    return better_of(fixed, _searched(found, source, settings, search, judge=judge), judge)


def _with_margin_or_not(
    fixed: Fixed, settings: DiagnoseSettings, judge: RepairJudge
) -> tuple[Fixed, UnseenSamples | None, Array | None]:
    """A margin; where that fails, what was repaired is kept without it, and a row says so."""
    try:
        return _with_margin(fixed, settings, judge)
    except Exception as error:  # noqa: BLE001 - what was repaired is worth keeping all the same
        why, score = message("diagnosis.repair_failed", reason=reason(error)), judge.score(fixed.quantized).value
        told = replace(judge.measure, before=score, after=score)
        step = RepairStep(message("diagnosis.repair_margins"), "free", 0, told, kept=False, why=why)
        return replace(fixed, repair=replace(fixed.repair, steps=(*fixed.repair.steps, step))), None, None


def _with_margin(
    fixed: Fixed, settings: DiagnoseSettings, judge: RepairJudge
) -> tuple[Fixed, UnseenSamples | None, Array | None]:
    """A margin for ranges that end where the samples do, the samples with ranges that do not know them, and more.

    That is what samples lose that are rarer than all of these.
    """
    parts, kept = judge.samples, any(step.kept for step in fixed.repair.steps)
    if not kept or parts.held_out is None or settings.deadline.left <= 2 * settings.opened_s:
        return fixed, None, None
    samples = parts.used if parts.apart else JoinedSamples(parts.used, parts.held_out)
    case = open_case(
        fixed.quantized,
        samples,
        arithmetic=settings.arithmetic,
        threads=settings.threads,
        max_memory=settings.max_memory,
        deadline=settings.deadline,
        most=MOST_OBSERVED,
    )
    used = [place for place, index in enumerate(case.runner.indices) if index < len(parts.used.names)]
    margins = RangeMargins(case, used)
    wide, plain = margins.best(), fixed
    if wide:
        fixed = _widened(fixed, margins, samples=len(used))
        if _worse(judge.score(fixed.quantized), judge.score(plain.quantized), judge):
            fixed, wide = plain, False
    if parts.apart:
        # Samples that are given to judge it say themselves what they lose.
        return fixed, None, None
    rare = margins.rare(margins.fixes(wide=wide))
    corrected_anew = partial(corrected, threads=settings.threads) if fixed.corrections else None
    whole = not fixed.searched and not set(fixed.corrections) - {BIAS_CORRECTION}
    return fixed, UnseenSamples(margins, wide, corrected_anew, whole), rare


def _widened(fixed: Fixed, margins: RangeMargins, *, samples: int) -> Fixed:
    """A repair with a margin, as one more step of it."""
    fixes = margins.fixes(wide=True)
    quantized = replace(fixed.quantized, quantizers=tuple(margins.case.quantizers(fixes)))
    count = sum(each.suspect.name in fixes for each in margins.fitted)
    before, after = (margins.left_out(wide=each).sqnr_db for each in (False, True))
    title = message("diagnosis.repair_margin", count=count)
    what = Measure(message("diagnosis.measure_unseen"), "dB", before, after, samples=samples)
    steps = (*fixed.repair.steps, RepairStep(title, "free", 0, what, kept=True))
    return replace(fixed, quantized=quantized, repair=replace(fixed.repair, steps=steps))


def _with_written_ranges(fixed: Fixed) -> Fixed:
    """The repair, whose steps name the ranges it ends with: findings are of fewer samples, and have no margin."""
    ends = {
        each.tensor: tuple(map(float, representable_range(each.params, each.spec)))
        for each in reversed(fixed.quantized.quantizers)
        if each.params.scale.size == 1
    }

    def told(step: RepairStep) -> RepairStep:
        tensor = dict(step.title.arguments).get("tensor")
        if not step.kept or step.title.key != _SET_RANGE or not isinstance(tensor, str) or tensor not in ends:
            return step
        low, high = ends[tensor]
        return replace(step, title=message(_SET_RANGE, tensor=tensor, low=low, high=high))

    return replace(fixed, repair=replace(fixed.repair, steps=tuple(map(told, fixed.repair.steps))))


def _worse(ours: SampleScores, theirs: SampleScores, judge: RepairJudge) -> bool:
    """Whether the user's metric is worse; decibels of samples that ranges were found on do not count."""
    changed = replace(judge.measure, before=ours.value, after=theirs.value)
    return changed.improved and not ours.energy


def _diagnosed_again(fixed: Fixed, settings: DiagnoseSettings, judge: RepairJudge) -> Fixed:
    """What a model whose repair is proven is diagnosed as: it is repaired only where that is healthy."""
    done, samples = fixed.repair, judge.samples.held_out
    if samples is None or not done.reached:
        return fixed
    if settings.deadline.left <= settings.opened_s:
        doubts = (*done.doubts, message("diagnosis.repair_not_again"))
        return replace(fixed, repair=replace(done, reached=False, doubts=doubts))
    # It is no file yet, and nobody waits for its checks.
    how = replace(
        settings,
        metric=judge.samples.held_metric,
        given=None,
        plan=fixed.plan,
        tell=_tell_no_check,
        progress=SILENT,
        subject=None,
        pictures=False,
        judged=None,
    )
    again = diagnose_quantization(fixed.quantized, samples, how)
    if again.kind == "healthy":
        return replace(fixed, repair=replace(done, again=again.kind))
    doubts = (*done.doubts, message("diagnosis.repair_again", verdict=again.verdict))
    return replace(fixed, repair=replace(done, reached=False, again=again.kind, doubts=doubts))


def _with_profile(fixed: Fixed, found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> Fixed:
    """The repair with what the repaired network loses tensor by tensor; where it cannot be measured without."""
    if not any(step.kept for step in fixed.repair.steps):
        return fixed
    try:
        before, after = source.quantized, fixed.quantized
        told = repaired_profile(fixed.repair, found.layers, before, after, source.samples, settings)
    except RoundoffError:
        return fixed
    return replace(fixed, repair=told)


def _tell_no_check(check: Check) -> None:
    """Nobody listens."""


def _searched(
    found: Diagnosis,
    source: RepairSource,
    settings: DiagnoseSettings,
    search: RepairSearch,
    *,
    judge: RepairJudge,
) -> Fixed:
    """Search for a better recipe, and keep it when it helps."""
    number = next((each.number for each in found.accused), 0)
    plain = RepairStep(message("diagnosis.search"), "free", number, _measured(found, settings), kept=False)
    try:
        return _search(found, source, settings, search, plain=plain, judge=judge)
    except RoundoffError as error:
        return _unsearched(source, plain, verbatim(str(error.what)))
    except Exception as error:  # noqa: BLE001 - the diagnosis does not depend on it
        return _unsearched(source, plain, message("diagnosis.repair_failed", reason=reason(error)))


def _search(
    found: Diagnosis,
    source: RepairSource,
    settings: DiagnoseSettings,
    search: RepairSearch,
    *,
    plain: RepairStep,
    judge: RepairJudge,
) -> Fixed:
    # A search brings much with it, and most diagnoses need none.
    from roundoff.search.tune import TuneData, TuneSettings, TuneStore, tune

    target, why = _target(source)
    left, parts = settings.deadline.left, judge.samples
    if target is None or left <= _least_seconds(found, source, settings):
        return _unsearched(source, plain, why or message("diagnosis.repair_no_time"))
    if source.builder is None and parts.held_out is None:
        # Calibrated anew on so few samples, it would fit these and no others.
        return _unsearched(source, plain, message("diagnosis.search_too_few", count=len(parts.used.names)))
    before = judge.score(source.quantized)
    how = TuneSettings(
        target=target,
        base=source.recipe,
        options={} if source.builder is None else source.builder.options,
        judge=search.judge,
        deadline=settings.deadline.share(_FOR_SEARCH),
        holdout=0.0,
        threads=settings.threads,
        max_memory=settings.max_memory,
    )
    search.tell(message("diagnosis.search_begins", target=target.name))
    result = tune(
        source.quantized.float_model if source.model is None else source.model,
        TuneData(parts.used, source.samples, kept_from=_kept_from(parts)),
        how,
        keeping=TuneStore(on_trial=search.on_trial),
        progress=settings.progress,
        builder=None if source.builder is None else source.builder.on(parts.used),
    )
    built = result.built
    step = _step(plain, judge, result.tuning, before=before, after=judge.score(built.quantized))
    cost = added_cost(source.quantized, built.quantized, read_feed(source.quantized.float_model, parts.used, 0))
    step = replace(step, cost=cost.kind, added=cost.text)
    if not step.kept:
        return Fixed(source.quantized, Repair((step,), ()))
    method = built.recipe.method or target.calibration.method
    return Fixed(built.quantized, Repair((step,), ()), built.plan, method, searched=True)


def _kept_from(parts: RepairSamples) -> tuple[int, ...]:
    """Places of the samples that a search may not see."""
    return parts.held_out.indices if isinstance(parts.held_out, Subset) else ()


def _measured(found: Diagnosis, settings: DiagnoseSettings) -> Measure:
    """What was measured before: the user's metric if there is one."""
    metric = settings.metric
    ours = (each for each in found.measures if metric is not None and each.what == metric.name)
    return next(ours, found.measures[0])


def _least_seconds(found: Diagnosis, source: RepairSource, settings: DiagnoseSettings) -> float:
    """What a search takes at least: two recipes are measured, and samples observed where they were not yet."""
    known = {each.name: each.seconds for each in found.checks}
    scored = 0.0 if settings.metric is None else known.get(settings.metric.name, 0.0)
    observing = settings.opened_s if source.builder is None else 0.0
    return observing + _TRIALS * (scored + known.get(message("diagnosis.check_outputs"), 0.0))


def _unsearched(source: RepairSource, plain: RepairStep, why: Message) -> Fixed:
    """No search, and why."""
    told = replace(plain.measure, after=plain.measure.before)
    return Fixed(source.quantized, Repair((replace(plain, measure=told, why=why),), (told,)))


def _step(
    plain: RepairStep, judge: RepairJudge, found: Tuning, *, before: SampleScores, after: SampleScores
) -> RepairStep:
    """What the search came to."""
    measure = replace(judge.measure, before=before.value, after=after.value)
    title = message("diagnosis.search_trials", count=len(found.trials), change=found.best.change)
    step = replace(plain, title=title, measure=measure, kept=measure.improved)
    return step if step.kept else replace(step, why=message("diagnosis.repair_no_better"))


def _target(source: RepairSource) -> tuple[Target | None, Message | None]:
    """The chip to search for; for a model that another tool made, one that is like it. None, and why."""
    if source.builder is not None:
        return source.builder.target, None
    if source.target:
        try:
            return load_target(source.target), None
        except BadInput:
            return None, message("diagnosis.search_unknown_target", name=source.target)
    quantizers = source.quantized.quantizers
    if any(each.spec.bits != _EIGHT for each in quantizers if each.kind != "bias"):
        return None, message("diagnosis.search_not_eight")
    return like_target(source.quantized), None
