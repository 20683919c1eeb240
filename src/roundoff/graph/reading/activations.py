"""Putting back activations that a tool removed because the limits of the codes compute them anyway.

Codes whose smallest one stands for zero clip negative values, as Relu does; some tools drop the Relu then. Without
quantization nothing clips any more, so the float model must have it. Where the tensor was never negative, a Relu
changes nothing.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.extraction import Extraction
from roundoff.graph.reading.points import DEQUANTIZE, Point, is_operator
from roundoff.graph.reading.stages import Stage
from roundoff.graph.wiring import reads

__all__ = ["restore_activations"]

# What an activation commonly follows.
_SIGNED = frozenset({
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "BatchNormalization", "InstanceNormalization",
    "LayerNormalization",
})  # fmt: skip
_NEVER_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs", "Exp", "Sqrt", "Softplus"})
_KEEPS_SIGN = frozenset({
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze",
    "Transpose", "Identity", "Concat", "Add", "Mul", "MatMul", "Slice", "Split", "Gather", "Expand", "Tile", "Pad",
    "DepthToSpace", "SpaceToDepth", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "Dropout", "Div", "Max",
    "Resize", "Upsample", "Cast", "Sum", "Mean",
})  # fmt: skip
_SMALL = 4096
"""Larger constants are not looked through for negative values; those that decide the sign of a sum are biases."""
_SIX = 6.0
_CLIP_TAKES_INPUTS = 11


def restore_activations(extraction: Extraction) -> None:
    """Add the Relu, or the Clip from 0 to 6, that quantizers stand for; in models that kept it nothing changes."""
    if _keeps_activations(extraction.draft):
        return
    stages: dict[str, list[Stage]] = defaultdict(list)
    for stage in extraction.stages:
        stages[stage.tensor].append(stage)
    edges = _edges(extraction)
    positive: set[str] = set()
    result = []
    for node in extraction.nodes:
        result.append(node)
        if _is_positive(extraction.draft, node, positive):
            positive.update(node.output)
            continue
        tensor = node.output[0] if node.output else ""
        own = stages.get(tensor, [])
        if not own or not all(_starts_at_zero(stage.point) for stage in own):
            continue
        positive.add(tensor)
        seen = {(each.node, each.input) for stage in own for each in stage.consumers}
        if node.op_type in _SIGNED and seen >= edges[tensor]:
            result.append(_activation(extraction, node, own[0]))
    extraction.nodes = result


def _keeps_activations(draft: Draft) -> bool:
    """Whether the model was written by `roundoff.graph.qdq`, which removes nothing."""
    ending = f"_{DEQUANTIZE}"
    return any(
        node.name.endswith(ending) and node.output[0] == f"{node.name.removesuffix(ending)}_dequantized"
        for node in draft.model.proto.graph.node
        if is_operator(node, DEQUANTIZE)
    )


def _edges(extraction: Extraction) -> dict[str, set[tuple[str, int]]]:
    """Who reads each tensor of the float graph; what leaves the network in float is read by nobody of a name."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for node in extraction.nodes:
        for at, name in enumerate(node.input):
            found[name].add((node.name, at))
        for name in reads(node):
            if name not in node.input:
                found[name].add((node.name, -1))
    leaving = {stage.tensor for stage in extraction.stages if stage.output}
    for output in extraction.draft.outputs:
        tensor = extraction.leaving.get(output, output)
        if tensor not in leaving:
            found[tensor].add(("", -1))
    return found


def _starts_at_zero(point: Point) -> bool:
    return bool(np.all(point.params.zero_point == point.spec.code_min))


def _is_positive(draft: Draft, node: Any, positive: set[str]) -> bool:
    """Whether what a node computes can be seen never to be negative."""
    if node.op_type in _NEVER_NEGATIVE:
        return True
    if node.op_type == "Clip":
        low = node.input[1] if len(node.input) > 1 else ""
        bound = draft.constants.value(low) if low in draft.constants else attribute(node, "min", -1.0)
        return bool(np.all(np.asarray(bound) >= 0))
    if node.op_type not in _KEEPS_SIGN:
        return False
    data = (
        node.input if node.op_type in ("Concat", "Add", "Mul", "MatMul", "Div", "Max", "Sum") else node.input[:1]
    )
    return all(name in positive or _positive_constant(draft, name) for name in data if name)


def _positive_constant(draft: Draft, name: str) -> bool:
    if name not in draft.constants or draft.constants.size(name) > _SMALL:
        return False
    values = draft.constants.value(name)
    return values.dtype.kind in "fiub" and bool(np.all(values >= 0))


def _activation(extraction: Extraction, node: Any, stage: Stage) -> Any:
    """A node between another and the tensor it wrote so far."""
    from onnx.helper import make_node

    draft, tensor = extraction.draft, node.output[0]
    node.output[0] = draft.free(f"{tensor}_before_activation")
    spec, params = stage.point.spec, stage.point.params
    largest = (spec.code_max - int(params.zero_point.ravel()[0])) * float(params.scale.ravel()[0])
    six = params.scale.ndim == 0 and abs(largest - _SIX) < _SIX * 1e-5
    op_type = "Clip" if six else "Relu"
    name = draft.free_node(f"{node.name}_{op_type}")
    draft.odd("restored", node.name, f"{op_type} put back behind {node.name!r}: codes of {tensor!r} start at zero")
    if not six:
        return make_node("Relu", [node.output[0]], [tensor], name=name)
    if draft.opset < _CLIP_TAKES_INPUTS:
        return make_node("Clip", [node.output[0]], [tensor], name=name, min=0.0, max=_SIX)
    bounds = [
        draft.add_constant(np.asarray(bound, dtype=stage.point.values), f"{name}_{key}")
        for key, bound in (("min", 0.0), ("max", _SIX))
    ]
    return make_node("Clip", [node.output[0], *bounds], [tensor], name=name)
