"""The layers of Caffe that AMCT quantizes, what can be asked for them, and what its records say of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import Entry, TextMessage
from roundoff.graph.caffe.convert import runs_of
from roundoff.graph.caffe.export import Ending
from roundoff.graph.caffe.net import Layer as CaffeLayer
from roundoff.graph.caffe.net import Net, read_net
from roundoff.graph.caffe.placement import Owners
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.vendors.amct.configuration.settings import DEFAULT_BITS, QuantConfig
from roundoff.vendors.amct.deploy import Operation, operations_info
from roundoff.vendors.amct.flavour import Files
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.amct.numbers import short_mantissa
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.errors import WrongValue

__all__ = [
    "CAFFE_TYPES",
    "check_config",
    "ending_of",
    "input_sizes",
    "net_information",
    "own_layers",
]


CAFFE_TYPES: Mapping[str, tuple[str, ...]] = {
    "Convolution": ("Conv",),
    "Deconvolution": ("ConvTranspose",),
    "InnerProduct": ("Gemm",),
    "Pooling": ("AveragePool",),
}
_MORE_TYPES = ("ConvolutionDepthwise", "DepthwiseConvolution")
_FILTER_AXES = 4


def own_layers(net: Net, found: Mapping[str, Layer]) -> dict[str, Layer]:
    """Layers that are quantized: convolutions over planes, full connections and means, not steps of others.

    Args:
        net: The net.
        found: What can be quantized in the model made from it.
    """
    types = {layer.name: layer for layer in net.layers}
    return {name: layer for name, layer in found.items() if name in types and _taken(types[name], layer)}


def _taken(layer: CaffeLayer, found: Layer) -> bool:
    if layer.type not in CAFFE_TYPES and layer.type not in _MORE_TYPES:
        return False
    if layer.type == "InnerProduct":
        params = layer.message.message("inner_product_param") or TextMessage()
        return not params.get("transpose", False)
    if layer.type == "Deconvolution":
        params = layer.message.message("convolution_param") or TextMessage()
        return len(found.weight_shape) == _FILTER_AXES and set(params.all("dilation")) <= {1}
    return not found.weight or len(found.weight_shape) == _FILTER_AXES


def check_config(config: QuantConfig, name: str) -> None:
    """Refuse what no net of Caffe can say.

    Raises:
        WrongValue: The configuration, which is called so, asks for it.
    """
    if config.tensors:
        what = f"{name} has tensor_quantize, which AMCT does not have for Caffe."
        raise WrongValue(what, fix="remove it")
    for layer, settings in config.enabled.items():
        if settings.balance is not None:
            what = f"{name} asks for dmq_balancer in {layer!r}, which AMCT does not have for Caffe."
            raise WrongValue(what, fix="remove it; 'roundoff transform smooth' does the like on ONNX models")
        if settings.activation.bits != DEFAULT_BITS:
            what = f"{name} asks for inputs of {settings.activation.bits} bits in {layer!r}; Caffe's have 8."
            raise WrongValue(what, fix="remove dst_type or num_bits of its activation")


def input_sizes(model: Model, layers: Mapping[str, Layer]) -> dict[str, tuple[Entry, ...]]:
    """Channels, height and width of what each layer reads, as AMCT's records of Caffe nets have them."""
    # The number of samples may be any.
    fed = {
        each.name: tuple(size if isinstance(size, int) else 1 for size in each.shape or ())
        for each in inputs(model)
    }
    shapes = {value.name: value.shape for value in values(model, fed)}
    steps = {node.output[0]: node for node in model.proto.graph.node if node.output}
    found = {}
    for name, layer in layers.items():
        tensor = layer.inputs[0][0]
        step = steps.get(tensor)
        # What a layer does to its input before it multiplies is its own affair.
        if step is not None and step.name.startswith(f"{name}/"):
            tensor = step.input[0]
        sizes = (shapes.get(tensor) or ())[1:]
        named = zip(("channels", "height", "width"), (*sizes, 1, 1), strict=False)
        found[name] = tuple(Entry(key, size) for key, size in named) if sizes else ()
    return found


# What the DeQuant layers of a net hold, by the records of its layers.


def ending_of(records: Mapping[str, LayerRecord], *, half: bool) -> Ending:
    """Factors with the shifts of the records.

    Args:
        records: Of the layers that are quantized.
        half: Whether factors are cut to half precision.
    """

    def ending(name: str, factors: Array) -> tuple[Array, Array]:
        # A single input has a record of its own, and no shifts.
        record = records.get(name, LayerRecord())
        return short_mantissa(factors) if half else factors, _shifts(name, record, factors.size)

    return ending


def _shifts(name: str, record: LayerRecord, count: int) -> Array:
    bits = np.asarray(record.shift_bit or (0,), np.float32)
    if count % bits.size:
        what = f"The record of {name!r} has {bits.size} values of shift_bit for {count} outputs."
        raise WrongValue(what, fix="give one shift_bit for each scale_w")
    # Groups of a transposed convolution share their factors.
    return np.tile(bits, count // bits.size)


# The quantization information of a deploy net.


def net_information(deployed: Files, net: Net, layers: Mapping[str, Layer]) -> dict[str, Any]:
    """Which layers were inserted into a net, and which of its layers each stands for.

    Args:
        deployed: The deploy net.
        net: The user's net.
        layers: The layers that are quantized.
    """
    owners = Owners(runs_of(net))
    originals = {
        # The nodes of one layer are one.
        name: list(dict.fromkeys(owner for node in layer.originals if (owner := owners.of(node))))
        for name, layer in layers.items()
    }
    written = read_net(*deployed)
    return operations_info(written.name, _operations(written, net), originals)


def _operations(written: Net, net: Net) -> Iterator[Operation]:
    for place, layer in enumerate(written.layers):
        owner = layer.name
        if layer.name not in net.layer_names and layer.type == "Quant":
            # It is called after the first layer that reads it, which need not stand directly behind it.
            owner = next(other.name for other in written.layers[place + 1 :] if layer.tops[0] in other.bottoms)
        elif layer.name not in net.layer_names:
            owner = written.layers[place - 1].name
        yield Operation(layer.name, layer.type, len(layer.tops), owner)
