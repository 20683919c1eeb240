"""Linear layers with constant weights, whose results can be scaled and shifted per channel at no cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.preparation.changes import CannotFold, attribute
from roundoff.graph.preparation.draft import Draft

__all__ = ["LinearLayer", "linear_layer"]

_WEIGHT, _BIAS = 1, 2


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A Conv, ConvTranspose or Gemm with a constant weight.

    Attributes:
        node: The node.
        weight: Name of its weight.
        channels: Channels of its result, which are axis 1.
        rank: Axes of its result.
    """

    node: Any
    weight: str
    channels: int
    rank: int

    def scaled_weight(self, draft: Draft, factor: Array) -> Array:
        """The weight with each output channel multiplied by its factor, as float64."""
        values = draft.constant(self.weight).astype(np.float64)
        if self.node.op_type == "Conv":
            return np.asarray(values * factor.reshape(-1, *[1] * (self.rank - 1)))
        if self.node.op_type == "Gemm":
            return np.asarray(values * (factor[:, None] if attribute(self.node, "transB", 0) else factor))
        groups = attribute(self.node, "group", 1)
        split = values.reshape(groups, -1, *values.shape[1:])
        return np.asarray(split * factor.reshape(groups, 1, -1, *[1] * (self.rank - 2))).reshape(values.shape)

    def bias(self, draft: Draft) -> Array:
        """What is added to each channel, as float64 of shape [C].

        Raises:
            CannotFold: It is computed, or not the same for all samples.
        """
        name = self.node.input[_BIAS] if len(self.node.input) > _BIAS else ""
        if not name:
            return np.zeros(self.channels)
        if not draft.is_constant(name):
            raise CannotFold("the bias of the layer in front is computed")
        values = draft.constant(name).astype(np.float64)
        if values.size not in (1, self.channels) or (values.ndim and values.shape[-1] != values.size):
            raise CannotFold("the bias of the layer in front differs between samples")
        factor = attribute(self.node, "beta", 1.0) if self.node.op_type == "Gemm" else 1.0
        return np.broadcast_to(values.ravel() * factor, (self.channels,))


def linear_layer(draft: Draft, tensor: str) -> LinearLayer:
    """The layer that computes a tensor.

    Raises:
        CannotFold: There is none, or its weight is computed.
    """
    node = draft.producer(tensor)
    if node is None or node.op_type not in ("Conv", "ConvTranspose", "Gemm") or node.domain not in ("", "ai.onnx"):
        raise CannotFold("there is no layer with weights in front")
    weight = node.input[_WEIGHT]
    if not draft.is_constant(weight):
        raise CannotFold("the weight of the layer in front is computed")
    shape = draft.constant_shape(weight)
    if node.op_type == "Conv":
        channels = shape[0]
    elif node.op_type == "Gemm":
        channels = shape[0 if attribute(node, "transB", 0) else 1]
    else:
        channels = shape[1] * attribute(node, "group", 1)
    return LinearLayer(node, weight, channels, len(shape))
