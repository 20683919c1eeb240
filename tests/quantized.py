"""Models quantized in the plainest way, with faults planted by hand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.run.session import open_session

ACTIVATION = QuantSpec(bits=8, signed=False, symmetric=False)
WEIGHT = QuantSpec(bits=8, signed=True, symmetric=True)
# Nodes that take over the result of the one before them, when nothing else reads it.
FUSED = ("BatchNormalization", "Relu", "Clip")
WEIGHTED = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True)
class Recipe:
    """How to quantize: specs, and whether weights have a scale for each output channel."""

    activation: QuantSpec = ACTIVATION
    weight: QuantSpec = WEIGHT
    per_channel: bool = True


def quantized_simply(
    model: Model, feeds: Sequence[Mapping[str, Array]], recipe: Recipe | None = None
) -> QuantizedModel:
    """Quantize weights and activations by their smallest and largest values."""
    recipe = recipe or Recipe()
    ranges = _ranges(model, feeds)
    readers: dict[str, list[Consumer]] = {}
    operation: dict[str, str] = {}
    for node in model.proto.graph.node:
        operation[node.name] = node.op_type
        for position, name in enumerate(node.input):
            readers.setdefault(name, []).append(Consumer(node.name, position))
    found = []
    for tensor, (low, high) in ranges.items():
        read = readers.get(tensor, [])
        if len(read) == 1 and operation[read[0].node] in FUSED and tensor not in outputs(model):
            continue
        params = parameters_from_range(low, high, recipe.activation)
        leaves = tensor in outputs(model)
        found.append(
            Quantizer(f"q:{tensor}", tensor, "activation", recipe.activation, params, tuple(read), leaves)
        )
    return QuantizedModel(model, (*found, *_weights(model, recipe)))


def _ranges(model: Model, feeds: Sequence[Mapping[str, Array]]) -> dict[str, tuple[float, float]]:
    shapes = {name: array.shape for name, array in feeds[0].items()}
    floats = [value.name for value in values(model, shapes) if value.element and value.element.dtype == "float32"]
    computed = [name for name in floats if name not in {spec.name for spec in inputs(model)}]
    session = open_session(model, outputs=tap(model, computed))
    ranges: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        arrays = {**feed, **dict(zip(computed, session.run(feed), strict=True))}
        for name in floats:
            low, high = ranges.get(name, (np.inf, -np.inf))
            ranges[name] = min(low, float(arrays[name].min())), max(high, float(arrays[name].max()))
    return ranges


def _weights(model: Model, recipe: Recipe) -> Iterable[Quantizer]:
    weights = Weights(model)
    for node in model.proto.graph.node:
        if node.op_type not in WEIGHTED or node.input[1] not in weights:
            continue
        array = weights[node.input[1]]
        transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        axis = 0 if node.op_type == "Conv" or transposed else array.ndim - 1
        spec = recipe.weight.along(axis if recipe.per_channel else None)
        others = tuple(other for other in range(array.ndim) if other != axis)
        largest = np.abs(array).max(axis=others) if recipe.per_channel else np.abs(array).max()
        params = parameters_from_range(-largest, largest, spec)
        yield Quantizer(f"q:{node.name}:weight", node.input[1], "weight", spec, params, (Consumer(node.name, 1),))


def with_scale_times(quantized: QuantizedModel, tensors: Iterable[str], factor: float) -> QuantizedModel:
    """The same with other scales: below 1 values are clipped, above 1 levels are lost."""
    chosen = set(tensors)
    known = {each.tensor for each in quantized.quantizers}
    assert chosen <= known, f"not quantized: {chosen - known}"
    changed = tuple(
        replace(each, params=_scaled(each.params, factor)) if each.tensor in chosen else each
        for each in quantized.quantizers
    )
    return replace(quantized, quantizers=changed)


def _scaled(params: QuantParams, factor: float) -> QuantParams:
    return QuantParams((params.scale * np.float32(factor)).astype(np.float32), params.zero_point)
