"""The numbers of a layer as they are written: as they were, folded, rounded as the chip does, or as integers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.core.text_proto import Entry, TextMessage
from roundoff.errors import BadInput
from roundoff.graph.caffe.net import Layer
from roundoff.graph.caffe.placement import Product
from roundoff.graph.codes import codes_of
from roundoff.graph.fake_constants import fake_quantized
from roundoff.graph.weights import Weights

__all__ = ["Numbers", "layer_numbers"]

_PARAMETERS = {
    "Convolution": "convolution_param",
    "ConvolutionDepthwise": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
}
_INT32 = np.iinfo(np.int32)
_SIGN = 128


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is written for one layer.

    Attributes:
        blobs: Its numbers.
        parameters: Messages of parameters that replace those it had.
        factors: What one unit of its integers is worth, for each output or for all; None when it is in float.
    """

    blobs: tuple[Array, ...]
    parameters: tuple[Entry, ...] = ()
    factors: Array | None = None


def layer_numbers(layer: Layer, product: Product | None, weights: Weights, *, deploy: bool) -> Numbers:
    """The numbers of a layer.

    Args:
        layer: The layer of the net.
        product: The node that multiplies with its numbers, if one does.
        weights: The numbers of the model.
        deploy: Whether integers are written.

    Raises:
        BadInput: Its quantizers have no form in Caffe.
    """
    if product is None or layer.type not in _PARAMETERS:
        return Numbers(layer.blobs)
    matrix, bias = product.node.input[1], product.node.input[2] if len(product.node.input) > 2 else ""
    values, added = weights[matrix], weights[bias] if bias else _added(layer, product, weights)
    entrance, quantizer = product.entrance, product.weight
    factors = None
    if quantizer is not None and entrance is not None:
        steps = np.asarray(quantizer.params.scale * np.float32(entrance.params.scale), np.float32).reshape(-1)
        factors = _per_output(steps, layer)
    if quantizer is not None:
        integers = deploy and factors is not None
        values = _codes(values, quantizer, layer) if integers else fake_quantized(values, quantizer)
    if added is not None:
        added = _bias(added, product.bias, factors, layer, deploy=deploy)
    blobs = (_as_stored(values, layer, product.node), *([] if added is None else [added]))
    parameters = _parameters(layer, has_bias=added is not None)
    return Numbers(blobs, parameters, factors)


def _added(layer: Layer, product: Product, weights: Weights) -> Array | None:
    """The bias of a product that has none itself, but a node behind it; it stays what it was."""
    behind = product.node.op_type == "MatMul" and len(layer.blobs) > 1
    return layer.blobs[1].reshape(-1) if behind else None


def _codes(values: Array, quantizer: Quantizer, layer: Layer) -> Array:
    spec = quantizer.spec
    codes = codes_of(values, quantizer.params, spec) if quantizer.codes is None else quantizer.codes
    shift = 0 if spec.signed else _SIGN
    if spec.bits > 8 or (np.asarray(quantizer.params.zero_point) != shift).any():
        what = f"The weights of layer {layer.name!r} are quantized to {spec.dtype}, with an offset or too wide."
        raise BadInput(what, fix="quantize them to 8 bits, symmetrically")
    return (codes.astype(np.int16) - shift).astype(np.int8)


def _bias(
    values: Array, quantizer: Quantizer | None, factors: Array | None, layer: Layer, *, deploy: bool
) -> Array:
    if deploy and factors is not None:
        whole = np.rint(values.astype(np.float64) / factors)
        if whole.min(initial=0) < _INT32.min or whole.max(initial=0) > _INT32.max:
            what = f"The bias of layer {layer.name!r} exceeds 32 bits in units of its weights and input."
            raise BadInput(what, fix="keep that layer in float")
        return whole.astype(np.int32)
    return fake_quantized(values, quantizer) if quantizer is not None else values


def _as_stored(values: Array, layer: Layer, node: Any) -> Array:
    """The matrix as Caffe stores it: rows are outputs, unless the layer says otherwise."""
    if node.op_type not in ("Gemm", "MatMul"):
        return values
    by_row = node.op_type == "Gemm" and any(each.name == "transB" and each.i for each in node.attribute)
    params = layer.message.message("inner_product_param") or TextMessage()
    wanted = not params.get("transpose", False)
    return values if by_row == wanted else np.ascontiguousarray(values.T)


def _parameters(layer: Layer, *, has_bias: bool) -> tuple[Entry, ...]:
    """The layer's parameters, with a bias where folding brought one."""
    name = _PARAMETERS[layer.type]
    given = layer.message.message(name) or TextMessage()
    training = ("weight_filler", "bias_filler", "bias_term")
    kept = tuple(entry for entry in given.entries if entry.name not in training)
    said = () if has_bias else (Entry("bias_term", value=False),)
    return (Entry(name, TextMessage((*kept, *said))),)


def _per_output(factors: Array, layer: Layer) -> Array:
    """Factors of a transposed convolution are those of one group, and serve all."""
    params = layer.message.message("convolution_param") or TextMessage()
    groups = params.get("group", 1)
    if layer.type == "Deconvolution" and factors.size > 1 and isinstance(groups, int):
        return np.tile(factors, groups)
    return factors
