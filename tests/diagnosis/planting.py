"""Faults planted by hand in the network of the demo, and in small networks built here."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from roundoff.core.quantizers import Quantizer, QuantParams, Rounding, parameters_from_range, quantize
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.capture import Samples
from roundoff.samples.sample_set import ArraySamples
from tests.models import value, wrapped
from tests.models import weight as random_weight
from tests.studies.layers.support import demo_network


def demo() -> tuple[QuantizedModel, Samples]:
    """The network of the demo, quantized with care, and its samples."""
    return demo_network()


def changed(quantized: QuantizedModel, tensor: str, change: Callable[[Quantizer], Quantizer]) -> QuantizedModel:
    """A network with the quantizers of one tensor changed."""
    found = tuple(change(each) if each.tensor == tensor else each for each in quantized.quantizers)
    assert any(each.tensor == tensor for each in found)
    return replace(quantized, quantizers=found)


def scaled(factor: float) -> Callable[[Quantizer], Quantizer]:
    """Makes scales larger or smaller."""

    def change(quantizer: Quantizer) -> Quantizer:
        scale = np.asarray(quantizer.params.scale * factor, dtype=np.float32)
        return replace(quantizer, params=QuantParams(scale, quantizer.params.zero_point))

    return change


def coded(
    quantized: QuantizedModel, tensor: str, change: Callable[[Array], Array], *, rounding: Rounding = "half_even"
) -> QuantizedModel:
    """A network whose file has other codes for a constant."""
    values = Weights(quantized.float_model)[tensor]

    def with_codes(quantizer: Quantizer) -> Quantizer:
        spec = replace(quantizer.spec, rounding=rounding)
        codes = quantize(values, quantizer.params, spec)
        return replace(quantizer, codes=change(codes.astype(np.int64)).astype(codes.dtype))

    return changed(quantized, tensor, with_codes)


def for_target(
    model: Model, arrays: Mapping[str, Array], target: str = "generic-int8"
) -> tuple[QuantizedModel, ArraySamples]:
    """A model quantized for a chip, and its samples."""
    samples = ArraySamples(arrays)
    return quantize_model(model, samples, QuantizeSettings(load_target(target))).quantized, samples


def _images(count: int = 24) -> Array:
    return np.random.default_rng(5).standard_normal((count, 3, 8, 8)).astype(np.float32)


def unbalanced(factor: float) -> tuple[Model, dict[str, Array]]:
    """Two convolutions with one channel between them that is larger than all others by a factor."""
    rng = np.random.default_rng(2)
    first = rng.standard_normal((8, 3, 3, 3)).astype(np.float32) * 0.3
    second = rng.standard_normal((6, 8, 3, 3)).astype(np.float32) * 0.2
    first[3] *= factor
    second[:, 3] /= factor
    weights = [numpy_tensor("w1", first), numpy_tensor("w2", second), random_weight("w3", 6, 10, seed=4)]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w3"], ["y"], name="dense"),
    ]
    proto = wrapped(nodes, [value("x", (1, 3, 8, 8))], [value("y", (1, 10))], weights)
    return model_from_proto(proto, path=Path("unbalanced.onnx")), {"x": _images()}


def biased() -> tuple[Model, dict[str, Array]]:
    """The same two convolutions, the first with a bias."""
    model, arrays = unbalanced(1.0)
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    proto.graph.initializer.append(numpy_tensor("bias", np.linspace(-1, 1, 8, dtype=np.float32)))
    proto.graph.node[0].input.append("bias")
    return model_from_proto(proto, path=Path("biased.onnx")), arrays


def detector(unit: float) -> tuple[Model, dict[str, Array]]:
    """Boxes, in a unit of so many pixels, and scores from 0 to 1 in one output."""
    weights = [random_weight("w", 8, 3, 3, 3), random_weight("wb", 4, 8, 1, 1, seed=1)]
    weights += [random_weight("ws", 6, 8, 1, 1, seed=2), numpy_tensor("unit", np.float32(unit))]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="stem", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "wb"], ["b0"], name="box"),
        helper.make_node("Sigmoid", ["b0"], ["b1"], name="box_sigmoid"),
        helper.make_node("Mul", ["b1", "unit"], ["boxes"], name="pixels"),
        helper.make_node("Conv", ["r", "ws"], ["s0"], name="score"),
        helper.make_node("Sigmoid", ["s0"], ["scores"], name="score_sigmoid"),
        helper.make_node("Concat", ["boxes", "scores"], ["joined"], name="join", axis=1),
        helper.make_node("Reshape", ["joined", "shape"], ["y"], name="flat"),
    ]
    weights.append(numpy_tensor("shape", np.array([1, 10, 64], np.int64)))
    proto = wrapped(nodes, [value("x", (1, 3, 8, 8))], [value("y", (1, 10, 64))], weights)
    return model_from_proto(proto, path=Path("detector.onnx")), {"x": _images()}


def numpy_tensor(name: str, values: object) -> Any:
    """An initializer."""
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(values), name)


def narrower(bits: int) -> Callable[[Quantizer], Quantizer]:
    """Gives a quantizer fewer bits over the same range."""

    def change(quantizer: Quantizer) -> Quantizer:
        from roundoff.core.quantizers import representable_range

        spec = replace(quantizer.spec, bits=bits)
        low, high = representable_range(quantizer.params, quantizer.spec)
        return replace(quantizer, spec=spec, params=parameters_from_range(low, high, spec))

    return change
