"""Bias correction: what rounding adds to the mean of each channel is subtracted in the bias."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.insertion import switch_on
from roundoff.graph.preparation.draft import named
from roundoff.quantize.agreement import spread
from roundoff.quantize.corrections.bias_codes import BiasCodes
from roundoff.quantize.corrections.channel_mean import ChannelMean
from roundoff.quantize.corrections.layers import QuantizedLayer, node_by_name, quantized_layers
from roundoff.quantize.corrections.registry import Corrected, Task, correction
from roundoff.quantize.corrections.stepped_run import SteppedRun
from roundoff.quantize.step_options import StepOption
from roundoff.quantize.work_context import Participation
from roundoff.runtime.capture import LiveSource

__all__ = ["bias_correct"]


@correction(
    "bias_correct",
    samples=StepOption(64, "how many samples the means are taken over at most", least=1, most=100_000),
)
def bias_correct(task: Task) -> Corrected:
    """Put into each bias by how much rounding has moved the mean of each channel (bias correction)."""
    every = [layer for layer in quantized_layers(task.quantized) if not task.nodes or layer.node in task.nodes]
    layers = [layer for layer in every if layer.bias is not None]
    bare = [layer.node for layer in every if layer.bias is None]
    notes = []
    if bare:
        many = f"{counted(len(bare), 'layer')} {'has' if len(bare) == 1 else 'have'} no bias"
        notes.append(f"bias_correct: {many}, which the transform explicit_bias would give: {named(bare)}")
    if not layers:
        return Corrected(task.quantized, (), (*notes, "bias_correct: there is no bias to correct"))
    biases = BiasCodes(task.quantized)
    taken = _walk(task, layers, biases)
    return Corrected(replace(task.quantized, quantizers=biases.quantizers), tuple(taken), tuple(notes))


def _walk(task: Task, layers: Sequence[QuantizedLayer], biases: BiasCodes) -> list[Participation]:
    """Correct one layer after the other, each with all before it corrected."""
    context, most = task.context, int(task.options["samples"])
    model = switch_on(task.quantized.float_model, task.quantized.quantizers)
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
                text = f"means of {wanted.size} channels moved by up to {np.abs(moved).max(initial=0.0):.3g}"
                taken.append(Participation(layer.node, "layer", text))
                context.progress.advance()
    finally:
        context.progress.finish()
    return taken


def _float_means(task: Task, layers: Sequence[QuantizedLayer], most: int) -> dict[str, Array]:
    """The mean of each channel of what layers compute in the float model."""
    context, model = task.context, task.quantized.float_model
    nodes = node_by_name(model)
    tensors = {layer.node: nodes[layer.last].output[0] for layer in layers}
    source = LiveSource(
        model,
        context.samples,
        tensors=sorted(set(tensors.values())),
        max_memory=context.max_memory,
        threads=context.threads,
    )
    tallies = {layer.node: ChannelMean(layer.axis) for layer in layers}
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
    return {node: tally.mean for node, tally in tallies.items()}
