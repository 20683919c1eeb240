"""Bringing a model with other weights to the operating point of the original: results of the same mean and size.

Random filters answer to a picture more weakly than trained ones. Without this, means and biases would outweigh
everything else from the first layers on, and with them any error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.channel_axes import channel_moments
from roundoff.graph.load import Model
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import constant_value
from roundoff.quantize.planning.view import BIAS_INPUT, PRODUCTS
from roundoff.run.feeds import Samples
from roundoff.run.session import open_session

__all__ = ["results_of", "settle"]

# Layers are settled from the inputs on, in so many steps at the most; those of one step together, and twice.
_MOST_STEPS = 24
_LARGEST_GAIN = 1e4

Moments = tuple[Array, Array]
"""Mean and standard deviation of each channel."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A node that multiplies by a constant weight.

    Attributes:
        result: The tensor it writes.
        axis: Where its channels are.
        weight: Name of the weight.
        bias: Name of the bias; empty when it has none.
    """

    result: str
    axis: int
    weight: str
    bias: str


def results_of(model: Model, samples: Samples, *, names: Mapping[str, str]) -> dict[str, Moments]:
    """Mean and size of what each layer gives.

    Args:
        model: The original.
        samples: What it is fed.
        names: What tensors are to be called.
    """
    found = _moments(model, samples, list(_layers(model)))
    return {names[name]: moments for name, moments in found.items()}


def settle(model: Model, samples: Samples, wanted: Mapping[str, Moments]) -> None:
    """Scale weights and shift biases, in place, until layers give results of the mean and size wanted.

    All weights of a layer get the same factor, so that its channels differ as they did.
    """
    layers = [layer for layer in _layers(model) if layer.result in wanted]
    size = -(-len(layers) // _MOST_STEPS) if layers else 1
    repeats = 1 if size == 1 else 2
    for start in range(0, len(layers), size):
        for _ in range(repeats):
            group = layers[start : start + size]
            found = _moments(model, samples, group)
            for layer in group:
                _adjust(model, layer, found[layer.result], wanted[layer.result])


def _layers(model: Model) -> Iterator[_Layer]:
    constants = {tensor.name for tensor in model.proto.graph.initializer}
    for node in model.proto.graph.node:
        if node.op_type not in PRODUCTS or len(node.input) < 2 or node.input[1] not in constants:
            continue
        place = BIAS_INPUT.get(node.op_type, len(node.input))
        bias = node.input[place] if place < len(node.input) and node.input[place] in constants else ""
        axis = 1 if node.op_type in ("Conv", "ConvTranspose") else -1
        yield _Layer(node.output[0], axis, node.input[1], bias)


def _moments(model: Model, samples: Samples, layers: Sequence[_Layer]) -> dict[str, Moments]:
    names = [layer.result for layer in layers]
    session = open_session(model, outputs=tap(model, names))
    seen: dict[str, list[Array]] = {name: [] for name in names}
    for index in range(len(samples.names)):
        for name, values in zip(names, session.run(samples.feed(index)), strict=True):
            seen[name].append(values)
    found = {}
    for layer in layers:
        mean, variance = channel_moments(seen[layer.result], layer.axis)
        found[layer.result] = (mean, np.sqrt(variance))
    return found


def _adjust(model: Model, layer: _Layer, now: Moments, wanted: Moments) -> None:
    live = (now[1] > 0) & (wanted[1] > 0)
    gain = 1.0
    if live.any():
        gain = float(np.exp(np.median(np.log(wanted[1][live] / now[1][live]))))
    if not np.isfinite(gain) or not 1 / _LARGEST_GAIN < gain < _LARGEST_GAIN:
        return
    tensors = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    weight = tensors[layer.weight]
    _store(weight, np.asarray(constant_value(weight, model)) * gain)
    if not layer.bias:
        return
    bias = tensors[layer.bias]
    values = np.asarray(constant_value(bias, model)).astype(np.float64)
    if values.size == wanted[0].size:
        flat = values.reshape(-1)
        _store(bias, (wanted[0] - gain * (now[0] - flat)).reshape(values.shape))


def _store(tensor: Any, values: Array) -> None:
    from onnx.numpy_helper import from_array, to_array

    tensor.CopyFrom(from_array(values.astype(to_array(tensor).dtype), tensor.name))
