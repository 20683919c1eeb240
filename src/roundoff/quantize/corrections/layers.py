"""Layers of a quantized model, and the quantizers of their input, weight and bias."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights

__all__ = ["QuantizedLayer", "node_by_name", "quantized_layers"]

_SOURCE, _WEIGHT, _BIAS = 0, 1, 2
_AXES = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLayer:
    """A layer with a constant weight.

    Attributes:
        node: Its name.
        op_type: Its operation.
        axis: Where its result has channels.
        source: The quantizer of what it reads; None when it reads floats.
        weight: The quantizer of its weight; None when that stays in float.
        bias: Where its bias is read; None when it has none. Of a product, the Add behind it.
        bias_quantizer: The quantizer of its bias; None when that stays in float.
        last: The node that computes its result, bias included.
    """

    node: str
    op_type: str
    axis: int
    source: Quantizer | None
    weight: Quantizer | None
    bias: Consumer | None
    bias_quantizer: Quantizer | None
    last: str


def node_by_name(model: Model) -> dict[str, Any]:
    """The nodes of a model."""
    return {node.name: node for node in model.proto.graph.node}


def quantized_layers(quantized: QuantizedModel) -> Iterator[QuantizedLayer]:
    """All layers of which the weight or the input is quantized, in execution order."""
    model = quantized.float_model
    weights = Weights(model)
    seen = {consumer: each for each in quantized.quantizers for consumer in each.consumers}
    readers: dict[str, list[Consumer]] = {}
    nodes = node_by_name(model)
    for node in nodes.values():
        for at, name in enumerate(node.input):
            readers.setdefault(name, []).append(Consumer(node.name, at))
    outputs = {value.name for value in model.proto.graph.output}
    for node in nodes.values():
        if node.op_type not in _AXES or node.domain not in ("", "ai.onnx") or len(node.input) <= _WEIGHT:
            continue
        source, weight = seen.get(Consumer(node.name, _SOURCE)), seen.get(Consumer(node.name, _WEIGHT))
        if node.input[_WEIGHT] not in weights or node.input[_SOURCE] in weights or (source or weight) is None:
            continue
        bias = _bias(node, weights)
        if node.op_type == "MatMul" and node.output[0] not in outputs:
            bias = _added(node.output[0], readers, nodes, weights=weights, quantized=seen)
        last = node.name if bias is None else bias.node
        found = None if bias is None else seen.get(bias)
        yield QuantizedLayer(node.name, node.op_type, _AXES[node.op_type], source, weight, bias, found, last)


def _bias(node: Any, weights: Weights) -> Consumer | None:
    has = node.op_type != "MatMul" and len(node.input) > _BIAS and node.input[_BIAS] in weights
    return Consumer(node.name, _BIAS) if has else None


def _added(
    tensor: str,
    readers: Mapping[str, list[Consumer]],
    nodes: Mapping[str, Any],
    *,
    weights: Weights,
    quantized: Mapping[Consumer, Quantizer],
) -> Consumer | None:
    """The constant vector that is added to a product, if nobody else reads that and it is not rounded before."""
    found = readers.get(tensor, [])
    if len(found) != 1 or nodes[found[0].node].op_type != "Add" or found[0] in quantized:
        return None
    other = Consumer(found[0].node, 1 - found[0].input)
    name = nodes[other.node].input[other.input]
    if name not in weights or len(weights.shape(name)) > 1:
        return None
    # A constant that is rounded like an activation is no bias of this layer.
    reader = quantized.get(other)
    return other if reader is None or reader.kind == "bias" else None
