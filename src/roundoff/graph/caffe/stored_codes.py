"""Weights that a quantization tool rounded and stored as floats: which codes they are, and of which scale."""

from typing import NamedTuple

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.graph.caffe.net import Layer, Net

__all__ = ["Codes", "find_codes", "weight_steps"]

_LIMITS = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}


class Codes(NamedTuple):
    """Codes, and the scale by which they are exactly the stored values."""

    values: Array
    scale: Array


def weight_steps(layer: Layer, net: Net) -> tuple[Array, Array] | None:
    """The steps of a layer's weights and of its bias, as the Quant and DeQuant layers around it tell them.

    Both are of one value, or of one for each output; None when such layers do not stand around it.
    """
    place = next(index for index, other in enumerate(net.layers) if other is layer)
    before = next((other for other in reversed(net.layers[:place]) if layer.bottoms[0] in other.tops), None)
    behind = next((other for other in net.layers[place + 1 :] if layer.tops[0] in other.bottoms), None)
    if before is None or before.type != "Quant" or behind is None or behind.type != "DeQuant" or not behind.blobs:
        return None
    stored = (before.message.message("quant_param") or TextMessage()).get("scale", 1.0)
    factor = behind.blobs[0].ravel()
    if factor.dtype != np.float32 or not isinstance(stored, int | float) or not (factor > 0).all():
        return None
    # The Quant layer holds the reciprocal of the input's step, the DeQuant layer the product of both steps.
    return np.asarray(factor * np.float32(stored), np.float32), factor


def find_codes(values: Array, steps: Array, *, axis: int, dtype: str = "int8") -> Codes | None:
    """The codes of stored values; None unless they are the values exactly.

    Args:
        values: Floats.
        steps: One step, or one for each slice along the axis, as well as they are known.
        axis: Of the slices.
        dtype: Of the codes.
    """
    if steps.size not in (1, values.shape[axis]) or not values.size:
        return None
    rows = np.moveaxis(values, axis, 0).reshape(len(steps), -1) if steps.size > 1 else values.reshape(1, -1)
    found = [_of_row(row, np.float32(step), _LIMITS[dtype]) for row, step in zip(rows, steps, strict=True)]
    if any(row is None for row in found):
        return None
    codes = np.stack([row[0] for row in found if row is not None]).astype(dtype)
    scale = np.array([row[1] for row in found if row is not None], np.float32)
    if steps.size == 1:
        return Codes(codes.reshape(values.shape), scale.reshape(()))
    moved = np.moveaxis(values, axis, 0).shape
    return Codes(np.ascontiguousarray(np.moveaxis(codes.reshape(moved), 0, axis)), scale)


def _of_row(row: Array, step: np.float32, limits: tuple[int, int]) -> tuple[Array, np.float32] | None:
    """Codes of values with one scale, which may be off in its last bits."""
    whole = np.rint(row / step)
    if whole.min() < limits[0] or whole.max() > limits[1]:
        return None
    largest = int(np.abs(whole).argmax())
    exact = np.float32(row[largest] / whole[largest]) if whole[largest] else step
    candidates = [step, exact]
    for each in (step, exact):
        candidates += [np.nextafter(each, np.float32(0)), np.nextafter(each, np.float32(np.inf))]
    for scale in candidates:
        if np.array_equal((whole * scale).astype(np.float32), row):
            return whole, scale
    return None
