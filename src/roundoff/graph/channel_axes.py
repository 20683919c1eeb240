"""Where the channels of each tensor are, by what computes it.

Convolutions have them second, products of matrices last; what works element by element keeps them where its first
input has them, and a transposition moves them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value
from roundoff.measure.pairs import channel_axis_of

__all__ = [
    "channel_axes",
    "channel_moments",
    "input_channel_axis",
    "weight_axis",
]


_SECOND = frozenset(
    {
        "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
        "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "SpaceToDepth",
    }
)  # fmt: skip
_LAST = frozenset(
    {
        "Attention",
        "FusedMatMul",
        "Gemm",
        "LayerNormalization",
        "MatMul",
        "RMSNormalization",
        "SkipLayerNormalization",
    }
)
# What changes the meaning of axes, so that only the shape can tell.
_RESHAPING = frozenset({"Expand", "Flatten", "Gather", "Reshape", "Squeeze", "Unsqueeze"})
# An image has so many channels.
_IMAGE_CHANNELS = (1, 3, 4)


def channel_axes(model: Model, values: Iterable[Value]) -> dict[str, int]:
    """The channel axis of every tensor that has one.

    Args:
        model: The model.
        values: Its tensors with their shapes.
    """
    shapes = {value.name: value.shape for value in values if value.shape is not None and len(value.shape) > 1}
    found: dict[str, int] = {}
    for value in model.proto.graph.input:
        if value.name in shapes:
            found[value.name] = input_channel_axis(shapes[value.name])
    for node in model.proto.graph.node:
        for name in node.output:
            if name in shapes:
                found[name] = _of_output(node, shapes[name], shapes, found)
    return found


def input_channel_axis(shape: tuple[int, ...]) -> int:
    """The channel axis of an input of the model, by its shape."""
    if len(shape) == 4 and shape[1] not in _IMAGE_CHANNELS and shape[-1] in _IMAGE_CHANNELS:
        return 3
    return channel_axis_of(shape) or 0


def _of_output(
    node: Any, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]], found: Mapping[str, int]
) -> int:
    if node.op_type in _SECOND:
        return 1
    if node.op_type in _LAST:
        return len(shape) - 1
    # Of several inputs the first of the same rank: the others may be spread over it.
    sources = [name for name in node.input if name in found and len(shapes[name]) == len(shape)]
    if node.op_type in _RESHAPING or not sources:
        return channel_axis_of(shape) or 0
    axis = found[sources[0]]
    if node.op_type != "Transpose":
        return axis
    order = next(
        (list(each.ints) for each in node.attribute if each.name == "perm"), list(range(len(shape)))[::-1]
    )
    return order.index(axis)


def weight_axis(op_type: str, rank: int, *, transposed: bool = False) -> int:
    """The axis of a constant that has one slice for each channel of the result.

    Args:
        op_type: Operation of the node that reads it.
        rank: Its number of axes, at least 1.
        transposed: Whether a Gemm takes it transposed.
    """
    if op_type in ("Gemm", "MatMul"):
        return 0 if transposed or rank == 1 else rank - 1
    return 1 if op_type == "ConvTranspose" and rank > 1 else 0


# Mean and variance of each channel of a tensor, over several arrays of it.


def channel_moments(arrays: Sequence[Array], axis: int) -> tuple[Array, Array]:
    """Mean and variance of each channel; every array counts the same.

    Args:
        arrays: At least one; all with the same channels.
        axis: Where the channels are.
    """
    parts = []
    for values in arrays:
        rows = np.moveaxis(values.astype(np.float64), axis, 0).reshape(values.shape[axis], -1)
        parts.append(np.stack([rows.mean(axis=1), np.square(rows).mean(axis=1)]))
    mean, squares = np.mean(parts, axis=0)
    return mean, np.maximum(squares - np.square(mean), 0.0)
