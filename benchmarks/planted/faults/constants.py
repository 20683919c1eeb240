"""Wrong weights and biases in the quantized file."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.faults.ranges import with_bits
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, replaced, with_weights
from roundoff.core.quantizers import Quantizer, QuantParams, quantize
from roundoff.core.tensors import Array
from roundoff.graph.quantized_model import QuantizedModel

__all__: list[str] = []

# Activations whose mean is this part of their spread are one-sided.
_ONE_SIDED = 0.4

Corrupt = Callable[[Array, Quantizer, np.random.Generator], Array]


def _codes(subject: Subject, quantizer: Quantizer) -> Array:
    return quantize(subject.prepared.weights[quantizer.tensor], quantizer.params, quantizer.spec)


def _shuffled_tail(codes: Array, quantizer: Quantizer, rng: np.random.Generator) -> Array:
    """As when a part of a file was overwritten."""
    flat = codes.reshape(-1).copy()
    start = int(flat.size * rng.uniform(0.2, 0.5))
    count = max(4, int(flat.size * 0.3))
    spec = quantizer.spec
    flat[start : start + count] = rng.integers(spec.code_min, spec.code_max, flat[start : start + count].shape)
    return flat.reshape(codes.shape)


def _flipped_bits(codes: Array, _quantizer: Quantizer, rng: np.random.Generator) -> Array:
    """As when memory is bad: the second highest bit of some codes is turned over."""
    hit = rng.random(codes.shape) < 0.15
    return np.where(hit, codes.view(np.uint8) ^ 0x40, codes.view(np.uint8)).view(codes.dtype)


def _zeroed(codes: Array, quantizer: Quantizer, rng: np.random.Generator) -> Array:
    """As when a block was not written."""
    del quantizer
    changed = codes.copy()
    half = rng.permutation(len(codes))[: max(1, len(codes) // 2)]
    changed[half] = 0
    return changed


@fault("corrupted-codes")
def corrupted_codes(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Codes of one weight are not what rounding its values gives."""
    ways: list[Corrupt] = [_shuffled_tail, _flipped_bits, _zeroed]
    places = subject.weight_quantizers(subject.healthy)
    for index in rng.permutation(len(places)):
        chosen = places[index]
        for way in rng.permutation(len(ways)):
            codes = ways[way](_codes(subject, chosen), chosen, rng)
            planted = replaced(subject.healthy, {chosen.name: replace(chosen, codes=codes)})
            if subject.costs(planted):
                known = truth((chosen.consumers[0].node, chosen.tensor), "corrupted-weights")
                return subject.case("corrupted-codes", known, quantized=planted)
    return None


@fault("floored-weights")
def floored_weights(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Codes of one weight were cut off instead of rounded, which moves the mean of what it computes."""
    for chosen, bits in _in_turn(subject, rng, [8, 7, 6]):
        entering = subject.values[subject.nodes[chosen.consumers[0].node].input[0]]
        # What is zero in the mean has no mean to move.
        if entering.mean() < _ONE_SIDED * entering.std():
            continue
        coarse = with_bits(chosen, bits)
        spec = replace(coarse.spec, rounding="floor")
        codes = quantize(subject.prepared.weights[chosen.tensor], coarse.params, spec)
        planted = replaced(subject.healthy, {chosen.name: replace(coarse, codes=codes)})
        if subject.costs(planted):
            known = truth((chosen.consumers[0].node, chosen.tensor), "bias-shift", "corrupted-weights")
            return subject.case("floored-weights", known, quantized=planted)
    return None


def _in_turn(subject: Subject, rng: np.random.Generator, values: list[int]) -> Iterator[tuple[Quantizer, int]]:
    places = subject.weight_quantizers(subject.healthy)
    for index in rng.permutation(len(places)):
        for value in values:
            yield places[index], value


@fault("corrupted-bias")
def corrupted_bias(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The bias of one layer is off by the same amount in all channels."""
    biases = [q for q in subject.healthy.quantizers if q.kind == "bias"]
    for index in rng.permutation(len(biases)):
        chosen = biases[index]
        layer = subject.nodes[chosen.consumers[0].node]
        spread = float(subject.values[layer.output[0]].std())
        for size in (0.7, 1.5, 3.0):
            codes = quantize(subject.prepared.weights[chosen.tensor], chosen.params, chosen.spec).astype(np.int64)
            moved = codes + np.rint(size * spread / chosen.params.scale).astype(np.int64)
            planted = replaced(subject.healthy, {chosen.name: replace(chosen, codes=moved.astype(np.int32))})
            if subject.costs(planted):
                nodes = {layer.name, chosen.tensor, *subject.unit(layer.output[0], subject.healthy)}
                known = truth(frozenset(nodes), "bias-shift", "corrupted-weights")
                return subject.case("corrupted-bias", known, quantized=planted)
    return None


@fault("bias-overflow")
def bias_overflow(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Channels with next to no weights have scales so small that their biases do not fit 32 bits."""
    layers = [n for n in map(subject.nodes.get, subject.layers) if n is not None and len(n.input) > 2]
    for index in rng.permutation(len(layers)):
        layer = layers[index]
        weight, bias = (np.array(subject.weights[name]) for name in layer.input[1:3])
        count = max(1, len(bias) // 3)
        chosen = rng.permutation(len(bias))[:count]
        weight[chosen] *= 1e-9
        bias[chosen] = np.abs(subject.values[layer.output[0]]).max() * rng.uniform(0.5, 1.0, count)
        model = with_weights(subject.model, {layer.input[1]: weight, layer.input[2]: bias})
        planted = Subject(subject.family, subject.seed, replace(subject.built, model=model))
        quantized = _with_smallest_scales(planted.healthy, planted, layer.name)
        if planted.loss_db(quantized) <= min(subject.healthy_db - 8, 17):
            nodes = {layer.name, *layer.input[1:3], *planted.unit(layer.output[0], quantized)}
            return planted.case("bias-overflow", truth(frozenset(nodes), "overflow"), quantized=quantized)
    return None


def _with_smallest_scales(quantized: QuantizedModel, subject: Subject, layer: str) -> QuantizedModel:
    """As a tool that looks at weights alone quantizes a layer: each channel by its largest weight."""
    read = {c.input: q for q in quantized.quantizers for c in q.consumers if c.node == layer}
    entering, weight, bias = read.get(0), read.get(1), read.get(2)
    if entering is None or weight is None or bias is None or weight.spec.axis is None:
        return quantized
    values = subject.prepared.weights[weight.tensor]
    others = tuple(axis for axis in range(values.ndim) if axis != weight.spec.axis % values.ndim)
    params = QuantParams((np.abs(values).max(axis=others) / 127).astype(np.float32), weight.params.zero_point)
    product = (entering.params.scale * params.scale).astype(np.float32)
    return replaced(
        quantized,
        {
            weight.name: replace(weight, params=params),
            bias.name: replace(bias, params=QuantParams(product, bias.params.zero_point)),
        },
    )
