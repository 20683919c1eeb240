"""A multiplication by ones in front of layers: a place for factors where nothing else can take them up."""

from collections.abc import Mapping, Sequence

import numpy as np

from roundoff.graph.assembly import Assembly
from roundoff.graph.external import inside_bytes
from roundoff.graph.load import Model
from roundoff.graph.weights import Weights
from roundoff.quantize.transforms.scaling_map import Layer

__all__ = ["insert_gains"]

_SOURCE, _WEIGHT = 0, 1


def insert_gains(model: Model, layers: Sequence[Layer]) -> tuple[Model, Mapping[str, str]]:
    """Let layers read their inputs through a Mul with a constant of ones, one for each tensor.

    Args:
        model: The model; it is not changed.
        layers: The layers.

    Returns:
        The model, and for each new tensor the one it is made of.
    """
    graph = Assembly(model)
    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
    by_node = {layer.node: layer for layer in layers}
    through: dict[str, str] = {}
    for node in model.proto.graph.node:
        layer = by_node.get(node.name)
        if layer is not None and layer.source not in through:
            through[layer.source] = _gain(graph, model, layer)
        copy = graph.copy_node(node)
        if layer is not None:
            copy.input[_SOURCE] = through[layer.source]
    graph.proto.graph.value_info.extend(model.proto.graph.value_info)
    made = Model(graph.proto, model.path, inside_bytes(graph.proto))
    return made, {new: old for old, new in through.items()}


def _gain(graph: Assembly, model: Model, layer: Layer) -> str:
    # On the last axis a plain vector will do; behind axis 1 there are others.
    weight = Weights(model)
    behind = len(weight.shape(layer.weight)) - 2 if layer.op_type not in ("MatMul", "Gemm") else 0
    dtype = weight[layer.weight].dtype
    ones = graph.add_constant(np.ones((layer.inputs.size, *(1,) * behind), dtype), f"{layer.source}_factors")
    result = graph.free_tensor(f"{layer.source}_smoothed")
    graph.add_node("Mul", [layer.source, ones], result, name=f"{layer.node}_smooth")
    return result
