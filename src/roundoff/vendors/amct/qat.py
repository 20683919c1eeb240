"""Models that were trained with quantization: their QuantizeLinear and DequantizeLinear as records of layers."""

from collections.abc import Mapping

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.text_proto import TextMessage
from roundoff.graph.load import Model
from roundoff.graph.reading.read import read_quantized
from roundoff.vendors.amct.layers import Layer, find_layers
from roundoff.vendors.amct.listening import LOGGER
from roundoff.vendors.amct.records import LayerRecord, type_entries
from roundoff.vendors.errors import WrongValue

__all__ = ["records_of_qat"]

_LISTED = 5


def records_of_qat(model: Model) -> tuple[Model, dict[str, Layer], dict[str, LayerRecord]]:
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


def _record(layer: Layer, by_place: Mapping[Consumer, Quantizer], used: set[str]) -> LayerRecord | None:
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
