"""The whole analysis: what is switched, on which samples, and what follows from it."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from roundoff.analysis.sensitivity.exact import NOISE_MARGIN_DB, ExactEngine
from roundoff.analysis.sensitivity.journal import Journal
from roundoff.analysis.sensitivity.ranking import rank
from roundoff.analysis.sensitivity.scoring import Scorer
from roundoff.analysis.sensitivity.settings import SensitivitySettings
from roundoff.analysis.sensitivity.stages import EVERYTHING, Audience, Stages
from roundoff.analysis.sensitivity.subjects import find_outputs, find_subjects, other_outputs
from roundoff.core.progress import SILENT, Progress
from roundoff.core.sensitivity import Effort, Sensitivity, Subject, SubjectKind, SubjectScore
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.randomness import check_repeatable
from roundoff.quantize.agreement import spread
from roundoff.runtime.feeds import Samples
from roundoff.runtime.shared_memory import release_shared_memory

__all__ = ["analyze_sensitivity", "whole_sensitivity"]

_MOST_NAMED = 5


def analyze_sensitivity(
    quantized: QuantizedModel,
    samples: Samples,
    settings: SensitivitySettings,
    *,
    progress: Progress = SILENT,
    journal: Path | None = None,
    on_result: Callable[[SubjectScore], None] | None = None,
) -> Sensitivity:
    """Measure what each part of a network does to its outputs when it alone is quantized, or alone left in float.

    By default all subjects are measured on a few samples, and those that lead then on all; a fast analysis takes
    fewer in both. Ctrl-C ends the analysis with what is done so far.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        settings: What to measure, and with what effort.
        progress: Told how far it is.
        journal: File that remembers what is measured, so that a later run can go on where this one was ended.
        on_result: Called with each subject as soon as it is measured; again when it is measured on more samples.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before anything was measured.
    """
    deadline = None if settings.budget_s is None else time.monotonic() + settings.budget_s
    _check(settings)
    chosen = settings.subjects or _subjects(quantized, settings)
    total = len(samples.names)
    indices = spread(total, total if settings.most_samples is None else settings.most_samples)
    wanted = find_outputs(quantized.float_model, settings.outputs)
    check_repeatable(quantized.float_model, wanted)
    engine = ExactEngine(quantized, samples, settings, subjects=chosen, outputs=wanted, indices=indices)
    reached = tuple(subject for subject in chosen if engine.reaches(subject))
    memory = Journal(journal)
    stages = Stages(engine, settings, reached, memory, Audience(progress, on_result))
    if memory.damaged:
        lines = counted(memory.damaged, "damaged line")
        stages.notes.append(f"{journal} has {lines}; what was lost with that was measured again")
    try:
        stages.run(indices, deadline)
    except KeyboardInterrupt:
        if not stages.values:
            raise
        stages.notes.append(f"the analysis was interrupted after {len(stages.values)} of {len(reached)} subjects")
    finally:
        engine.close()
        memory.close()
    if settings.fast and stages.complete and len(stages.first) < total:
        stages.notes.append(
            f"a fast analysis: all on {len(stages.first)} of {total} samples, the leading ones on {len(indices)}; "
            "ranks behind these are rough"
        )
    unreached = tuple(subject for subject in chosen if subject not in frozenset(reached))
    if not settings.outputs:
        stages.notes[:0] = other_outputs(quantized.float_model, wanted)
    result = _result(stages, engine, settings, samples, subjects=(reached, unreached))
    del stages, engine
    release_shared_memory()
    return result


def whole_sensitivity(
    quantized: QuantizedModel, samples: Samples, settings: SensitivitySettings, *, progress: Progress = SILENT
) -> Sensitivity:
    """The same for those to whom a part of it is of no use, and who set no budget: Ctrl-C ends them, too.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        settings: What to measure, and with what effort.
        progress: Told how far it is.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before everything was measured.
    """
    found = analyze_sensitivity(quantized, samples, settings, progress=progress)
    if not found.complete:
        raise KeyboardInterrupt
    return found


def _check(settings: SensitivitySettings) -> None:
    Scorer(settings.metrics)
    numbers = {"--samples": settings.samples, "--first-samples": settings.first_samples, "--top": settings.top}
    numbers["--blocks"] = settings.blocks
    for option, number in numbers.items():
        if number is not None and number < 1:
            raise BadInput(f"{option} {number} is not a number of things.", fix=f"give {option} 1 or more")
    if settings.budget_s is not None and not settings.budget_s > 0:
        raise BadInput(f"A budget of {settings.budget_s} seconds leaves no time.", fix="give a positive time")


def _subjects(quantized: QuantizedModel, settings: SensitivitySettings) -> tuple[Subject, ...]:
    return find_subjects(quantized, settings.kinds, patterns=settings.nodes, groups=settings.groups)


def _result(
    stages: Stages,
    engine: ExactEngine,
    settings: SensitivitySettings,
    samples: Samples,
    *,
    subjects: tuple[tuple[Subject, ...], tuple[Subject, ...]],
) -> Sensitivity:
    metrics = Scorer(settings.metrics).metrics
    reached, unreached = subjects
    by_kind: dict[SubjectKind, list[SubjectScore]] = {}
    for subject in reached:
        if subject in stages.values:
            by_kind.setdefault(subject.kind, []).append(stages.score(subject))
    network = engine.network
    return Sensitivity(
        mode=settings.mode,
        metrics=tuple(metric.name for metric in metrics),
        outputs=network.cutting.wanted,
        samples=samples.names,
        rankings={
            kind: rank(scores, metrics, mode=settings.mode, leaders=stages.leaders)
            for kind, scores in by_kind.items()
        },
        quantized=stages.score(EVERYTHING) if EVERYTHING in stages.values else None,
        unreached=unreached,
        complete=stages.complete,
        effort=Effort(
            blocks=len(network.cutting.blocks),
            batch=network.room.together,
            arithmetic=network.arithmetic,
            agreement_db=network.runner.agreement_db,
            planned=len(reached),
            measured=sum(map(len, by_kind.values())),
            resumed=len(stages.resumed),
            first_samples=len(stages.first),
            how="exact" if settings.exact else "fast" if settings.fast else "stages",
        ),
        notes=(
            *engine.notes,
            *_more_notes(network.constant, unreached),
            *_noise_notes(engine, [score for scores in by_kind.values() for score in scores]),
            *_unscored_notes(network.cutting.wanted, [each for scores in by_kind.values() for each in scores]),
            *stages.notes,
        ),
    )


def _more_notes(constant: Sequence[str], unreached: Sequence[Subject]) -> list[str]:
    notes = []
    if constant:
        words = "holds the same values whatever the model is fed, and was"
        words = words if len(constant) == 1 else words.replace("holds", "hold").replace("was", "were")
        notes.append(f"{_few(constant)} {words} not compared")
    if unreached:
        names = _few([subject.name for subject in unreached])
        notes.append(f"no compared output depends on {len(unreached)} of the subjects: {names}")
    return notes


def _unscored_notes(outputs: Sequence[str], scores: Sequence[SubjectScore]) -> list[str]:
    """A warning where means leave out what could not be compared at all."""
    measured = [score.values[:, :, 0] for score in scores]
    notes = []
    for place, output in enumerate(outputs):
        missing = sum(int(np.isnan(values[:, place]).sum()) for values in measured)
        if missing:
            of_all = f"{missing} of {sum(map(len, measured))} runs"
            notes.append(
                f"{output!r} has no score in {of_all}: of another shape than in float, or nothing is finite"
            )
    return notes


def _noise_notes(engine: ExactEngine, scores: Sequence[SubjectScore]) -> list[str]:
    """A warning where scores come near what fused kernels round differently."""
    limit = engine.network.runner.agreement_db - NOISE_MARGIN_DB
    highest = (score.mean.get("sqnr_db", 0.0) for score in scores)
    near = sum(limit < value < math.inf for value in highest)
    if engine.network.arithmetic != "fast" or not near:
        return []
    return [f"{near} scores above {limit:.0f} dB contain rounding of fused kernels; precise arithmetic has none"]


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown
