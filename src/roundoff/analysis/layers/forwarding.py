"""Tensors that are only passed on: what they have of an error came with what they were made of."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from roundoff.core.quantizer import Quantizer
from roundoff.graph.edges import Edges
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.wiring import constants

__all__ = ["forwarded_tensors"]

# Every value of the result is a value of an input, so that what is on a grid stays on it.
_MOVING = frozenset(
    {
        "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "GlobalMaxPool", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip


def forwarded_tensors(quantized: QuantizedModel, written: Mapping[str, Quantizer]) -> dict[str, tuple[str, ...]]:
    """Tensors whose quantizer changes nothing: the values that are moved into them are on its grid already.

    Args:
        quantized: The float network and its quantizers.
        written: The quantizer by which each tensor is written.

    Returns:
        For each of them the tensors its values come from.
    """
    graph = quantized.float_model.proto.graph
    edges = Edges(quantized.float_model, quantized.quantizers)
    constant = constants(graph)
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.node:
        sources = _sources(node, edges, constant)
        for tensor in node.output:
            quantizer = written.get(tensor)
            if sources and quantizer is not None and all(_same_grid(each, quantizer) for each in sources.values()):
                found[tensor] = tuple(sources)
    return found


def _sources(node: Any, edges: Edges, constant: frozenset[str]) -> dict[str, Quantizer]:
    """What a node moves, with the quantizers it reads it by; nothing where it reads some of it in float."""
    if node.op_type not in _MOVING:
        return {}
    moved = node.input if node.op_type == "Concat" else node.input[:1]
    read = {name: edges.read_by(node.name, at) for at, name in enumerate(moved) if name not in constant}
    known = {name: quantizer for name, quantizer in read.items() if quantizer is not None}
    return known if len(known) == len(read) else {}


def _same_grid(left: Quantizer, right: Quantizer) -> bool:
    one_scale = left.params.scale.size == right.params.scale.size == 1
    if not one_scale or left.spec.dtype != right.spec.dtype or left.spec.narrow != right.spec.narrow:
        return False
    return bool(
        np.array_equal(left.params.scale.reshape(()), right.params.scale.reshape(()))
        and np.array_equal(left.params.zero_point.reshape(()), right.params.zero_point.reshape(()))
    )
