"""AMCT's scales: from weights and observed values to records, and from records to quantizers.

The arithmetic is the vendor's and stays here: records must hold the tool's own numbers to the last digit, with its
rounding, its half precision and its searches over ranges. Calibration itself is that of `roundoff.quantize`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.save import drop_unused
from roundoff.graph.weights import Weights
from roundoff.messages.message import english, some
from roundoff.quantize.calibration.calibration import observed_range, weight_range
from roundoff.quantize.calibration.observer import Observation
from roundoff.vendors.amct.config import DEFAULT_BITS, ActivationSettings, AmctConfig, WeightSettings
from roundoff.vendors.amct.layers import AmctLayer, find_layers
from roundoff.vendors.amct.records import LayerRecord, check_record, record_bits, type_entries
from roundoff.vendors.facade import AMCT_LOGGER, CannotRun, WrongValue

LARGEST_SUM = float(2**31 - 1)
"""What an accumulator of 32 bits holds."""

_EPSILON = float(np.finfo(np.float32).eps)
"""AMCT replaces smaller scales by 1."""


def input_spec(bits: int, *, asymmetric: bool) -> QuantSpec:
    """How inputs become codes."""
    return QuantSpec(bits, True, not asymmetric, symmetric_scale="larger_side", smallest_scale=_EPSILON)


def weight_spec(layer: AmctLayer, bits: int, *, channel_wise: bool) -> QuantSpec:
    """How weights become codes."""
    axis = layer.channel_axis if channel_wise else None
    return QuantSpec(bits, True, True, axis, symmetric_scale="larger_side", smallest_scale=_EPSILON)


def weight_quantizers(
    layers: Mapping[str, AmctLayer], records: Mapping[str, LayerRecord]
) -> tuple[Quantizer, ...]:
    """The quantizers of weights alone."""
    return tuple(_weight(layers[name], record) for name, record in records.items() if layers[name].weight)


def _weight(layer: AmctLayer, record: LayerRecord) -> Quantizer:
    bits = record_bits(record, "wts") or DEFAULT_BITS
    scale = np.asarray(record.scale_w, np.float32)
    spec = weight_spec(layer, bits, channel_wise=scale.size > 1)
    if spec.axis is None:
        scale = scale.reshape(())
    else:
        groups = scale.reshape(layer.shared_by, -1)
        if np.any(groups != groups[0]):
            what = english(
                "The record of {name!r} has other scales of weights in each of its groups.", name=layer.name
            )
            raise WrongValue(what, fix=english("give its weight one scale, or each group the same"))
        scale = groups[0]
    params = QuantParams(scale, np.zeros(scale.shape, np.int64))
    consumers = (Consumer(layer.name, layer.weight_input),)
    return Quantizer(f"{layer.name}.weight_quant", layer.weight, "weight", spec, params, consumers)


def quantizers_of(
    model: Model, layers: Mapping[str, AmctLayer], records: Mapping[str, LayerRecord]
) -> tuple[Quantizer, ...]:
    """All quantizers that records stand for; equal ones on one tensor are one.

    Args:
        model: The float model.
        layers: Its layers.
        records: The records of those that are quantized, complete; keys ``layer:input`` are single inputs.

    Raises:
        WrongValue: A record means nothing, is of no layer of this model, or its bias does not fit into 32 bits.
    """
    found: list[Quantizer] = []
    inputs: dict[tuple[object, ...], Quantizer] = {}
    nodes = {node.name: node for node in model.proto.graph.node}
    for point in _points(nodes, layers, records):
        key = (point.tensor, point.scale, point.offset, point.bits)
        known = inputs.get(key)
        if known is None:
            spec = input_spec(point.bits, asymmetric=point.offset != 0)
            params = QuantParams(np.asarray(point.scale, np.float32), np.asarray(point.offset, np.int64))
            inputs[key] = Quantizer(point.name, point.tensor, "activation", spec, params, (point.consumer,))
        else:
            inputs[key] = replace(known, consumers=(*known.consumers, point.consumer))
    found += inputs.values()
    weights = Weights(model)
    for name, record in records.items():
        layer = layers.get(name)
        if layer is not None and layer.weight:
            found.append(_weight(layer, record))
            if layer.bias is not None:
                found.append(_bias(layer, record, weights[layer.bias.tensor]))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Point:
    """One input that is quantized."""

    name: str
    tensor: str
    consumer: Consumer
    scale: float
    offset: int
    bits: int


def _points(
    nodes: Mapping[str, Any], layers: Mapping[str, AmctLayer], records: Mapping[str, LayerRecord]
) -> Iterator[_Point]:
    for name, record in records.items():
        layer = layers.get(name)
        owner, at = _single_input(name, nodes) if layer is None else (name, 0)
        bits = record_bits(record, "act") or DEFAULT_BITS
        check_record(name, record, channels=layer.channels if layer is not None else None, bits=bits)
        scale, offset = float(record.scale_d or 0), int(record.offset_d or 0)
        if layer is None:
            tensor = nodes[owner].input[at]
            yield _Point(f"{owner}.{at}.quant", tensor, Consumer(owner, at), scale, offset, bits)
            continue
        tensor, place = layer.inputs[0]
        yield _Point(f"{name}.quant", tensor, Consumer(name, place), scale, offset, bits)
        if len(layer.inputs) > 1:
            tensor, place = layer.inputs[1]
            yield _Point(f"{name}.weight_quant", tensor, Consumer(name, place), record.scale_w[0], 0, bits)


def _single_input(key: str, nodes: Mapping[str, Any]) -> tuple[str, int]:
    """The node and its input that a key such as ``pool1:0`` names."""
    owner, _, place = key.rpartition(":")
    if owner in nodes and place.isdecimal() and int(place) < len(nodes[owner].input):
        return owner, int(place)
    what = english("There is a record of {key!r}, and no layer of that name that can be quantized.", key=key)
    raise WrongValue(what, fix=english("use the record of this very model"))


def _bias(layer: AmctLayer, record: LayerRecord, values: Array) -> Quantizer:
    place = layer.bias
    if place is None:
        raise ValueError(f"{layer.name} has no bias")
    scale = np.asarray(np.float32(record.scale_d) * np.asarray(record.scale_w, np.float32), np.float32)
    channel_wise = scale.size > 1
    if channel_wise and values.shape[-1:] != scale.shape:
        what = english(
            "The bias of {name!r} has not one value for each of its {size} channels.",
            name=layer.name,
            size=scale.size,
        )
        raise WrongValue(what, fix=english("give its weight one scale, or leave the layer in float"))
    steps = np.abs(values.astype(np.float64)).ravel() / scale.astype(np.float64)
    if steps.size and steps.max() > LARGEST_SUM:
        what = english(
            "The bias of {name!r} does not fit into 32 bits at the scales of its record.", name=layer.name
        )
        raise WrongValue(what, fix=english("calibrate the layer again, or leave it in float"))
    scale = scale.reshape((-1,) if channel_wise else ())
    spec = QuantSpec(32, True, True, values.ndim - 1 if channel_wise else None)
    params = QuantParams(scale, np.zeros(scale.shape, np.int64))
    consumer = Consumer(place.node, place.input)
    return Quantizer(f"{layer.name}.bias", place.tensor, "bias", spec, params, (consumer,))


# Models that were trained with quantization: their QuantizeLinear and DequantizeLinear as records of layers.

_LISTED = 5


def records_of_qat(model: Model) -> tuple[Model, dict[str, AmctLayer], dict[str, LayerRecord]]:
    """The float model in a quantized one, its layers, and the records of those that are quantized.

    Raises:
        WrongValue: Nothing in it is quantized as layers are, or in a way that a record cannot say.
        BadInput: It cannot be read.
    """
    read = read_quantized(model)
    for oddity in read.oddities:
        if oddity.kind == "disagreement":
            raise WrongValue(
                english("{text}.", text=oddity.text), fix=english("both nodes of a pair must carry equal factors")
            )
    origins = {node.name: node.name for node in read.float_model.proto.graph.node}
    layers = find_layers(read.float_model, origins)
    by_place = {consumer: each for each in read.quantizers for consumer in each.consumers}
    records: dict[str, LayerRecord] = {}
    used: set[str] = set()
    for name, layer in layers.items():
        found = _record(layer, by_place, used)
        if found is not None:
            records[name] = found
    if not records:
        what = english("No layer of {path} has both its input and its weight quantized.", path=model.path)
        raise WrongValue(
            what, fix=english("give a model with QuantizeLinear and DequantizeLinear around its layers")
        )
    rest = [each.name for each in read.quantizers if each.name not in used and each.kind == "activation"]
    if rest:
        AMCT_LOGGER.warning(
            english("left out, they are not in front of layers: {names}", names=some(rest, _LISTED))
        )
    return read.float_model, layers, records


def _record(layer: AmctLayer, by_place: Mapping[Consumer, Quantizer], used: set[str]) -> LayerRecord | None:
    inputs = [by_place.get(Consumer(layer.name, place)) for _, place in layer.inputs]
    weight = by_place.get(Consumer(layer.name, layer.weight_input)) if layer.weight else None
    if any(each is None for each in inputs) or (layer.weight and weight is None):
        return None
    first = inputs[0]
    if first is None:
        return None
    used |= {each.name for each in (*inputs, weight) if each is not None}
    if first.params.scale.size != 1:
        raise WrongValue(
            english("{name}: only weights can have scales per channel.", name=layer.name),
            fix=english("quantize inputs as a whole"),
        )
    other = weight if weight is not None else inputs[1] if len(inputs) > 1 else None
    scales: tuple[float, ...] = ()
    if other is not None:
        if np.any(_signed(other) != 0):
            raise WrongValue(
                english("{name}: the zero point of its weight is not 0.", name=layer.name),
                fix=english("train it symmetric"),
            )
        if other.params.scale.size > 1 and other.spec.axis is not None:
            rank = len(layer.weight_shape)
            if layer.channel_axis is None or other.spec.axis % rank != layer.channel_axis:
                what = english(
                    "{name}: its weight has scales along axis {axis}, not by output channel.",
                    name=layer.name,
                    axis=other.spec.axis,
                )
                raise WrongValue(what, fix=english("train it with one scale for each output channel"))
        scales = tuple(other.params.scale.ravel().tolist())
        scales *= layer.shared_by if len(scales) > 1 else 1
    return LayerRecord(
        scale_d=float(first.params.scale.ravel()[0]),
        offset_d=int(_signed(first).ravel()[0]),
        scale_w=scales,
        offset_w=(0,) * len(scales),
        others=TextMessage(
            type_entries(first.spec.bits, other.spec.bits if other is not None else first.spec.bits)
        ),
    )


def _signed(quantizer: Quantizer) -> np.ndarray:
    """Zero points for signed codes."""
    shift = 0 if quantizer.spec.signed else 1 << (quantizer.spec.bits - 1)
    return np.asarray(quantizer.params.zero_point - shift)


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


_TENSOR_MARK = TextMessage((TextEntry("is_tensor_quantize", value=True),))

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
        raise CannotRun(
            "{name}: {algorithm} is not offered: a record has no place for the codes that it finds.",
            fix=english("set wts_algo to arq_quantize; 'roundoff transform round' learns rounding"),
            name=layer.name,
            algorithm=settings.algorithm,
        )
    if not np.isfinite(values.astype(np.float32, copy=False)).all():
        what = english("The weight of {name!r} holds values that are NaN or infinite.", name=layer.name)
        raise WrongValue(what, fix=english("repair the model, or put the layer into skip_layers"))
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
        shape = (1, -1, *(1,) * (values.ndim - 2)) if layer.op_type in ("Conv", "ConvTranspose") else (-1,)
        channels = values.shape[layer.input_axis] * (layer.group if layer.op_type == "Conv" else 1)
        if wanted.size != channels:
            what = english(
                "The record of {name!r} has {size} balance factors for {channels} input channels.",
                name=layer.name,
                size=wanted.size,
                channels=channels,
            )
            raise WrongValue(what, fix=english("run quantize_preprocess for this model again"))
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


def _multiplied(values: Array, layer: AmctLayer, factors: Array) -> Array:
    wide = values.astype(np.float64)
    if layer.op_type == "Conv" and layer.group > 1:
        by_group = factors.astype(np.float64).reshape(layer.group, 1, -1, *(1,) * (values.ndim - 2))
        grouped = wide.reshape(layer.group, -1, *values.shape[1:])
        return (grouped * by_group).reshape(values.shape).astype(values.dtype)
    shape = [1] * values.ndim
    shape[layer.input_axis] = -1
    return (wide * factors.astype(np.float64).reshape(shape)).astype(values.dtype)
