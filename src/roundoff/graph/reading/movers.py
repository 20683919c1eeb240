"""Operators that work on codes as they would on the values: they move or choose elements, and compute nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.quantizer import QuantSpec
from roundoff.graph.element_types import by_number
from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.points import MICROSOFT, Point

__all__ = ["data_inputs", "is_code_clip", "moved_constants", "only_looks", "written_codes"]

_FIRST = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Slice", "Split", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "ReduceMax", "ReduceMin",
    "GlobalMaxPool", "TopK", "Pad", "Cast", "Resize", "Upsample", "Relu", "Clip", "Dropout", "ReverseSequence",
})  # fmt: skip
_ALL = frozenset({"Concat", "Max", "Min"})
_FROM_SECOND = frozenset({"Where"})
# They ask for the order or the number of elements; both are the same for codes and values.
_LOOK = frozenset({"ArgMax", "ArgMin", "Shape", "Size"})
# With one scale per slice only these leave every element in its slice.
_KEEP_SLICES = frozenset({"Identity", "Cast", "Dropout"})
_DOMAINS = ("", "ai.onnx")


def data_inputs(node: Any) -> tuple[int, ...]:
    """Which inputs of a node carry the elements that it moves; none when it computes."""
    if node.domain not in _DOMAINS and not (node.domain == MICROSOFT and node.op_type == "Pad"):
        return ()
    if node.op_type in _FIRST:
        return (0,)
    if node.op_type in _ALL:
        return tuple(range(len(node.input)))
    return (1, 2) if node.op_type in _FROM_SECOND else ()


def only_looks(node: Any) -> bool:
    """Whether a node only asks for the order or the number of elements."""
    return node.op_type in _LOOK and node.domain in _DOMAINS


def written_codes(draft: Draft, node: Any, points: Sequence[Point | None]) -> Point | None:
    """The meaning of the codes that a node writes when its data inputs have these meanings.

    Returns:
        None when the node computes with codes in a way that has no counterpart for values.
    """
    first = points[0] if points else None
    if first is None or not all(point is not None and first.same(point) for point in points):
        return None
    if first.params.scale.ndim and node.op_type not in _KEEP_SLICES:
        return None
    return first if _is_faithful(draft, node, first) else None


def _is_faithful(draft: Draft, node: Any, point: Point) -> bool:
    """Whether a node that may move codes does no more than that."""
    if node.op_type == "Cast":
        element = by_number(attribute(node, "to", 0))
        form = (point.spec.bits, point.spec.signed)
        return element is not None and (element.bits, element.dtype.startswith("int")) == form
    if node.op_type in ("Resize", "Upsample"):
        return str(attribute(node, "mode", "nearest")) == "nearest"
    if node.op_type == "Relu":
        return bool(np.all(point.params.zero_point == 0))
    limits = {"Pad": slice(2, 3), "Clip": slice(1, 3)}.get(node.op_type, slice(0, 0))
    return all(name in draft.constants for name in node.input[limits] if name)


def is_code_clip(draft: Draft, node: Any, spec: QuantSpec) -> tuple[int, int] | None:
    """The smallest and largest code that a Clip of codes lets through; None for any other node."""
    if node.op_type != "Clip" or node.domain not in _DOMAINS:
        return None
    names = [*node.input[1:3], "", ""][:2]
    if any(name and name not in draft.constants for name in names):
        return None
    limits = []
    for name, key, default in zip(names, ("min", "max"), (spec.code_min, spec.code_max), strict=True):
        held = draft.constants.value(name).ravel() if name else np.asarray([attribute(node, key, default)])
        if held.size != 1:
            return None
        limits.append(int(held[0]))
    return max(limits[0], spec.code_min), min(limits[1], spec.code_max)


def moved_constants(draft: Draft, node: Any, point: Point) -> dict[int, float]:
    """Constant inputs of a node that are codes, and what they are as values, by their positions."""
    scale, zero_point = float(point.params.scale.ravel()[0]), int(point.params.zero_point.ravel()[0])
    if node.op_type == "Pad":
        if str(attribute(node, "mode", "constant")) != "constant":
            return {}
        name = node.input[2] if len(node.input) > 2 else ""
        # Without a value codes are padded with the code 0, whatever that means.
        code = int(draft.constants.value(name).ravel()[0]) if name else 0
        return {2: (code - zero_point) * scale}
    if node.op_type == "Clip":
        limits = is_code_clip(draft, node, point.spec)
        return {} if limits is None else {at + 1: (code - zero_point) * scale for at, code in enumerate(limits)}
    return {}
