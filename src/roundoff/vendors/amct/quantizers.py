"""From records to quantizers: what every scale of a record stands for in the model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.graph.load import Model
from roundoff.graph.reading.read import read_quantized
from roundoff.graph.weights import Weights
from roundoff.vendors.amct.configuration.full import DEFAULT_BITS
from roundoff.vendors.amct.layers import AmctLayer, find_layers
from roundoff.vendors.amct.logging import LOGGER
from roundoff.vendors.amct.records import LayerRecord, check_record, record_bits, type_entries
from roundoff.vendors.errors import WrongValue

__all__ = [
    "LARGEST_SUM",
    "input_spec",
    "quantizers_of",
    "records_of_qat",
    "weight_quantizers",
    "weight_spec",
]


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
            what = f"The record of {layer.name!r} has other scales of weights in each of its groups."
            raise WrongValue(what, fix="give its weight one scale, or each group the same")
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
    what = f"There is a record of {key!r}, and no layer of that name that can be quantized."
    raise WrongValue(what, fix="use the record of this very model")


def _bias(layer: AmctLayer, record: LayerRecord, values: Array) -> Quantizer:
    place = layer.bias
    if place is None:
        raise ValueError(f"{layer.name} has no bias")
    scale = np.asarray(np.float32(record.scale_d) * np.asarray(record.scale_w, np.float32), np.float32)
    channel_wise = scale.size > 1
    if channel_wise and values.shape[-1:] != scale.shape:
        what = f"The bias of {layer.name!r} has not one value for each of its {scale.size} channels."
        raise WrongValue(what, fix="give its weight one scale, or leave the layer in float")
    steps = np.abs(values.astype(np.float64)).ravel() / scale.astype(np.float64)
    if steps.size and steps.max() > LARGEST_SUM:
        what = f"The bias of {layer.name!r} does not fit into 32 bits at the scales of its record."
        raise WrongValue(what, fix="calibrate the layer again, or leave it in float")
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
            raise WrongValue(f"{oddity.text}.", fix="both nodes of a pair must carry equal factors")
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
        what = f"No layer of {model.path} has both its input and its weight quantized."
        raise WrongValue(what, fix="give a model with QuantizeLinear and DequantizeLinear around its layers")
    rest = [each.name for each in read.quantizers if each.name not in used and each.kind == "activation"]
    if rest:
        more = f" and {len(rest) - _LISTED} more" if len(rest) > _LISTED else ""
        LOGGER.warning("left out, they are not in front of layers: %s%s", ", ".join(rest[:_LISTED]), more)
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
            f"{layer.name}: only weights can have scales per channel.", fix="quantize inputs as a whole"
        )
    other = weight if weight is not None else inputs[1] if len(inputs) > 1 else None
    scales: tuple[float, ...] = ()
    if other is not None:
        if np.any(_signed(other) != 0):
            raise WrongValue(f"{layer.name}: the zero point of its weight is not 0.", fix="train it symmetric")
        if other.params.scale.size > 1 and other.spec.axis is not None:
            rank = len(layer.weight_shape)
            if layer.channel_axis is None or other.spec.axis % rank != layer.channel_axis:
                what = f"{layer.name}: its weight has scales along axis {other.spec.axis}, not by output channel."
                raise WrongValue(what, fix="train it with one scale for each output channel")
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
