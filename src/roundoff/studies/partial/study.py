"""More and more of a network left in float or raised to 16 bits, and what that brings."""

import math
from collections.abc import Iterator, Sequence

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.errors import BadInput, nearest
from roundoff.graph.fake_constants import has_exact_weights
from roundoff.graph.interface import check_repeatable
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import Message, message
from roundoff.run.feeds import Samples
from roundoff.studies.partial.measuring import Measured, by_evaluator, by_outputs
from roundoff.studies.partial.raising import WIDE_BITS, Changes
from roundoff.studies.partial.result import PartialQuantization, PartialStep
from roundoff.studies.partial.settings import PartialSettings, check_settings, drops, knee, levels_off
from roundoff.studies.sensitivity.result import Sensitivity, SubjectKind, SwitchedSubject
from roundoff.studies.sensitivity.study import whole_sensitivity
from roundoff.studies.sensitivity.subjects import SensitivitySettings
from roundoff.studies.switches import Switches

__all__ = [
    "RANKING_SAMPLES",
    "named_subjects",
    "ranked_subjects",
    "sweep",
]


_DEFAULT_SETTINGS = PartialSettings()
_MOST_NAMED = 3


def sweep(
    quantized: QuantizedModel,
    samples: Samples,
    subjects: Sequence[SwitchedSubject],
    settings: PartialSettings = _DEFAULT_SETTINGS,
    *,
    progress: Progress = SILENT,
) -> PartialQuantization:
    """Score a network with the first 0, 1, 2 ... subjects left in float or raised to 16 bits.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        subjects: What to change, in this order.
        settings: What to measure, and what to reach.
        progress: Told how far it is.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before anything was measured.
    """
    _check(quantized, subjects, settings)
    check_repeatable(quantized.float_model)
    tried = subjects[: settings.top]
    added = list(_added(tried))
    changes = Changes(quantized.quantizers, settings.to)
    choices = [
        changes.with_changed(name for names in added[:count] for name in names) for count in range(len(added) + 1)
    ]
    model, evaluator = quantized.float_model, settings.evaluator
    if evaluator is None:
        measured = by_outputs(model, samples, choices, settings, progress=progress)
    else:
        measured = by_evaluator(model, samples, choices, settings, evaluator=evaluator, progress=progress)
    higher = measured.higher_is_better
    return PartialQuantization(
        reference=shown(model.path),
        samples=len(samples.names[: settings.samples]),
        score=measured.name,
        higher_is_better=higher,
        float_score=measured.float_score,
        to=settings.to,
        ranking=settings.ranking,
        subjects=tuple(subject.name for subject in subjects),
        steps=tuple(_steps(measured, tried, added)),
        goal=measured.goal,
        knee=knee(measured.scores, measured.goal, higher_is_better=higher),
        levels_off=levels_off(measured.scores, higher_is_better=higher),
        drops=drops(measured.scores, higher_is_better=higher),
        complete=not measured.interrupted,
        exact_weights=has_exact_weights(quantized),
        notes=(*quantized.notes, *_notes(quantized, tried, settings, measured)),
        preparation=quantized.preparation,
    )


def _check(quantized: QuantizedModel, subjects: Sequence[SwitchedSubject], settings: PartialSettings) -> None:
    known = {each.name for each in quantized.quantizers}
    if not subjects:
        raise BadInput("There is nothing to leave in float.", fix="name at least one node with --nodes")
    for subject in subjects:
        for name in subject.quantizers:
            if name not in known:
                what = f"{subject.name!r} has the quantizer {name!r}, which the model does not have."
                raise BadInput(what, fix=nearest(name, known))
    check_settings(settings, labelled=settings.labels is not None)


def _added(subjects: Sequence[SwitchedSubject]) -> Iterator[tuple[str, ...]]:
    """The quantizers that each subject changes, without those that earlier ones changed already."""
    seen: set[str] = set()
    for subject in subjects:
        fresh = tuple(name for name in subject.quantizers if name not in seen)
        seen.update(fresh)
        yield fresh


def _steps(
    measured: Measured, subjects: Sequence[SwitchedSubject], added: Sequence[tuple[str, ...]]
) -> Iterator[PartialStep]:
    whole = measured.float_score
    comparable = whole > 0 and math.isfinite(whole)
    for count, (score, others) in enumerate(zip(measured.scores, measured.others, strict=True)):
        yield PartialStep(
            count=count,
            subject=subjects[count - 1].name if count else "",
            op_type=subjects[count - 1].op_type if count else "",
            quantizers=added[count - 1] if count else (),
            score=score,
            share=score / whole if comparable else None,
            scores=others,
        )


def _notes(
    quantized: QuantizedModel, tried: Sequence[SwitchedSubject], settings: PartialSettings, measured: Measured
) -> Iterator[Message]:
    chosen = {name for subject in tried for name in subject.quantizers}
    wide = [
        each.name
        for each in quantized.quantizers
        if each.name in chosen and each.kind != "bias" and each.spec.bits >= WIDE_BITS
    ]
    if wide and settings.to != "float":
        few = ", ".join(wide[:_MOST_NAMED]) + (" ..." if len(wide) > _MOST_NAMED else "")
        yield message("partial.note_wide", count=len(wide), names=few)
    if has_exact_weights(quantized):
        yield message("partial.note_exact_weights")
    if measured.interrupted:
        yield message("partial.note_interrupted", done=len(measured.scores), all=len(tried) + 1)


# What a sweep changes, and in which order: as ranked, as named, or as a file says.

# As many ranks as a sweep takes are to be right.
_LEADING = 20
RANKING_SAMPLES = 64
"""A ranking is made on so many samples at most, evenly spread; a sweep may take thousands."""


def named_subjects(quantized: QuantizedModel, names: Sequence[str]) -> tuple[SwitchedSubject, ...]:
    """Subjects for names, in their order; see `Switches` for what names mean.

    Raises:
        BadInput: A name means nothing that is quantized.
    """
    switches = Switches(quantized)
    op_types = {node.name: node.op_type for node in quantized.float_model.proto.graph.node}
    found = []
    for name in dict.fromkeys(names):
        quantizers = switches.find(name)
        read = {consumer.node for each in switches.select(quantizers) for consumer in each.consumers}
        node = name if name in op_types else read.pop() if len(read) == 1 else ""
        found.append(SwitchedSubject(name, "group", quantizers, node=node, op_type=op_types.get(node, "")))
    return tuple(found)


def ranked_subjects(
    quantized: QuantizedModel,
    samples: Samples,
    kind: SubjectKind,
    *,
    max_memory: int | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> tuple[tuple[SwitchedSubject, ...], Sensitivity]:
    """Subjects of a kind, the one first that hurts most when it alone is quantized.

    Args:
        quantized: The network.
        samples: What to measure it on.
        kind: Nodes, weights or activations.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
        progress: Told how far it is.

    Returns:
        The subjects, and the whole ranking.
    """
    settings = SensitivitySettings(
        kinds=(kind,), samples=RANKING_SAMPLES, top=_LEADING, max_memory=max_memory, threads=threads
    )
    found = whole_sensitivity(quantized, samples, settings, progress=progress)
    if kind not in found.rankings:
        what = f"No output of {quantized.float_model.path} depends on anything that is quantized."
        raise BadInput(what, fix="quantize what leads to the outputs")
    return tuple(row.score.subject for row in found.rankings.get(kind, ())), found
