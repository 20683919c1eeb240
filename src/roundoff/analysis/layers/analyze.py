"""Layer by layer: the whole way from a quantized model and samples to a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roundoff.analysis.layers.contributions import ATTRIBUTION_SAMPLES, find_contributions
from roundoff.analysis.layers.copies import Variant
from roundoff.analysis.layers.experiments import (
    FEW_SAMPLES,
    Experiments,
    integer_runs,
    reference_runs,
    spread_over,
)
from roundoff.analysis.layers.integer import arithmetic_in_words, overflows
from roundoff.analysis.layers.judged import with_limits
from roundoff.analysis.layers.measuring import Measuring
from roundoff.analysis.layers.passes import Budget
from roundoff.analysis.layers.proof import Proof, prove
from roundoff.analysis.layers.rows import layer_row
from roundoff.analysis.layers.tally import Tally
from roundoff.analysis.layers.tensors import layer_tensors
from roundoff.analysis.layers.verdict import Contribution, judge, judge_outputs
from roundoff.core.layer_scores import LayerReport, LayerRow, LayerVerdict, Method, Mode
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.thresholds import ThresholdSet
from roundoff.errors import BadInput
from roundoff.graph.interface import hidden_tensors
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.randomness import check_repeatable
from roundoff.graph.shapes import Value, values
from roundoff.metrics.thresholds import load_profile
from roundoff.runtime.feeds import Samples
from roundoff.runtime.integer import IntegerRunner
from roundoff.runtime.measure import complete_values
from roundoff.runtime.runner import read_feed

__all__ = ["LayerSettings", "analyze_layers"]

_METHODS: tuple[Variant, ...] = ("local", "accumulated")
_REFERENCE_ARITHMETIC = "fake quantization in onnxruntime"


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
    """

    method: Method = "both"
    mode: Mode = "reference"
    arithmetic: Arithmetic = WIDEST
    samples: int | None = None
    max_memory: int | None = None
    threads: int | None = None


_DEFAULT_SETTINGS = LayerSettings()


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
            f"{quantized.float_model.path} has no quantizers, so there is nothing to measure.",
            fix="give a quantized model with --quantized, or a target with --target",
        )
    model = quantized.float_model
    check_repeatable(model)
    budget = Budget.of(settings.max_memory, settings.threads)
    indices = range(len(samples.names))[: settings.samples]
    tensors = layer_tensors(quantized, _everything(quantized, samples, budget))
    measuring = Measuring(quantized, tensors, samples, budget, progress)
    runner = None
    if settings.mode == "integer":
        runner = IntegerRunner(model, quantized.quantizers, settings.arithmetic, threads=settings.threads)
    variants = [variant for variant in _METHODS if settings.method in (variant, "both")]
    tallies = (
        measuring.reference(variants, indices) if runner is None else measuring.integer(variants, indices, runner)
    )
    notes = tuple(_notes(measuring, indices, settings))
    computed = [tensor for tensor in tensors if tensor.value.node]
    rows = tuple(
        layer_row(order, tensor, tallies.get(tensor.name), variants) for order, tensor in enumerate(computed)
    )
    rows, verdict = _judged(rows, tallies, measuring, indices, settings)
    verdict = with_limits(verdict, quantized)
    met = None if runner is None else runner.report
    return LayerReport(
        reference=shown(model.path),
        samples=tuple(samples.names[index] for index in indices),
        method=settings.method,
        mode=settings.mode,
        arithmetic=_REFERENCE_ARITHMETIC if met is None else arithmetic_in_words(settings.arithmetic),
        rows=rows,
        verdict=verdict,
        overflows=() if met is None else overflows(met, {row.node: row.op_type for row in rows}),
        float_nodes={} if met is None else {each.node: f"{each.op_type}: {each.why}" for each in met.float_nodes},
        notes=notes,
        preparation=(*quantized.preparation, *quantized.notes),
    )


def _everything(quantized: QuantizedModel, samples: Samples, budget: Budget) -> tuple[Value, ...]:
    model = quantized.float_model
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    return complete_values(model, inferred, feed, threads=budget.threads)


def _judged(
    rows: tuple[LayerRow, ...],
    tallies: Mapping[str, Tally],
    measuring: Measuring,
    indices: Sequence[int],
    settings: LayerSettings,
) -> tuple[tuple[LayerRow, ...], LayerVerdict]:
    thresholds = load_profile("default")
    if settings.method != "both":
        outputs, agrees = judge_outputs(rows, thresholds)
        return rows, LayerVerdict("open", outputs, agrees, thresholds.describe())
    found = find_contributions(measuring, tallies, indices)
    by_tensor = {each.tensor: each.introduced() for each in found}
    rows = tuple(replace(row, introduced=by_tensor.get(row.tensor)) for row in rows)
    proving = _Proving(measuring, indices, settings, thresholds)
    return rows, proving.completed(judge(rows, found, thresholds, proving.prove))


class _Proving:
    """Experiments, prepared when the first is wanted."""

    def __init__(
        self, measuring: Measuring, indices: Sequence[int], settings: LayerSettings, thresholds: ThresholdSet
    ) -> None:
        self._measuring, self._settings, self._thresholds = measuring, settings, thresholds
        self._indices = spread_over(indices, _INTEGER_SAMPLES) if settings.mode == "integer" else indices
        self._experiments: Experiments | None = None

    def prove(self, orders: Sequence[Sequence[Contribution]], limit: int) -> Proof:
        """Try units in float."""
        parts = {each.tensor: each.parts for order in orders for each in order}
        names = [[each.tensor for each in order] for order in orders]
        progress = self._measuring.progress
        progress.start("trying units in float", min(FEW_SAMPLES, len(self._indices)) * _USUAL_RUNS)
        try:
            self._experiments = self._opened()
            return prove(self._experiments, parts.__getitem__, names, limit=limit)
        finally:
            progress.finish()

    def _opened(self) -> Experiments:
        threads = self._measuring.budget.threads
        integers = self._settings.mode == "integer"
        # Samples side by side wait less for each other than the threads of one.
        workers = 1 if integers else min(_SIDE_BY_SIDE, threads)
        if integers:
            open_network = integer_runs(self._measuring, self._settings.arithmetic, threads)
        else:
            open_network = reference_runs(self._measuring, max(1, threads // workers))
        return Experiments(
            self._measuring, self._indices, thresholds=self._thresholds, open_network=open_network, workers=workers
        )

    def completed(self, verdict: LayerVerdict) -> LayerVerdict:
        """The verdict with what else an experiment tells."""
        experiments = self._experiments
        verdict = replace(verdict, samples=0 if experiments is None else experiments.samples)
        if verdict.kind != "distributed" or verdict.agrees or experiments is None:
            return verdict
        kinds: dict[bool, list[str]] = {True: [], False: []}
        for quantizer in self._measuring.quantized.quantizers:
            kinds[quantizer.kind == "activation"].append(quantizer.name)
        if not (kinds[True] and kinds[False]):
            return verdict
        weights, activations = (experiments.run(kinds[activation]).found for activation in (False, True))
        return replace(verdict, float_weights=weights, float_activations=activations)


def _notes(measuring: Measuring, indices: Sequence[int], settings: LayerSettings) -> list[str]:
    notes = []
    if measuring.passes > 1:
        notes.append(f"{measuring.passes} passes per sample, to stay within the memory")
    if settings.method == "both" and len(indices) > ATTRIBUTION_SAMPLES:
        notes.append(f"what units add was estimated on {ATTRIBUTION_SAMPLES} of {len(indices)} samples")
    hidden = hidden_tensors(measuring.quantized.float_model)
    if hidden:
        nodes = ", ".join(repr(node) for node in dict.fromkeys(hidden.values()))
        notes.append(f"{len(hidden)} tensors inside {nodes} cannot be seen from outside and have no row")
    return notes
