"""A small NPU, simulated with whole numbers only, the way such chips work.

Activations are 8-bit codes with a scale and a zero point, weights are symmetric 8-bit codes with one scale
per layer, accumulators are wide, and each result is brought back to 8 bits by a multiplier and a right shift
(requantization). Batch norms and activation functions are fused into the layer before them. Tensors are
channels-last.

`scripts.make_demo_dump` makes the demo's board dump with it; the package itself never needs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

from roundoff.core.tensors import Array

__all__ = ["Layer", "Scale", "calibrate", "fuse", "requantize", "run"]

ACTIVATION_MAX = 255  # uint8
WEIGHT_MAX = 127  # int8, symmetric
MULTIPLIER_BITS = 31  # requantization multipliers are 32-bit signed


@dataclass(frozen=True, slots=True)
class Layer:
    """One operation of the chip, possibly several nodes of the model fused.

    Attributes:
        name: What the chip's tool calls the layer's output.
        kind: ``conv``, ``depthwise``, ``dense``, ``add`` or ``pool``.
        inputs: Reference names of the tensors it reads.
        output: Reference name of the tensor it computes, the last of the fused nodes.
        weight: Folded weights (out, in, height, width), or (out, in) when dense; None without weights.
        bias: Folded bias (out,).
        stride: Step of a convolution, the same on both axes.
        pad: Border of a convolution, the same on all sides.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: str
    weight: Array | None = None
    bias: Array | None = None
    stride: int = 1
    pad: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """Meaning of the codes of one activation: value = (code - zero_point) * scale."""

    scale: float
    zero_point: int

    @classmethod
    def covering(cls, low: float, high: float) -> "Scale":
        """The min-max scale; zero is always exactly representable."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / ACTIVATION_MAX or 1.0
        return cls(scale, round(-low / scale))

    def encode(self, values: Array) -> Array:
        """Codes of real values."""
        codes: Array = np.rint(values / self.scale).astype(np.int64) + self.zero_point
        return codes.clip(0, ACTIVATION_MAX)

    def decode(self, codes: Array) -> Array:
        """Real values of codes."""
        values: Array = ((codes - self.zero_point) * self.scale).astype(np.float32)
        return values


def fuse(model: onnx.ModelProto) -> list[Layer]:
    """The model as the chip runs it: batch norms and activations belong to the layer before them."""
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    reader = {node.input[0]: node for node in model.graph.node}
    reads = [name for node in model.graph.node for name in node.input]
    layers: list[Layer] = []
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Add", "GlobalAveragePool", "Gemm"):
            continue
        tail = [node]
        while reads.count(tail[-1].output[0]) == 1:
            follower = reader.get(tail[-1].output[0])
            if follower is None or follower.op_type not in ("BatchNormalization", "Relu", "Clip"):
                break
            tail.append(follower)
        layers.append(_layer(tail, len(layers) + 1, weights))
    return layers


def _layer(nodes: list[onnx.NodeProto], number: int, weights: Mapping[str, Array]) -> Layer:
    first, attributes = nodes[0], {a.name: onnx.helper.get_attribute_value(a) for a in nodes[0].attribute}
    kinds = {"Conv": "conv", "Add": "add", "GlobalAveragePool": "pool", "Gemm": "dense"}
    kind = "depthwise" if attributes.get("group", 1) > 1 else kinds[first.op_type]
    activations = [node.op_type for node in nodes[1:] if node.op_type != "BatchNormalization"]
    name = "_".join([f"L{number:02d}", kind, *activations]).upper() + ".ofm"
    # The chip has no flatten: the classifier reads the pool's output as it lies in memory.
    inputs = tuple(key.replace("head/flatten", "head/pool") for key in first.input if key not in weights)
    output = nodes[-1].output[0]
    if kind in ("add", "pool"):
        return Layer(name, kind, inputs, output)
    weight, bias = weights[first.input[1]], np.zeros(len(weights[first.input[1]]), np.float32)
    if kind == "dense":
        return Layer(name, kind, inputs, output, weight, weights[first.input[2]])
    for norm in (node for node in nodes if node.op_type == "BatchNormalization"):
        gain, shift, mean, variance = (weights[key] for key in norm.input[1:])
        factor = gain / np.sqrt(variance + norm.attribute[0].f)
        weight, bias = weight * factor[:, None, None, None], (bias - mean) * factor + shift
    return Layer(name, kind, inputs, output, weight, bias, attributes["strides"][0], attributes["pads"][0])


def calibrate(model: onnx.ModelProto, images: Array) -> dict[str, Scale]:
    """Min-max scales of every activation over the given images (n, 1, 8, 8)."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    names = [node.output[0] for node in model.graph.node]
    del tapped.graph.output[:]
    tapped.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(tapped.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = dict(zip(names, session.run(names, {"image": images}), strict=True))
    values["image"] = images
    return {name: Scale.covering(float(value.min()), float(value.max())) for name, value in values.items()}


def run(
    layers: list[Layer], scales: Mapping[str, Scale], images: Array, *, extra_shift: Mapping[str, int]
) -> dict[str, Array]:
    """Run images (n, 1, 8, 8) through the chip.

    Args:
        layers: The fused model.
        scales: Activation scales by reference tensor.
        images: Input values.
        extra_shift: Bits by which the requantization of a tensor shifts too far; empty for a healthy chip.

    Returns:
        Codes of each tensor by reference name, channels last.
    """
    codes = {"image": scales["image"].encode(images.transpose(0, 2, 3, 1))}
    for layer in layers:
        sources = [(codes[name] - scales[name].zero_point, scales[name].scale) for name in layer.inputs]
        out = scales[layer.output]
        total = sum(
            requantize(accumulator, scale / out.scale, extra_shift.get(layer.output, 0))
            for accumulator, scale in _accumulate(layer, sources)
        )
        codes[layer.output] = np.clip(total + out.zero_point, 0, ACTIVATION_MAX)
    return codes


def _accumulate(layer: Layer, sources: list[tuple[Array, float]]) -> list[tuple[Array, float]]:
    """The layer's accumulators, each with the real value of one step."""
    if layer.kind == "add":
        return sources
    codes, scale = sources[0]
    if layer.kind == "pool":
        return [(codes.sum(axis=(1, 2), keepdims=True), scale / (codes.shape[1] * codes.shape[2]))]
    assert layer.weight is not None
    assert layer.bias is not None
    weight_scale = float(np.abs(layer.weight).max()) / WEIGHT_MAX
    weight = np.rint(layer.weight / weight_scale).astype(np.int64)
    bias = np.rint(layer.bias / (scale * weight_scale)).astype(np.int64)
    if layer.kind == "dense":
        return [(codes.reshape(len(codes), -1) @ weight.T + bias, scale * weight_scale)]
    border = (layer.pad, layer.pad)
    padded = np.pad(codes, ((0, 0), border, border, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(1, 2))
    windows = windows[:, :: layer.stride, :: layer.stride]
    if layer.kind == "depthwise":
        return [(np.einsum("nhwcij,cij->nhwc", windows, weight[:, 0]) + bias, scale * weight_scale)]
    return [(np.einsum("nhwcij,ocij->nhwo", windows, weight) + bias, scale * weight_scale)]


def requantize(accumulator: Array, ratio: float, extra_shift: int) -> Array:
    """Multiply by `ratio` with a 32-bit multiplier and a rounding right shift, as the chip does."""
    mantissa, exponent = np.frexp(ratio)
    multiplier = round(float(mantissa) * 2**MULTIPLIER_BITS)
    shift = MULTIPLIER_BITS - int(exponent) + extra_shift
    codes: Array = (accumulator * multiplier + (1 << (shift - 1))) >> shift
    return codes
