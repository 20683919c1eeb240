"""From weights and observed values to records: every scale of AMCT's is decided here."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from roundoff.core.quantizers import parameters_from_range
from roundoff.core.tensors import Array
from roundoff.core.text_proto import Entry, TextMessage
from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.save import drop_unused
from roundoff.graph.weights import Weights
from roundoff.quantize.calibration.observer import Observation
from roundoff.quantize.calibration.ranges import observed_range, weight_range
from roundoff.vendors.amct.configuration.full import ActivationSettings, AmctConfig, WeightSettings
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.quantizers import LARGEST_SUM, input_spec, weight_spec
from roundoff.vendors.amct.records import LayerRecord, type_entries
from roundoff.vendors.errors import CannotRun, WrongValue

__all__ = [
    "balance_factors",
    "balanced_model",
    "calibrated_records",
    "half_scale",
    "input_peaks",
    "observed_tensors",
    "short_mantissa",
    "weight_peaks",
    "weight_records",
]


# Scales that half precision holds, as chips need them that compute with it.

_SMALLEST, _LARGEST = 2.0**-14, 65504.0
_KEPT_BITS = np.uint32(0xFFFFE000)


def half_scale(scale: float) -> float:
    """The scale rounded to half precision; one that it cannot hold as the square of its root, rounded to it."""
    if _SMALLEST <= scale <= _LARGEST:
        return float(np.float16(scale))
    root = float(np.float16(np.sqrt(np.float64(scale))))
    return float(np.float32(root * root)) if root > 0 else scale


def short_mantissa(scales: Array) -> Array:
    """Float32 values whose mantissa is cut to that of half precision."""
    return (scales.astype(np.float32).view(np.uint32) & _KEPT_BITS).view(np.float32)


_TENSOR_MARK = TextMessage((Entry("is_tensor_quantize", value=True),))

Observed = Callable[[str], Observation]


def weight_records(model: Model, layers: Mapping[str, AmctLayer], config: AmctConfig) -> dict[str, LayerRecord]:
    """Records of the enabled layers that say how weights are quantized; inputs are not calibrated yet.

    Raises:
        CannotRun: A layer asks for an algorithm that is not offered.
        WrongValue: A weight holds values that are not finite.
    """
    weights = Weights(model)
    found = {}
    for name, settings in config.enabled.items():
        layer = layers[name]
        scales = _weight_scales(weights[layer.weight], layer, settings.weight) if layer.weight else np.empty(0)
        if scales.size > 1:
            scales = np.tile(scales, layer.shared_by)
        types = type_entries(settings.activation.bits, settings.weight.bits)
        found[name] = LayerRecord(
            scale_w=tuple(scales.ravel().tolist()), offset_w=(0,) * scales.size, others=TextMessage(types)
        )
    return found


def _weight_scales(values: Array, layer: AmctLayer, settings: WeightSettings) -> Array:
    if settings.algorithm != "arq_quantize":
        what = f"{layer.name}: the algorithm {settings.algorithm} is not offered here."
        raise CannotRun(what, fix="set wts_algo to arq_quantize; 'roundoff transform round' learns rounding")
    if not np.isfinite(values.astype(np.float32, copy=False)).all():
        what = f"The weight of {layer.name!r} holds values that are NaN or infinite."
        raise WrongValue(what, fix="repair the model, or put the layer into skip_layers")
    spec = weight_spec(layer, settings.bits, channel_wise=settings.channel_wise)
    return parameters_from_range(*weight_range(values, spec, "minmax"), spec).scale


def observed_tensors(layers: Mapping[str, AmctLayer], config: AmctConfig, model: Model) -> tuple[str, ...]:
    """What has to be observed for a configuration."""
    names = [tensor for name in config.enabled for tensor, _ in layers[name].inputs]
    nodes = {node.name: node for node in model.proto.graph.node}
    names += (nodes[each.layer].input[each.input] for each in config.tensors)
    return tuple(dict.fromkeys(names))


def calibrated_records(
    records: Mapping[str, LayerRecord],
    layers: Mapping[str, AmctLayer],
    config: AmctConfig,
    *,
    model: Model,
    observed: Observed,
) -> dict[str, LayerRecord]:
    """Records with the factors of inputs.

    Args:
        records: What `weight_records` gave.
        layers: The layers of the model.
        config: How they are quantized.
        model: The float model.
        observed: What was observed of a tensor.
    """
    found = {}
    weights = Weights(model)
    for name, record in records.items():
        layer, settings = layers[name], config.layers[name].activation
        scale, offset = _factors(observed(layer.inputs[0][0]), settings, half=config.half_precision)
        found[name] = replace(record, scale_d=scale, offset_d=offset)
        if len(layer.inputs) > 1:
            other, _ = _factors(observed(layer.inputs[1][0]), settings, half=config.half_precision)
            found[name] = replace(found[name], scale_w=(other,), offset_w=(0,))
        if layer.bias is not None:
            found[name] = _with_room(found[name], weights[layer.bias.tensor], layer)
    nodes = {node.name: node for node in model.proto.graph.node}
    for tensor in config.tensors:
        name = nodes[tensor.layer].input[tensor.input]
        scale, offset = _factors(observed(name), tensor.activation, half=config.half_precision)
        found[tensor.key] = LayerRecord(scale_d=scale, offset_d=offset, others=_TENSOR_MARK)
    return found


def _factors(observation: Observation, settings: ActivationSettings, *, half: bool) -> tuple[float, int]:
    spec = input_spec(settings.bits, asymmetric=settings.asymmetric)
    low, high = observed_range(observation, spec, settings.algorithm, settings.options)
    params = parameters_from_range(low, high, spec)
    scale = half_scale(float(params.scale)) if half else float(params.scale)
    return scale, int(params.zero_point)


def _with_room(record: LayerRecord, bias: Array, layer: AmctLayer) -> LayerRecord:
    """The same with steps of weights so wide that the bias fits into 32 bits, which AMCT refuses to write."""
    scales = np.asarray(record.scale_w, np.float32)
    largest = np.abs(bias.astype(np.float64)).ravel()
    if scales.size != largest.size:
        largest = largest.max(initial=0.0)
    elif layer.shared_by > 1 and scales.size > 1:
        largest = np.tile(largest.reshape(layer.shared_by, -1).max(axis=0), layer.shared_by)
    needed = largest / (LARGEST_SUM / 2 * (record.scale_d or 1.0))
    if not np.any(scales < needed):
        return record
    wide = np.maximum(scales, needed).astype(np.float32)
    return replace(record, scale_w=tuple(wide.tolist()))


# Balancing inputs and weights (AMCT's DMQ balancer): what is hard in one moves to the other.

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


def weight_peaks(values: Array, layer: AmctLayer) -> Array:
    """Largest magnitude of the weights that read each input channel."""
    moved = np.moveaxis(np.abs(values.astype(np.float64)), layer.input_axis, 0)
    if layer.op_type == "Conv" and layer.group > 1:
        # Weights of one group after the other: each reads channels of its own.
        grouped = moved.reshape(moved.shape[0], layer.group, -1)
        return np.asarray(grouped.max(axis=2).T.ravel())
    axes = tuple(range(1, moved.ndim))
    # A stack of products: the same channel of every one of them.
    return np.asarray(moved.max(axis=axes, initial=0.0))


def balanced_model(model: Model, layers: Mapping[str, AmctLayer], factors: Mapping[str, Array]) -> Model:
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


def _check_count(layer: AmctLayer, values: Array, factors: Array) -> None:
    channels = values.shape[layer.input_axis] * (layer.group if layer.op_type == "Conv" else 1)
    if factors.size != channels:
        what = f"The record of {layer.name!r} has {factors.size} balance factors for {channels} input channels."
        raise WrongValue(what, fix="run quantize_preprocess for this model again")


def _input_shape(layer: AmctLayer, rank: int) -> tuple[int, ...]:
    return (1, -1, *(1,) * (rank - 2)) if layer.op_type in ("Conv", "ConvTranspose") else (-1,)


def _multiplied(values: Array, layer: AmctLayer, factors: Array) -> Array:
    wide = values.astype(np.float64)
    if layer.op_type == "Conv" and layer.group > 1:
        by_group = factors.astype(np.float64).reshape(layer.group, 1, -1, *(1,) * (values.ndim - 2))
        grouped = wide.reshape(layer.group, -1, *values.shape[1:])
        return (grouped * by_group).reshape(values.shape).astype(values.dtype)
    shape = [1] * values.ndim
    shape[layer.input_axis] = -1
    return (wide * factors.astype(np.float64).reshape(shape)).astype(values.dtype)
