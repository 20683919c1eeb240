"""Bias correction: what rounding adds to the mean of each channel is subtracted in the bias."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, dequantize, quantize
from roundoff.core.tensors import Array
from roundoff.graph.draft import MOST_NAMED
from roundoff.graph.insertion import switch_on
from roundoff.graph.nodes import attribute
from roundoff.graph.quantized_model import QuantizedModel, model_hash
from roundoff.graph.weights import Weights
from roundoff.messages.message import message, some
from roundoff.quantize.corrections.layers import QuantizedLayer, SteppedRun, node_by_name, quantized_layers
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import Corrected, CorrectionJob, StepOption, StepOutcome, correction
from roundoff.run.bench import spread
from roundoff.run.capture import LiveSource

# The codes of biases, moved by what a correction asks for.

_INTEGERS = QuantSpec(bits=32, signed=True, symmetric=True)
_LARGEST_CODE = float(2**30)
"""Half of what 32 bits hold; steps of a value over this are finer than those of float32."""


class BiasCodes:
    """The quantizers of a model while its biases are being moved.

    A bias in float becomes integers, too: at the product of the scales of input and weight, as integer hardware
    adds it, or in finer steps where there is no such product. Its values are then the same in every form in which
    the model is written and run.

    Attributes:
        quantizers: As they are now.
    """

    quantizers: tuple[Quantizer, ...]

    def __init__(self, quantized: QuantizedModel) -> None:
        self.quantizers = quantized.quantizers
        self._weights = Weights(quantized.float_model)
        self._nodes = node_by_name(quantized.float_model)

    def move(self, layer: QuantizedLayer, change: Array) -> Array:
        """Add something to a bias.

        Args:
            layer: A layer with a bias.
            change: What its results should be moved by, float64, one number for each channel.

        Returns:
            What they are moved by: the change in whole steps.
        """
        if layer.bias is None:
            raise ValueError("a layer without a bias has none to move")
        beta = float(attribute(self._nodes[layer.node], "beta", 1.0)) if layer.op_type == "Gemm" else 1.0
        if beta == 0:
            return np.zeros(change.shape)
        before = self._now(layer.bias)
        if before.size == 1:
            change = np.full(change.shape, change.mean())
        wanted = before + (change / beta)[: before.size].reshape(before.shape)
        old = self._owned(layer, wanted)
        codes = quantize(wanted, old.params, old.spec)
        self._replace(old, replace(old, codes=codes))
        moved = (dequantize(codes, old.params, old.spec.axis).astype(np.float64) - before) * beta
        return np.broadcast_to(moved.ravel(), change.shape)

    def _now(self, place: Consumer) -> Array:
        """The bias that is read at a place, as it is quantized now; float64."""
        values = self._weights[self._tensor(place)]
        current = next((each for each in self.quantizers if place in each.consumers), None)
        if current is None:
            return values.astype(np.float64)
        codes = current.codes
        if codes is None:
            codes = quantize(values.astype(np.float32), current.params, current.spec)
        return dequantize(codes, current.params, current.spec.axis).astype(np.float64)

    def _tensor(self, place: Consumer) -> str:
        return str(self._nodes[place.node].input[place.input])

    def _owned(self, layer: QuantizedLayer, wanted: Array) -> Quantizer:
        """The quantizer of a bias, for this layer alone."""
        place, found = layer.bias, layer.bias_quantizer
        if place is None:
            raise ValueError("a layer without a bias has no quantizer of it")
        if found is None:
            made = Quantizer(
                self._free(f"{layer.node}:bias"),
                self._tensor(place),
                "bias",
                *self._steps(layer, wanted),
                (place,),
            )
            self._insert(made, behind=layer.weight or layer.source)
            return made
        current = next(each for each in self.quantizers if each.name == found.name)
        if current.consumers == (place,):
            return current
        others = tuple(consumer for consumer in current.consumers if consumer != place)
        own = replace(current, name=self._free(f"{current.name}:{layer.node}"), consumers=(place,))
        self._replace(current, replace(current, consumers=others))
        self._insert(own, behind=current)
        return own

    def _steps(self, layer: QuantizedLayer, wanted: Array) -> tuple[QuantSpec, QuantParams]:
        """Scale of a bias that had none."""
        if layer.source is not None and layer.weight is not None and layer.source.params.scale.size == 1:
            node = self._nodes[layer.node]
            factor = float(attribute(node, "alpha", 1.0)) / float(attribute(node, "beta", 1.0))
            scale = layer.source.params.scale.reshape(()) * layer.weight.params.scale * np.float32(factor)
            fits = np.all(scale > 0) and np.all(np.abs(wanted) <= _LARGEST_CODE * scale)
            if fits and (scale.ndim == 0 or scale.shape == wanted.shape):
                return _INTEGERS.along(0 if scale.ndim else None), _params(scale)
        largest = float(np.abs(wanted).max(initial=0.0))
        return _INTEGERS, _params(np.array(largest / _LARGEST_CODE or 1.0))

    def _free(self, name: str) -> str:
        taken = {each.name for each in self.quantizers}
        while name in taken:
            name += "_"
        return name

    def _replace(self, old: Quantizer, new: Quantizer) -> None:
        self.quantizers = tuple(new if each.name == old.name else each for each in self.quantizers)

    def _insert(self, new: Quantizer, *, behind: Quantizer | None) -> None:
        at = next((at for at, each in enumerate(self.quantizers) if behind and each.name == behind.name), -1) + 1
        self.quantizers = (*self.quantizers[:at], new, *self.quantizers[at:])


def _params(scale: Array) -> QuantParams:
    typed = np.asarray(scale, dtype=np.float32)
    return QuantParams(typed, np.zeros(typed.shape, np.int64))


# Means of channels over many samples.


class ChannelMean:
    """The mean of each channel of a tensor; elements that are not finite do not count.

    Attributes:
        rank: Axes of the tensor.

    Args:
        axis: Where its channels are.
    """

    rank: int

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._sum, self._count = np.zeros(1), np.zeros(1)
        self.rank = 0

    def add(self, values: Array) -> None:
        """Take in the values of one sample."""
        rows = np.moveaxis(values, self._axis, 0).reshape(values.shape[self._axis], -1)
        with np.errstate(all="ignore"):
            sums, count = rows.sum(axis=1, dtype=np.float64), np.full(len(rows), rows.shape[1])
        # A sum shows whether all its elements are finite, for much less than a look at each of them.
        if not rows.flags.c_contiguous or not np.isfinite(sums).all():
            fine = np.isfinite(rows)
            sums, count = np.where(fine, rows, 0).sum(axis=1, dtype=np.float64), np.count_nonzero(fine, axis=1)
        self._sum, self._count = self._sum + sums, self._count + count
        self.rank = values.ndim

    @property
    def mean(self) -> Array:
        """The means, float64 [C]; 0 where nothing counts."""
        return np.asarray(self._sum / np.maximum(self._count, 1))


@correction(
    "bias_correct",
    samples=StepOption(64, "how many samples the means are taken over at most", least=1, most=100_000),
)
def bias_correct(task: CorrectionJob) -> Corrected:
    """Put into each bias by how much rounding has moved the mean of each channel (bias correction)."""
    every = [layer for layer in quantized_layers(task.model) if not task.nodes or layer.node in task.nodes]
    layers = [layer for layer in every if layer.bias is not None]
    bare = [layer.node for layer in every if layer.bias is None]
    notes = []
    if bare:
        names = some(bare, MOST_NAMED, quoted=True)
        notes.append(message("quantize.bias_none", count=len(bare), names=names))
    if not layers:
        return StepOutcome(task.model, (), (*notes, message("quantize.bias_nothing")))
    biases = BiasCodes(task.model)
    taken = _walk(task, layers, biases)
    return StepOutcome(replace(task.model, quantizers=biases.quantizers), tuple(taken), tuple(notes))


def _walk(task: CorrectionJob, layers: Sequence[QuantizedLayer], biases: BiasCodes) -> list[Participation]:
    """Correct one layer after the other, each with all before it corrected."""
    context, most = task.context, int(task.options["samples"])
    model = switch_on(task.model.float_model, task.model.quantizers)
    nodes = node_by_name(model)
    stops = {layer.node: nodes[layer.last].output[0] for layer in layers}
    means = _float_means(task, layers, most)
    taken = []
    context.progress.start("correcting biases", len(layers))
    try:
        with SteppedRun(model, context, stops=list(stops.values()), most=most) as run:
            for layer in sorted(layers, key=lambda each: list(nodes).index(each.last)):
                stop = stops[layer.node]
                run.advance(stop)
                tally = ChannelMean(layer.axis)
                for index in run.samples:
                    tally.add(run.read(index, stop))
                wanted = means[layer.node] - tally.mean
                moved = biases.move(layer, wanted)
                shape = [1] * tally.rank
                shape[layer.axis] = -1
                run.shift(stop, moved.reshape(shape))
                most_moved = f"{np.abs(moved).max(initial=0.0):.3g}"
                text = message("quantize.means_moved", count=wanted.size, most=most_moved)
                taken.append(Participation(layer.node, "layer", text))
                context.progress.advance()
    finally:
        context.progress.finish()
    return taken


def _float_means(task: CorrectionJob, layers: Sequence[QuantizedLayer], most: int) -> dict[str, Array]:
    """The mean of each channel of what layers compute in the float model; those of an earlier one are known."""
    context, model = task.context, task.model.float_model
    nodes = node_by_name(model)
    tensors = {layer.node: nodes[layer.last].output[0] for layer in layers}
    origin, memory = model_hash(model), context.memory
    keys = {layer.node: f"mean {origin} {most} {tensors[layer.node]} {layer.axis}" for layer in layers}
    missing = {layer.node: ChannelMean(layer.axis) for layer in layers if keys[layer.node] not in memory}
    if missing:
        _observe_means(task, {node: tensors[node] for node in missing}, missing, most=most)
        memory |= {keys[node]: tally.mean for node, tally in missing.items()}
    return {node: memory[key] for node, key in keys.items()}


def _observe_means(
    task: CorrectionJob, tensors: Mapping[str, str], tallies: Mapping[str, ChannelMean], *, most: int
) -> None:
    """Run the float model, and add to each layer's tally what it computes."""
    context = task.context
    source = LiveSource(
        task.model.float_model,
        context.samples,
        tensors=sorted(set(tensors.values())),
        max_memory=context.max_memory,
        threads=context.threads,
    )
    chosen = spread(len(context.samples.names), most)
    context.progress.start("means of the float model", len(chosen))
    try:
        for index in chosen:
            for node, tensor in tensors.items():
                tallies[node].add(source.read(tensor, context.samples.names[index]))
            context.progress.advance()
    finally:
        context.progress.finish()
        source.close()
