"""Layer by layer: the whole way from a quantized model and samples to a report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.coverage import Doubt, Grade, Judgement, LeftOut, Share
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, dequantize, fake_quantize
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import check_repeatable, hidden_tensors
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import UNREAD, QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.measure.verdicts import ThresholdSet, usual_limits
from roundoff.measure.verdicts import judge as judge_grade
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import EXACT_DB, decibels_text
from roundoff.quantize.agreement import JUDGED_SAMPLES, JudgedOutputs
from roundoff.quantize.agreement import judge_outputs as outputs_judgement
from roundoff.run.bench import FEW_SAMPLES, spread_over
from roundoff.run.budget import RunBudget
from roundoff.run.capture import Samples, complete_values, read_feed
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.variants import Variant, layer_tensors
from roundoff.studies.layers.attribution import (
    ATTRIBUTION_SAMPLES,
    Contribution,
    find_contributions,
    judge,
    judge_outputs,
    score_values,
)
from roundoff.studies.layers.experiments import (
    Experiments,
    Proof,
    integer_runs,
    prove,
    reference_runs,
)
from roundoff.studies.layers.measurement import (
    LayerBench,
    Tally,
    arithmetic_in_words,
    layer_row,
    overflows,
)
from roundoff.studies.layers.result import (
    WEIGHTS_UNKNOWN,
    LayerReport,
    LayerRow,
    LayerVerdict,
    Method,
    Mode,
)

# What a layer-by-layer run cannot tell, so that nobody takes it for good.

# Values that are this part of a step away from a code are on it but for the last bits.
_ON_THE_GRID = 1e-3
_LISTED = 3


def with_limits(verdict: LayerVerdict, quantized: QuantizedModel) -> LayerVerdict:
    """The verdict with what it does not cover; without anything it covers it is left open."""
    unjudged: list[Message] = []
    weights = [each for each in quantized.quantizers if each.kind == "weight"]
    values_of = Weights(quantized.float_model)
    # Quantizing changes no weight: then the float ones are not known.
    rounded = bool(weights) and all(
        each.tensor in values_of.protos and not _changes(each, values_of[each.tensor]) for each in weights
    )
    if rounded:
        unjudged.append(WEIGHTS_UNKNOWN)
    dynamic = len({each.node for each in quantized.oddities if each.kind == "dynamic"})
    if dynamic:
        unjudged.append(message("layers.unjudged_dynamic", count=dynamic))
    unread = list(dict.fromkeys(each.text for each in quantized.oddities if each.kind in UNREAD))
    unjudged += unread[:_LISTED]
    if len(unread) > _LISTED:
        unjudged.append(message("layers.unjudged_more", count=len(unread) - _LISTED))
    activations = any(each.kind == "activation" for each in quantized.quantizers)
    nothing = rounded and not activations
    kind = "open" if nothing or (unread and verdict.kind == "fine") else verdict.kind
    return replace(verdict, kind=kind, not_judged=tuple(unjudged))


def _changes(quantizer: Quantizer, values: Array) -> bool:
    params, spec = quantizer.params, quantizer.spec
    if quantizer.codes is not None:
        rounded = dequantize(quantizer.codes, params, spec.axis)
    else:
        rounded = fake_quantize(values, params, spec)
    # What half precision cannot hold is no rounding to codes.
    lost = np.abs(rounded - rounded.astype(values.dtype)).max(initial=0.0)
    apart = np.abs(rounded - values.astype(np.float32, copy=False)).max(initial=0.0)
    return bool(apart > _ON_THE_GRID * float(params.scale.min()) + lost)


_METHODS: tuple[Variant, ...] = ("local", "accumulated")


# Exact integers take longer, so units are put into float on fewer samples.
_INTEGER_SAMPLES = 4
_SIDE_BY_SIDE = 2
# How many runs that takes, for the display of progress.
_USUAL_RUNS = 8


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """How to analyze layers.

    Attributes:
        method: Which errors to measure.
        mode: Fake quantization in onnxruntime, or exact integer arithmetic.
        arithmetic: How the integer hardware computes; for the mode ``integer``.
        samples: Read at most so many samples; all when None.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
        file: The quantized file itself; that it computes what its quantizers say is looked at.
    """

    method: Method = "both"
    mode: Mode = "reference"
    arithmetic: Arithmetic = WIDEST
    samples: int | None = None
    max_memory: int | None = None
    threads: int | None = None
    file: Model | None = None


_DEFAULT_SETTINGS = LayerSettings()
# As diagnose has it: less is what two ways to round differ by.
_FILE_WORSE_DB = 3.0


def analyze_layers(
    quantized: QuantizedModel,
    samples: Samples,
    settings: LayerSettings = _DEFAULT_SETTINGS,
    *,
    progress: Progress = SILENT,
) -> LayerReport:
    """Measure what quantization costs each layer, and judge whether the loss is local.

    Args:
        quantized: The float model and its quantizers.
        samples: What both are fed.
        settings: What to measure, and how.
        progress: Told of every sample.

    Raises:
        BadInput: Nothing is quantized, samples or a quantizer do not fit the model, or the memory is too small.
        ModelFailed: The model cannot be run.
    """
    if not quantized.quantizers:
        raise BadInput(
            english("{path} has no quantizers, so there is nothing to measure.", path=quantized.float_model.path),
            fix=english("give a quantized model with --quantized, or a target with --target"),
        )
    model = quantized.float_model
    check_repeatable(model)
    budget = RunBudget(settings.threads, settings.max_memory).settled()
    indices = range(len(samples.names))[: settings.samples]
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    tensors = layer_tensors(quantized, complete_values(model, inferred, feed, threads=budget.cores))
    layers = LayerBench(quantized, tensors, samples, budget, progress)
    runner = None
    if settings.mode == "integer":
        runner = IntegerRunner(model, quantized.quantizers, settings.arithmetic, threads=settings.threads)
    variants = [variant for variant in _METHODS if settings.method in (variant, "both")]
    tallies = layers.reference(variants, indices) if runner is None else layers.integer(variants, indices, runner)
    notes = tuple(_notes(layers, indices, settings))
    computed = [tensor for tensor in tensors if tensor.value.node]
    rows = tuple(
        layer_row(order, tensor, tallies.get(tensor.name), variants) for order, tensor in enumerate(computed)
    )
    judgement = _judgement(quantized, rows, samples, indices, settings, progress)
    rows, verdict = _judged(rows, tallies, layers, indices, settings, judgement)
    verdict = with_limits(verdict, quantized)
    met = None if runner is None else runner.report
    return LayerReport(
        reference=shown(model.path),
        samples=tuple(samples.names[index] for index in indices),
        method=settings.method,
        mode=settings.mode,
        arithmetic=message("layers.arithmetic_reference")
        if met is None
        else arithmetic_in_words(settings.arithmetic),
        rows=rows,
        verdict=verdict,
        overflows=() if met is None else overflows(met, {row.node: row.op_type for row in rows}),
        float_nodes={}
        if met is None
        else {each.node: message("layers.float_node", op=each.op_type, why=each.why) for each in met.float_nodes},
        notes=notes,
        preparation=(*quantized.preparation, *quantized.notes),
        judgement=judgement,
    )


def _judgement(
    quantized: QuantizedModel,
    rows: Sequence[LayerRow],
    samples: Samples,
    indices: Sequence[int],
    settings: LayerSettings,
    progress: Progress,
) -> Judgement:
    """What the one judge says of the outputs; of exact integers by their own scores."""
    model = quantized.float_model
    chosen = spread_over(indices, JUDGED_SAMPLES)
    judged_outputs = outputs_judgement(
        model,
        switch_on(model, quantized.quantizers),
        samples,
        indices=chosen,
        threads=settings.threads,
        progress=progress,
    )
    found = judged_outputs.judgement
    if settings.file is not None:
        doubts = _file_doubts(judged_outputs, model, settings.file, samples, chosen, settings.threads)
        if doubts:
            grade: Grade = "lossy" if found.grade == "lossy" else "no_evidence"
            found = replace(found, grade=grade, doubts=(*found.doubts, *doubts))
    scores = [(row.tensor, row.accumulated) for row in rows if row.accumulated is not None]
    measured = sum(1 for row in rows if (row.accumulated or row.local) and row.samples)
    coverage = replace(found.coverage, tensors=Share(len(rows), measured, _left_out(rows, measured)))
    if settings.mode == "reference" or settings.method == "local":
        return replace(found, coverage=coverage)
    judged = set(found.coverage.outputs.judged)
    exact = {name: score_values(score) for name, score in scores if name in judged and score.sqnr_db is not None}
    return judge_grade(exact, coverage, doubts=found.doubts)


def _file_doubts(
    found: JudgedOutputs,
    model: Model,
    file: Model,
    samples: Samples,
    indices: Sequence[int],
    threads: int | None,
) -> tuple[Doubt, ...]:
    """A doubt where the file as it runs is worse than its quantizers explain; none where it cannot be run here."""
    try:
        theirs = outputs_judgement(model, file, samples, indices=indices, threads=threads).agreement
    except (RoundoffError, ValueError):  # other operators, or other outputs: layers are judged all the same
        return ()
    for ours, as_file in zip(found.agreement, theirs, strict=True):
        alone, whole = (each.score.values.get("sqnr_db") for each in (ours, as_file))
        if alone is not None and whole is not None and min(alone, EXACT_DB) - whole >= _FILE_WORSE_DB:
            return (Doubt("file", name=f"{decibels_text(whole)} < {decibels_text(alone)}"),)
    return ()


def _left_out(rows: Sequence[LayerRow], measured: int) -> tuple[LeftOut, ...]:
    lost = len(rows) - measured
    names = [row.tensor for row in rows if not row.samples]
    return (LeftOut("unreadable", lost, tuple(names[:1])),) if lost else ()


def _judged(
    rows: tuple[LayerRow, ...],
    tallies: Mapping[str, Tally],
    layers: LayerBench,
    indices: Sequence[int],
    settings: LayerSettings,
    judgement: Judgement,
) -> tuple[tuple[LayerRow, ...], LayerVerdict]:
    thresholds = usual_limits()
    if settings.method != "both":
        outputs, agrees = judge_outputs(rows, thresholds)
        return rows, LayerVerdict("open", outputs, agrees, thresholds.describe())
    found = find_contributions(layers, tallies, indices)
    by_tensor = {each.tensor: each.introduced() for each in found}
    rows = tuple(replace(row, introduced=by_tensor.get(row.tensor)) for row in rows)
    proving = _Proving(layers, indices, settings, thresholds)
    return rows, proving.completed(judge(rows, found, thresholds, proving.prove, judgement=judgement))


class _Proving:
    """Experiments, prepared when the first is wanted."""

    def __init__(
        self, layers: LayerBench, indices: Sequence[int], settings: LayerSettings, thresholds: ThresholdSet
    ) -> None:
        self._layers, self._settings, self._thresholds = layers, settings, thresholds
        self._indices = spread_over(indices, _INTEGER_SAMPLES) if settings.mode == "integer" else indices
        self._experiments: Experiments | None = None

    def prove(self, orders: Sequence[Sequence[Contribution]], limit: int) -> Proof:
        """Try units in float."""
        parts = {each.tensor: each.parts for order in orders for each in order}
        names = [[each.tensor for each in order] for order in orders]
        progress = self._layers.progress
        progress.start("trying units in float", min(FEW_SAMPLES, len(self._indices)) * _USUAL_RUNS)
        try:
            self._experiments = self._opened()
            return prove(self._experiments, parts.__getitem__, names, limit=limit)
        finally:
            progress.finish()

    def _opened(self) -> Experiments:
        threads = self._layers.budget.cores
        integers = self._settings.mode == "integer"
        # Samples side by side wait less for each other than the threads of one.
        workers = 1 if integers else min(_SIDE_BY_SIDE, threads)
        if integers:
            open_network = integer_runs(self._layers, self._settings.arithmetic, threads)
        else:
            open_network = reference_runs(self._layers, max(1, threads // workers))
        return Experiments(
            self._layers, self._indices, thresholds=self._thresholds, open_network=open_network, workers=workers
        )

    def completed(self, verdict: LayerVerdict) -> LayerVerdict:
        """The verdict with what else an experiment tells."""
        experiments = self._experiments
        verdict = replace(verdict, samples=0 if experiments is None else experiments.samples)
        if verdict.kind != "distributed" or verdict.agrees or experiments is None:
            return verdict
        kinds: dict[bool, list[str]] = {True: [], False: []}
        for quantizer in self._layers.quantized.quantizers:
            kinds[quantizer.kind == "activation"].append(quantizer.name)
        if not (kinds[True] and kinds[False]):
            return verdict
        weights, activations = (experiments.run(kinds[activation]).found for activation in (False, True))
        return replace(verdict, float_weights=weights, float_activations=activations)


def _notes(layers: LayerBench, indices: Sequence[int], settings: LayerSettings) -> Iterator[Message]:
    if layers.passes > 1:
        yield message("layers.note_passes", count=layers.passes)
    if settings.method == "both" and len(indices) > ATTRIBUTION_SAMPLES:
        yield message("layers.note_estimated", some=ATTRIBUTION_SAMPLES, all=len(indices))
    hidden = hidden_tensors(layers.quantized.float_model)
    if hidden:
        nodes = tuple(repr(node) for node in dict.fromkeys(hidden.values()))
        yield message("layers.note_hidden", count=len(hidden), nodes=nodes)
