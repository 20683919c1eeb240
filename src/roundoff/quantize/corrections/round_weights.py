"""Rounding of weights by what their layers compute: up or down, whichever cancels errors (as AdaRound does)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantization import code_dtype, dequantize, quantize
from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.blocks import Reading, Substitute
from roundoff.graph.insertion import switch_on
from roundoff.graph.preparation.draft import named
from roundoff.graph.weights import Weights
from roundoff.quantize.corrections.gram import Gram, WeightRows, weight_rows
from roundoff.quantize.corrections.layers import QuantizedLayer, node_by_name, quantized_layers
from roundoff.quantize.corrections.registry import Corrected, Task, correction
from roundoff.quantize.corrections.rounding import output_error, rounded_together
from roundoff.quantize.corrections.stepped_run import SteppedRun
from roundoff.quantize.step_options import StepOption
from roundoff.quantize.work_context import Participation

__all__ = ["round_weights"]

_SOURCE, _WEIGHT = 0, 1
_LONGEST_ROW = 6000
"""Beyond, the Gram matrix of a row takes more than half a gigabyte."""


@dataclass(frozen=True, slots=True, eq=False)
class _Weight:
    """A weight that can be rounded anew."""

    layer: QuantizedLayer
    quantizer: Quantizer
    node: Any
    rows: WeightRows


@correction(
    "round_weights",
    samples=StepOption(64, "how many samples the errors are taken over at most", least=1, most=100_000),
    iterations=StepOption(10, "how often each weight is gone through at most", least=1, most=1000),
    time_limit=StepOption(
        0.0, "how many seconds it may take, 0 for any; layers not reached by then keep their codes", least=0.0
    ),
)
def round_weights(task: Task) -> Corrected:
    """Round each weight up or down so that errors cancel in what its layer computes (as AdaRound does)."""
    weights, notes = _usable(task)
    if not weights:
        return Corrected(task.quantized, (), (*notes, "round_weights: there is no weight to round"))
    return _Rounding(task, weights).run(notes)


def _usable(task: Task) -> tuple[list[_Weight], list[str]]:
    """Weights that can be rounded, and why others cannot."""
    nodes = node_by_name(task.quantized.float_model)
    held = Weights(task.quantized.float_model)
    weights, reasons = [], dict[str, list[str]]()
    for layer in quantized_layers(task.quantized):
        if layer.weight is None or (task.nodes and layer.node not in task.nodes):
            continue
        rows = weight_rows(nodes[layer.node], held.shape(layer.weight.tensor))
        reason = _obstacle(layer.weight, rows)
        if rows is None or reason:
            reasons.setdefault(reason, []).append(layer.node)
        else:
            weights.append(_Weight(layer, layer.weight, nodes[layer.node], rows))
    return weights, [f"round_weights: {named(names)} as before, because {why}" for why, names in reasons.items()]


def _obstacle(quantizer: Quantizer, rows: WeightRows | None) -> str:
    if rows is None:
        return "results are no sums over rows of the weight"
    if len(quantizer.consumers) > 1:
        return "several nodes read the weight"
    if quantizer.after or quantizer.codes is not None:
        return "the weight has codes of its own"
    output_axis = 1 if rows.turned else 0
    if quantizer.spec.axis is not None and quantizer.params.scale.size > 1 and quantizer.spec.axis != output_axis:
        return "the scales of the weight run along its rows"
    return f"a row has more than {_LONGEST_ROW} elements" if rows.length > _LONGEST_ROW else ""


class _Rounding:
    """All weights of a model, one after the other."""

    def __init__(self, task: Task, weights: Sequence[_Weight]) -> None:
        self._task, self._weights = task, weights
        self._held = Weights(task.quantized.float_model)
        self._readings: dict[Consumer, Reading] = {}
        self._codes: dict[str, Array] = {}
        self._taken: list[Participation] = []

    def run(self, notes: Sequence[str]) -> Corrected:
        task, context = self._task, self._task.context
        started, limit = time.monotonic(), float(task.options["time_limit"])
        model = switch_on(task.quantized.float_model, task.quantized.quantizers)
        nodes = node_by_name(model)
        stops = [nodes[each.layer.node].input[_SOURCE] for each in self._weights]
        late: list[str] = []
        context.progress.start("rounding weights", len(stops))
        try:
            with SteppedRun(model, context, stops=stops, most=int(task.options["samples"])) as run:
                for each, stop in zip(self._weights, stops, strict=True):
                    if limit and time.monotonic() - started > limit:
                        late.append(each.layer.node)
                        continue
                    run.advance(stop, self._readings)
                    gram = Gram(
                        each.node, self._held.shape(each.quantizer.tensor), each.rows, samples=len(run.samples)
                    )
                    for index in run.samples:
                        gram.add(run.read(index, stop))
                    self._round(each, gram.matrix)
                    context.progress.advance()
        finally:
            context.progress.finish()
        if late:
            notes = (
                *notes,
                f"round_weights: the time was over before {counted(len(late), 'layer')}: {named(late)}",
            )
        quantizers = tuple(
            replace(each, codes=self._codes[each.name]) if each.name in self._codes else each
            for each in task.quantized.quantizers
        )
        return Corrected(replace(task.quantized, quantizers=quantizers), tuple(self._taken), tuple(notes))

    def _round(self, each: _Weight, gram: Array) -> None:
        quantizer, spec = each.quantizer, each.quantizer.spec
        values = self._held[quantizer.tensor]
        scale, zero = (
            np.broadcast_to(_aligned(part, values.ndim, spec.axis), values.shape).astype(np.float64)
            for part in (quantizer.params.scale, quantizer.params.zero_point)
        )
        steps = each.rows.rows(values.astype(np.float64) / scale + zero)
        nearest = each.rows.rows(quantize(values.astype(np.float32), quantizer.params, spec))
        codes = rounded_together(
            steps,
            nearest,
            gram,
            limits=(spec.code_min, spec.code_max),
            sweeps=int(self._task.options["iterations"]),
        )
        # Errors in values, not in steps: rows may have scales of their own.
        unit = each.rows.rows(scale)
        before, after = (output_error((rounded - steps) * unit, gram) for rounded in (nearest, codes))
        # What was found with damping may be worse without it; such a row stays as it was.
        kept = np.where((after < before)[..., None], codes, nearest)
        changed = int(np.count_nonzero(kept != nearest))
        if not changed:
            return
        whole = each.rows.restored(kept, values.shape).astype(code_dtype(spec))
        self._codes[quantizer.name] = whole
        substitute = Substitute(
            quantizer.tensor, dequantize(whole, quantizer.params, spec.axis).astype(values.dtype)
        )
        self._readings[Consumer(each.layer.node, _WEIGHT)] = substitute
        left = float(np.minimum(before, after).sum() / before.sum())
        text = f"{changed} of {values.size} codes, error of its results down to {left:.0%}"
        self._taken.append(Participation(each.layer.node, "layer", text))


def _aligned(parameter: Array, rank: int, axis: int | None) -> Array:
    if parameter.ndim == 0 or axis is None:
        return parameter.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return parameter.reshape(shape)
