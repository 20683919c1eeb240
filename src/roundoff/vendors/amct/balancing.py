"""Balancing inputs and weights (AMCT's DMQ balancer): what is hard in one moves to the other."""

from collections.abc import Mapping

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.build import Assembly
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.save import drop_unused
from roundoff.graph.weights import Weights
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.errors import WrongValue

__all__ = ["balance_factors", "balanced_model", "input_peaks", "weight_peaks"]

_EPSILON = float(np.finfo(np.float32).eps)


def balance_factors(inputs: Array, weights: Array, strength: float) -> Array:
    """Factors of input channels: inputs are divided by them, weights multiplied with them.

    Args:
        inputs: Largest magnitude of each channel of the input.
        weights: Largest magnitude of the weights that read each channel.
        strength: How much of the difficulty moves to the weights.

    Returns:
        Float32; 1 where a channel is zero on both sides, or a whole side is.
    """
    act, wts = (np.asarray(each, np.float64) for each in (inputs, weights))
    regular = (act > 0) & (wts > 0)
    factors = np.ones(act.shape)
    if not regular.any():
        return factors.astype(np.float32)
    factors[regular] = act[regular] ** strength / wts[regular] ** (1 - strength)
    act_peak = (act[regular] / factors[regular]).max()
    wts_peak = (wts[regular] * factors[regular]).max()
    silent, unread = (act == 0) & (wts > 0), (act > 0) & (wts == 0)
    factors[silent] = wts_peak / wts[silent]
    factors[unread] = act[unread] / act_peak
    usable = (factors > _EPSILON) & (factors < 1 / _EPSILON)
    return np.where(usable, factors, 1.0).astype(np.float32)


def input_peaks(low: Array, high: Array) -> Array:
    """Largest magnitudes of channels whose ranges were observed; 0 where there was no element."""
    peaks = np.maximum(np.abs(low), np.abs(high))
    return np.where(np.isfinite(peaks), peaks, 0.0)


def weight_peaks(values: Array, layer: Layer) -> Array:
    """Largest magnitude of the weights that read each input channel."""
    moved = np.moveaxis(np.abs(values.astype(np.float64)), layer.input_axis, 0)
    if layer.op_type == "Conv" and layer.group > 1:
        # Weights of one group after the other: each reads channels of its own.
        grouped = moved.reshape(moved.shape[0], layer.group, -1)
        return np.asarray(grouped.max(axis=2).T.ravel())
    axes = tuple(range(1, moved.ndim))
    # A stack of products: the same channel of every one of them.
    return np.asarray(moved.max(axis=axes, initial=0.0))


def balanced_model(model: Model, layers: Mapping[str, Layer], factors: Mapping[str, Array]) -> Model:
    """The model with a multiplication in front of each balanced layer, and its weight multiplied.

    Args:
        model: The float model; it is not changed.
        layers: Its layers.
        factors: Of the balanced layers, by name.

    Raises:
        WrongValue: Factors are not as many as input channels.
    """
    from onnx import ModelProto
    from onnx.numpy_helper import from_array

    if not factors:
        return model
    graph = Assembly(model)
    weights = Weights(model)
    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
    for node in model.proto.graph.node:
        wanted = factors.get(node.name)
        if wanted is None:
            graph.copy_node(node)
            continue
        layer = layers[node.name]
        values = weights[layer.weight]
        moved = graph.free_tensor(f"{node.name}.mul")
        shape = _input_shape(layer, values.ndim)
        _check_count(layer, values, wanted)
        inverse = (1.0 / wanted.astype(np.float64)).astype(values.dtype).reshape(shape)
        constant = graph.add_constant(inverse, f"{node.name}.tensor_balance_factor")
        graph.add_node("Mul", [layer.inputs[0][0], constant], moved, name=f"{node.name}.mul")
        weight = graph.free_tensor(f"{layer.weight}.balanced")
        graph.add_tensor(from_array(_multiplied(values, layer, wanted), weight))
        copy = graph.copy_node(node)
        copy.input[layer.inputs[0][1]], copy.input[layer.weight_input] = moved, weight
    result = ModelProto()
    result.CopyFrom(graph.proto)
    result.graph.value_info.extend(model.proto.graph.value_info)
    drop_unused(result.graph)
    return Model(result, model.path, inside_bytes(result))


def _check_count(layer: Layer, values: Array, factors: Array) -> None:
    channels = values.shape[layer.input_axis] * (layer.group if layer.op_type == "Conv" else 1)
    if factors.size != channels:
        what = f"The record of {layer.name!r} has {factors.size} balance factors for {channels} input channels."
        raise WrongValue(what, fix="run quantize_preprocess for this model again")


def _input_shape(layer: Layer, rank: int) -> tuple[int, ...]:
    return (1, -1, *(1,) * (rank - 2)) if layer.op_type in ("Conv", "ConvTranspose") else (-1,)


def _multiplied(values: Array, layer: Layer, factors: Array) -> Array:
    wide = values.astype(np.float64)
    if layer.op_type == "Conv" and layer.group > 1:
        by_group = factors.astype(np.float64).reshape(layer.group, 1, -1, *(1,) * (values.ndim - 2))
        grouped = wide.reshape(layer.group, -1, *values.shape[1:])
        return (grouped * by_group).reshape(values.shape).astype(values.dtype)
    shape = [1] * values.ndim
    shape[layer.input_axis] = -1
    return (wide * factors.astype(np.float64).reshape(shape)).astype(values.dtype)
