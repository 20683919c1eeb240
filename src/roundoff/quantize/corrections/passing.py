"""Which of a layer's results get past the activation behind it: errors of those that are cut off do not show."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.preparation.changes import attribute
from roundoff.graph.weights import Weights
from roundoff.graph.wiring import reads
from roundoff.quantize.corrections.gram import WeightRows
from roundoff.quantize.corrections.layers import QuantizedLayer, node_by_name

__all__ = ["Passing", "passing_of"]

_CUT_OFF_COUNTS = 0.02
"""How much a result counts that is cut off: with other samples it may not be."""


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """What an activation does to the results of a layer.

    Attributes:
        weight: The layer's weight in rows, float32 [groups, rows, length].
        bias: What is added to each row, float32 [groups, rows].
        low: Smaller results are cut off.
        high: Larger results are cut off.
    """

    weight: Array
    bias: Array
    low: float
    high: float

    def counts(self, seen: Array) -> Array:
        """How much each result counts, float32 [groups, places, rows].

        Args:
            seen: What each place of each group reads, [groups, places, length].
        """
        results = seen @ self.weight.transpose(0, 2, 1) + self.bias[:, None, :]
        passed = (results > self.low) & (results < self.high)
        return np.where(passed, 1.0, _CUT_OFF_COUNTS).astype(np.float32)


def passing_of(layer: QuantizedLayer, rows: WeightRows, model: Model) -> Passing | None:
    """What the activation behind a layer cuts off; None where there is none that does.

    Args:
        layer: The layer.
        rows: How its weight is laid out.
        model: The float model.
    """
    nodes, held = node_by_name(model), Weights(model)
    result = nodes[layer.last].output[0]
    readers = [node for node in model.proto.graph.node if result in reads(node)]
    if len(readers) != 1 or result in {value.name for value in model.proto.graph.output}:
        return None
    limits = _limits(readers[0], held)
    if limits is None:
        return None
    node = nodes[layer.node]
    is_gemm = node.op_type == "Gemm"
    weight = rows.rows(held[node.input[1]].astype(np.float32)) * _factor(node, "alpha", is_gemm)
    bias = np.zeros(weight.shape[:2], np.float32)
    if layer.bias is not None:
        values = held[nodes[layer.bias.node].input[layer.bias.input]].astype(np.float32)
        bias = np.broadcast_to(values.ravel(), (bias.size,)).reshape(bias.shape) * _factor(node, "beta", is_gemm)
    return Passing(weight, bias, *limits)


def _factor(node: Any, name: str, is_gemm: bool) -> np.float32:
    return np.float32(attribute(node, name, 1.0) if is_gemm else 1.0)


def _limits(node: Any, held: Weights) -> tuple[float, float] | None:
    """Between which values an activation hands on what it is given; None when it cuts off nothing, or bends it."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    names = [*node.input[1:3], "", ""][:2]
    if node.op_type != "Clip" or any(name and name not in held for name in names):
        return None
    low, high = (
        float(held[name].reshape(-1)[0]) if name else float(attribute(node, key, default))
        for name, key, default in zip(names, ("min", "max"), (-math.inf, math.inf), strict=True)
    )
    return low, high
