"""Layer by layer: the whole way from a quantized model and samples to a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roundoff.analysis.layers.contributions import ATTRIBUTION_SAMPLES, find_contributions
from roundoff.analysis.layers.copies import Variant
from roundoff.analysis.layers.integer import arithmetic_in_words, overflows
from roundoff.analysis.layers.measuring import Measuring
from roundoff.analysis.layers.passes import Budget
from roundoff.analysis.layers.rows import layer_row
from roundoff.analysis.layers.tally import Tally
from roundoff.analysis.layers.tensors import layer_tensors
from roundoff.analysis.layers.verdict import judge, judge_outputs
from roundoff.core.layer_scores import LayerReport, LayerRow, LayerVerdict, Method, Mode
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.target import Arithmetic
from roundoff.errors import BadInput
from roundoff.graph.interface import hidden_tensors
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value, values
from roundoff.metrics.thresholds import load_profile
from roundoff.runtime.feeds import Samples
from roundoff.runtime.integer import IntegerRunner
from roundoff.runtime.measure import complete_values
from roundoff.runtime.runner import read_feed

__all__ = ["LayerSettings", "analyze_layers"]

_METHODS: tuple[Variant, ...] = ("local", "accumulated")
_REFERENCE_ARITHMETIC = "fake quantization in onnxruntime on the CPU, graph optimization off"


_WIDEST = Arithmetic()


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
    arithmetic: Arithmetic = _WIDEST
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
    notes = (*quantized.notes, *_notes(measuring, indices, settings))
    computed = [tensor for tensor in tensors if tensor.value.node]
    rows = tuple(
        layer_row(order, tensor, tallies.get(tensor.name), variants) for order, tensor in enumerate(computed)
    )
    rows, verdict = _judged(rows, tallies, measuring, indices, settings)
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
    return rows, judge(rows, found, thresholds)


def _notes(measuring: Measuring, indices: Sequence[int], settings: LayerSettings) -> list[str]:
    notes = []
    if measuring.passes > 1:
        notes.append(f"{measuring.passes} passes per sample, to stay within the memory")
    if settings.method == "both" and len(indices) > ATTRIBUTION_SAMPLES:
        few = f"{ATTRIBUTION_SAMPLES} of {len(indices)} samples"
        notes.append(f"what each unit adds itself was measured on {few}")
    hidden = hidden_tensors(measuring.quantized.float_model)
    if hidden:
        nodes = ", ".join(repr(node) for node in dict.fromkeys(hidden.values()))
        notes.append(f"{len(hidden)} tensors inside {nodes} cannot be seen from outside and have no row")
    return notes
