"""Rounding of weights by what their layers compute: up or down, whichever cancels errors (as AdaRound does)."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, aligned, code_dtype, dequantize, quantize
from roundoff.core.tensors import Array
from roundoff.graph.blocks import Reading, Substitute
from roundoff.graph.draft import MOST_NAMED
from roundoff.graph.insertion import switch_on
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, message, some
from roundoff.messages.numbers import share_text
from roundoff.quantize.corrections.layers import (
    Gram,
    QuantizedLayer,
    SteppedRun,
    WeightRows,
    activation_clip,
    node_by_name,
    quantized_layers,
    weight_rows,
)
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import Corrected, CorrectionJob, StepOption, StepOutcome, correction

# Rounding a weight up or down so that the errors of its elements cancel in what the layer computes.

_DAMPING = 0.01
"""Share of the mean energy that is added to each input: samples are few, and what they do not show counts too."""

_NOTHING = 1e-12
"""Share of an input's energy that is no gain: sums end in other bits."""
_AT_ONCE = 64
"""Elements of a row that are rounded before those behind them make up for their errors."""
_LONGEST_FEEDBACK = 2500
"""Longer rows are only polished: the matrix would have to be inverted, at the third power of their length."""


def output_error(error: Array, gram: Array) -> Array:
    """Squared error of what each row computes, [groups, rows].

    Args:
        error: Error of the weight, [groups, rows, length].
        gram: Gram matrix of the inputs, [groups, length, length].
    """
    return np.asarray(np.einsum("grk,grk->gr", error @ gram, error))


def damped(gram: Array) -> Array:
    """The Gram matrix with every input a little louder."""
    mean = np.einsum("gkk->g", gram) / max(gram.shape[1], 1)
    return np.asarray(gram + _DAMPING * mean[:, None, None] * np.eye(gram.shape[1]))


def rounded_together(steps: Array, nearest: Array, gram: Array, *, limits: tuple[int, int], sweeps: int) -> Array:
    """Codes of a weight, each one of the two next to its value, with the least error of results that was found.

    Two ways are tried for each row. Elements are rounded one after the other, and what each leaves is made up for
    by those that are still to come, as far as inputs are alike. Or one begins with the nearest codes. Then element
    after element is rounded the other way wherever that lessens the error; so no row is worse than with the
    nearest codes.

    Args:
        steps: The weight in steps, as a real number on the scale of its codes, [groups, rows, length].
        nearest: The nearest codes, of the same shape.
        gram: Gram matrix of the inputs, [groups, length, length].
        limits: Smallest and largest code.
        sweeps: How often all elements are gone through at most.

    Returns:
        float64 of the same shape.
    """
    whole = damped(gram)
    best = _polished(steps, nearest.astype(np.float64), whole, limits=limits, sweeps=sweeps)
    start = _with_feedback(steps, whole, limits) if steps.shape[-1] <= _LONGEST_FEEDBACK else None
    if start is None:
        return best
    other = _polished(steps, start, whole, limits=limits, sweeps=sweeps)
    better = output_error(other - steps, whole) < output_error(best - steps, whole)
    return np.where(better[..., None], other, best)


def _with_feedback(steps: Array, whole: Array, limits: tuple[int, int]) -> Array | None:
    """Round element by element, the errors so far being made up for; None where nothing is known of the inputs."""
    # As in GPTQ: with rows of the inverse's Cholesky factor, an error in one element is made up for by those still
    # to come in the way that leaves the least error of the results. Loud inputs come first, while most of the
    # others are still free to answer.
    order = np.argsort(-np.einsum("gkk->k", whole), kind="stable")
    try:
        inverse = np.linalg.inv(whole[:, order][:, :, order])
        weights = np.linalg.cholesky(inverse).transpose(0, 2, 1)
    except np.linalg.LinAlgError:
        return None
    low, high = (np.clip(side, *limits) for side in (np.floor(steps), np.ceil(steps)))
    left, codes = steps[..., order].copy(), np.empty(steps.shape)
    for start in range(0, len(order), _AT_ONCE):
        # What lies beyond learns of the errors of these elements at once, by a matrix product.
        block = slice(start, start + _AT_ONCE)
        errors = np.zeros((*steps.shape[:2], len(order[block])))
        for place, at in enumerate(order[block].tolist(), start):
            chosen = np.clip(np.rint(left[..., place]), low[..., at], high[..., at])
            codes[..., at] = chosen
            error = (left[..., place] - chosen) / weights[:, None, place, place]
            errors[..., place - start] = error
            left[..., place + 1 : block.stop] -= error[..., None] * weights[:, None, place, place + 1 : block.stop]
        left[..., block.stop :] -= errors @ weights[:, block, block.stop :]
    return codes


def _polished(steps: Array, codes: Array, whole: Array, *, limits: tuple[int, int], sweeps: int) -> Array:
    """Round single elements the other way as long as that lessens the error."""
    codes = codes.copy()
    low, high = np.floor(steps), np.ceil(steps)
    # A value that is a code already, or beyond the last one, has no other.
    movable = (low < high) & (low >= limits[0]) & (high <= limits[1])
    other = np.where(codes == low, high, low)
    # E(e) = e G e'. Moving one code by m changes it by 2 m (e G)_k + m^2 G_kk: `pull` is e G, kept up to date by a
    # row of G for each code that moves, so that no error is ever computed anew.
    pull = (codes - steps) @ whole
    own = np.einsum("gkk->gk", whole)
    order = np.argsort(-own.sum(axis=0), kind="stable")
    for _ in range(sweeps):
        changed = False
        for at in order.tolist():
            move = other[:, :, at] - codes[:, :, at]
            gain = 2 * move * pull[:, :, at] + move**2 * own[:, at, None]
            better = movable[:, :, at] & (gain < -_NOTHING * own[:, at, None])
            if not better.any():
                continue
            changed = True
            groups, rows = np.nonzero(better)
            step = move[groups, rows]
            other[groups, rows, at] = codes[groups, rows, at]
            codes[groups, rows, at] += step
            # Of one group, indices of rows alone are quicker.
            place = (0, rows) if len(whole) == 1 else (groups, rows)
            pull[place] += step[:, None] * (whole[0, at] if len(whole) == 1 else whole[groups, at])
        if not changed:
            break
    return codes


_SOURCE, _WEIGHT = 0, 1
_LONGEST_ROW = 6000
"""Beyond, the Gram matrix of a row takes more than half a gigabyte."""
_MOST_BY_ROW = 200_000
"""Elements of the Gram matrices of all rows, up to which each row has one of its own: depthwise and small layers.
Larger ones would take several times as long, and gain nothing (ResNet-8 at 4 bits: 13.8 dB instead of 13.9)."""
_REMEMBERED_BYTES = 256 << 20


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
def round_weights(task: CorrectionJob) -> Corrected:
    """Round each weight up or down so that errors cancel in what its layer computes (as AdaRound does)."""
    weights, notes = _usable(task)
    if not weights:
        return StepOutcome(task.model, (), (*notes, message("quantize.no_weight_to_round")))
    return _Rounding(task, weights).run(notes)


def _usable(task: CorrectionJob) -> tuple[list[_Weight], list[Message]]:
    """Weights that can be rounded, and why others cannot."""
    nodes = node_by_name(task.model.float_model)
    held = Weights(task.model.float_model)
    weights, reasons = [], dict[Message, list[str]]()
    for layer in quantized_layers(task.model):
        if layer.weight is None or (task.nodes and layer.node not in task.nodes):
            continue
        rows = weight_rows(nodes[layer.node], held.shape(layer.weight.tensor))
        reason = _obstacle(layer.weight, rows)
        if reason is not None:
            reasons.setdefault(reason, []).append(layer.node)
        elif rows is not None:
            weights.append(_Weight(layer, layer.weight, nodes[layer.node], rows))
    return weights, [
        message("quantize.rounding_kept", names=some(names, MOST_NAMED, quoted=True), why=why)
        for why, names in reasons.items()
    ]


def _obstacle(quantizer: Quantizer, rows: WeightRows | None) -> Message | None:
    if rows is None:
        return message("quantize.rounding_no_rows")
    if len(quantizer.consumers) > 1:
        return message("quantize.rounding_shared")
    if quantizer.after or quantizer.codes is not None:
        return message("quantize.rounding_own_codes")
    output_axis = 1 if rows.turned else 0
    if quantizer.spec.axis is not None and quantizer.params.scale.size > 1 and quantizer.spec.axis != output_axis:
        return message("quantize.rounding_axis")
    return message("quantize.rounding_long", most=_LONGEST_ROW) if rows.length > _LONGEST_ROW else None


class _Rounding:
    """All weights of a model, one after the other."""

    def __init__(self, task: CorrectionJob, weights: Sequence[_Weight]) -> None:
        self._task, self._weights = task, weights
        self._held = Weights(task.model.float_model)
        self._readings: dict[Consumer, Reading] = {}
        self._codes: dict[str, Array] = {}
        self._taken: list[Participation] = []

    def run(self, notes: Sequence[Message]) -> Corrected:
        task, context = self._task, self._task.context
        started, limit = time.monotonic(), float(task.options["time_limit"])
        model = switch_on(task.model.float_model, task.model.quantizers)
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
                    gram = self._gram(each, samples=len(run.samples))
                    for index in run.samples:
                        gram.add(run.read(index, stop))
                    self._round(each, gram.matrix)
                    context.progress.advance()
        finally:
            context.progress.finish()
        if late:
            notes = (
                *notes,
                message("quantize.rounding_late", count=len(late), names=some(late, MOST_NAMED, quoted=True)),
            )
        quantizers = tuple(
            replace(each, codes=self._codes[each.name]) if each.name in self._codes else each
            for each in task.model.quantizers
        )
        return StepOutcome(replace(task.model, quantizers=quantizers), tuple(self._taken), tuple(notes))

    def _gram(self, each: _Weight, *, samples: int) -> Gram:
        """Sums of what a layer reads; where that is no great work, only of what an activation hands on."""
        shape = self._held.shape(each.quantizer.tensor)
        small = int(np.prod(shape)) * each.rows.length <= _MOST_BY_ROW
        counts = activation_clip(each.layer, each.rows, self._task.model.float_model) if small else None
        return Gram(each.node, shape, each.rows, samples=samples, counts=counts)

    def _round(self, each: _Weight, gram: Array) -> None:
        quantizer, spec = each.quantizer, each.quantizer.spec
        values = self._held[quantizer.tensor]
        scale, zero = (
            np.broadcast_to(aligned(part, values.ndim, spec.axis), values.shape).astype(np.float64)
            for part in (quantizer.params.scale, quantizer.params.zero_point)
        )
        # Each row is a group where it has a matrix of its own.
        form = (len(gram), -1, each.rows.length)
        steps = each.rows.rows(values.astype(np.float64) / scale + zero).reshape(form)
        nearest = each.rows.rows(quantize(values.astype(np.float32), quantizer.params, spec)).reshape(form)
        codes = self._rounded(steps, nearest, gram, limits=(spec.code_min, spec.code_max))
        # Errors in values, not in steps: rows may have scales of their own.
        unit = each.rows.rows(scale).reshape(form)
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
        text = message("quantize.rounding_done", changed=changed, all=values.size, share=share_text(left, 0))
        self._taken.append(Participation(each.layer.node, "layer", text))

    def _rounded(self, steps: Array, nearest: Array, gram: Array, *, limits: tuple[int, int]) -> Array:
        """The codes of a weight; those that an earlier model had with the same inputs are known."""
        sweeps, memory = int(self._task.options["iterations"]), self._task.context.memory
        found = hashlib.sha256(f"{steps.shape} {limits} {sweeps}".encode())
        for array in (steps, nearest, gram):
            found.update(np.ascontiguousarray(array).data)
        key = f"rounded {found.hexdigest()}"
        if key not in memory:
            memory[key] = rounded_together(steps, nearest, gram, limits=limits, sweeps=sweeps)
            while len(memory) > 1 and sum(each.nbytes for each in memory.values()) > _REMEMBERED_BYTES:
                del memory[next(iter(memory))]
        return memory[key]
