"""A small network with quantizers, and its evaluation in plain numpy, which shares no code with the product."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

from roundoff.core.quantizers import Consumer, Kind, Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from tests.models import value, weight, wrapped

U8 = QuantSpec(8, signed=False, symmetric=False)
S8 = QuantSpec(8, signed=True, symmetric=True)
S32 = QuantSpec(32, signed=True, symmetric=True)


def run_model(model: Model, feed: Mapping[str, Array]) -> list[Array]:
    """Outputs in onnxruntime, without any rewriting of the graph."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.folder))
    session = ort.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feed)))


def make_quantizer(
    tensor: str,
    spec: QuantSpec,
    scale: Any,
    *consumers: tuple[str, int],
    zero_point: Any = 0,
    kind: Kind = "activation",
    **more: Any,
) -> Quantizer:
    """A quantizer named after its tensor, unless a name is given."""
    scales = np.asarray(scale, np.float32)
    zeros = np.broadcast_to(np.asarray(zero_point, np.int64), scales.shape)
    more.setdefault("name", f"{tensor}_q")
    return Quantizer(
        tensor=tensor,
        kind=kind,
        spec=spec,
        params=QuantParams(scales, zeros),
        consumers=tuple(Consumer(*consumer) for consumer in consumers),
        **more,
    )


def mixed_net(opset: int = 17, ir_version: int = 8) -> Any:
    """Conv, Relu, depthwise Conv, residual Add, Concat, pooling and Gemm; `act` is read three times."""
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["conv"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["conv"], ["act"], name="relu"),
        helper.make_node("Conv", ["act", "w2", "b2"], ["deep"], name="depthwise", pads=[1] * 4, group=4),
        helper.make_node("Add", ["act", "deep"], ["sum"], name="add"),
        helper.make_node("Concat", ["sum", "act"], ["both"], name="concat", axis=1),
        helper.make_node("GlobalAveragePool", ["both"], ["pooled"], name="pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], name="last", transB=1),
    ]
    weights = [
        weight("w1", 4, 3, 3, 3),
        weight("b1", 4, seed=1),
        weight("w2", 4, 1, 3, 3, seed=2),
        weight("b2", 4, seed=3),
        weight("w3", 5, 8, seed=4),
        weight("b3", 5, seed=5),
    ]
    fed = [value("image", (1, 3, 4, 4))]
    return wrapped(nodes, fed, [value("logits", (1, 5))], weights, opset=opset, ir_version=ir_version)


def weight_values(proto: Any) -> dict[str, Array]:
    """The initializers of a model."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def mixed_quantizers(activation: QuantSpec = U8, weights: QuantSpec = S8) -> tuple[Quantizer, ...]:
    """Quantizers for every tensor of `mixed_net` that a chip would quantize.

    All scales are powers of two: then all sums are exact in float32, whatever order they are computed in.
    """
    middle = (activation.code_min + activation.code_max + 1) // 2
    step = 2.0 ** -(activation.bits - 4)
    fine = 2.0 ** -(weights.bits - 2)
    per_channel = fine * np.array([1, 2, 0.5, 1])
    near_zero = activation.code_min if not activation.symmetric else 0

    def live(
        tensor: str, *consumers: tuple[str, int], zero: int = middle, scale: float = step, **more: Any
    ) -> Any:
        zero = 0 if activation.symmetric else zero
        return make_quantizer(tensor, activation, scale, *consumers, zero_point=zero, **more)

    def fixed(tensor: str, spec: QuantSpec, scale: Any, node: str, position: int, kind: Kind) -> Quantizer:
        return make_quantizer(tensor, spec, scale, (node, position), kind=kind)

    return (
        live("image", ("first", 0)),
        fixed("w1", weights.along(0), per_channel, "first", 1, "weight"),
        fixed("b1", S32.along(0), per_channel * step, "first", 2, "bias"),
        live("act", ("depthwise", 0), ("add", 0), ("concat", 1), zero=near_zero, scale=step / 2),
        fixed("w2", weights.along(0), per_channel, "depthwise", 1, "weight"),
        fixed("b2", S32.along(0), per_channel * step / 2, "depthwise", 2, "bias"),
        live("deep", ("add", 1)),
        live("sum", ("concat", 0), scale=step * 2),
        live("both", ("pool", 0), scale=step * 2),
        live("flat", ("last", 0)),
        fixed("w3", weights, fine, "last", 1, "weight"),
        fixed("b3", S32, fine * step, "last", 2, "bias"),
        live("logits", output=True, scale=step * 2),
    )


def _quantized(values: Array, quantizer: Quantizer | None) -> Array:
    """Codes by the definition: divide, round, shift, saturate; and back. In float64 throughout."""
    if quantizer is None:
        return values
    spec, scale, zero = quantizer.spec, quantizer.params.scale.astype(float), quantizer.params.zero_point
    if scale.ndim:
        shape = [-1 if axis == spec.axis else 1 for axis in range(values.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    codes = np.round(values / scale) + zero
    lowest = 0 if not spec.signed else -(2 ** (spec.bits - 1)) + spec.narrow
    highest = 2**spec.bits - 1 if not spec.signed else 2 ** (spec.bits - 1) - 1
    return np.asarray((np.minimum(np.maximum(codes, lowest), highest) - zero) * scale)


def _conv(image: Array, kernel: Array, bias: Array, groups: int) -> Array:
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, kernel.shape[2:], axis=(2, 3))
    parts = []
    for group in range(groups):
        inside = windows[:, group * kernel.shape[1] : (group + 1) * kernel.shape[1]]
        outside = kernel.shape[0] // groups
        parts.append(np.einsum("nchwij,ocij->nohw", inside, kernel[group * outside : (group + 1) * outside]))
    return np.concatenate(parts, axis=1) + bias[:, None, None]


def evaluate(weights: Mapping[str, Array], image: Array, quantizers: tuple[Quantizer, ...]) -> Array:
    """The logits of `mixed_net` with these quantizers on."""
    by_tensor = {quantizer.tensor: quantizer for quantizer in quantizers}

    def seen(tensor: str, values: Array) -> Array:
        return _quantized(values.astype(float), by_tensor.get(tensor))

    held = {name: seen(name, array) for name, array in weights.items()}
    first = _conv(seen("image", image), held["w1"], held["b1"], 1)
    act = seen("act", np.maximum(first, 0))
    deep = seen("deep", _conv(act, held["w2"], held["b2"], 4))
    both = seen("both", np.concatenate([seen("sum", act + deep), act], axis=1))
    flat = seen("flat", both.mean(axis=(2, 3)))
    return seen("logits", flat @ held["w3"].T + held["b3"])
