"""Which samples a quantized network does worst on, by its outputs and those of the float one."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import check_repeatable, find_outputs, other_outputs
from roundoff.graph.quantized_model import QuantizedModel, has_exact_weights
from roundoff.measure.classes import index_pair, same_classes
from roundoff.measure.metrics import Metric, require, status_of
from roundoff.measure.pairs import measure_pair
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import nonfinite_note
from roundoff.run.bench import Bench
from roundoff.run.budget import UNLIMITED, RunBudget
from roundoff.run.capture import Samples
from roundoff.studies.samples.result import OutputScore, SampleScore, WorstSamples


@dataclass(frozen=True, slots=True)
class WorstSampleSettings:
    """What to rank by.

    Attributes:
        metrics: Metric names; the first one ranks.
        outputs: Tensors to compare, or nodes whose outputs are meant; the model's outputs when empty.
        limits: What the run may take.
    """

    metrics: tuple[str, ...] = ("sqnr_db", "cosine", "mse")
    outputs: tuple[str, ...] = ()
    limits: RunBudget = UNLIMITED


_DEFAULT_SETTINGS = WorstSampleSettings()


def find_worst_samples(
    quantized: QuantizedModel,
    samples: Samples,
    settings: WorstSampleSettings = _DEFAULT_SETTINGS,
    *,
    progress: Progress = SILENT,
) -> WorstSamples:
    """Rank samples by how much quantization changes their outputs; a sample is as bad as its worst output.

    Of each sample only its scores are kept.

    Args:
        quantized: The float network and its quantizers.
        samples: What both are fed.
        settings: What to rank by.
        progress: Told of every sample.

    Raises:
        BadInput: Nothing is quantized, there is no such metric or output, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    model = quantized.float_model
    if not quantized.quantizers:
        what = english("{path} has no quantizers, so all samples are equally good.", path=model.path)
        raise BadInput(what, fix=english("give a quantized model with --quantized, or a target with --target"))
    metrics = require(settings.metrics, command="samples")
    names = find_outputs(model, settings.outputs)
    check_repeatable(model, names)
    bench = Bench(model, samples, threads=settings.limits.threads)
    networks = [bench.open(each, tensors=names, optimize=True) for each in ((), quantized.quantizers)]
    found = []
    progress.start("comparing outputs", len(samples.names))
    try:
        ran = bench.run(range(len(samples.names)), *networks)
        for index, (sample, (left, right)) in enumerate(zip(samples.names, ran, strict=True)):
            outputs = tuple(_output_score(name, left[name], right[name], metrics) for name in names)
            found.append(SampleScore(0, sample, index, _worst(outputs, metrics[0]), outputs))
            progress.advance()
    finally:
        progress.finish()
    notes = () if settings.outputs else other_outputs(model, names)
    return _ranked(found, metrics, quantized=quantized, samples=samples, notes=notes)


def _output_score(name: str, ours: Array, theirs: Array, metrics: Sequence[Metric]) -> OutputScore:
    if not isinstance(ours, np.ndarray) or ours.dtype.kind not in "fiub":
        return OutputScore(name, "unreadable", {})
    if ours.shape != theirs.shape:
        return OutputScore(name, "shape", {})
    sums = measure_pair(*index_pair(ours, theirs))
    scored = {metric.name: metric.value(sums) for metric in metrics}
    values = {name: value for name, value in scored.items() if not math.isnan(value)}
    same, rows = same_classes(ours, theirs)
    return OutputScore(name, status_of(sums)[0], values, rows, rows - same)


def _worst(outputs: Sequence[OutputScore], metric: Metric) -> float | None:
    """The score of the worst output; None when one has none."""
    values = [output.values.get(metric.name, math.nan) for output in outputs]
    if not values or any(math.isnan(value) for value in values):
        return None
    return min(values) if metric.direction == "higher" else max(values)


def _ranked(
    found: list[SampleScore],
    metrics: Sequence[Metric],
    *,
    quantized: QuantizedModel,
    samples: Samples,
    notes: Sequence[Message],
) -> WorstSamples:
    better = metrics[0].direction == "higher"

    def badness(each: SampleScore) -> tuple[bool, float]:
        if each.score is None:
            return False, 0.0
        return True, each.score if better else -each.score

    ordered = sorted(found, key=badness)
    scores = [each.score for each in found if each.score is not None]
    rows = any(output.rows for each in found for output in each.outputs)
    return WorstSamples(
        reference=shown(quantized.float_model.path),
        data=shown(samples.label),
        metrics=tuple(metric.name for metric in metrics),
        higher_is_better=better,
        samples=tuple(replace(each, rank=rank) for rank, each in enumerate(ordered, start=1)),
        median=statistics.median(scores) if scores else None,
        unscored=len(found) - len(scores),
        moved_top=sum(1 for each in found if each.moved_top) if rows else None,
        notes=(
            *quantized.notes,
            *((message("samples.note_exact_weights"),) if has_exact_weights(quantized) else ()),
            *notes,
            *_unlike(found),
            *nonfinite_note("sample", [each.sample for each in found if _is_nonfinite(each)]),
        ),
        preparation=quantized.preparation,
    )


def _is_nonfinite(each: SampleScore) -> bool:
    return any(output.status == "nonfinite" for output in each.outputs)


def _unlike(found: Sequence[SampleScore]) -> list[Message]:
    """Notes on outputs that have no score because their shape is not that in float."""
    counts = Counter(output.output for each in found for output in each.outputs if output.status == "shape")
    return [message("samples.note_shape", output=name, count=count) for name, count in counts.items()]
