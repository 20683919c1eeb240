"""Weights that a quantization tool rounded and stored as floats: which codes they are, and of which scale."""

from typing import NamedTuple

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.graph.caffe.net import CaffeLayer, Net

__all__ = ["StoredCodes", "find_codes", "weight_steps"]

_LIMITS = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}


class StoredCodes(NamedTuple):
    """Codes, and the scale by which they are exactly the stored values."""

    values: Array
    scale: Array


def weight_steps(layer: CaffeLayer, net: Net) -> tuple[Array, Array] | None:
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


def find_codes(values: Array, steps: Array, *, axis: int, dtype: str = "int8") -> StoredCodes | None:
    """The codes of stored values; None unless they are the values exactly.

    Args:
        values: Floats.
        steps: One step, or one for each slice along the axis, as well as they are known.
        axis: Of the slices.
        dtype: Of the codes.
    """
    if steps.size not in (1, values.shape[axis]) or not values.size or not np.isfinite(values).all():
        return None
    moved = np.moveaxis(values, axis, 0)
    rows = moved.reshape(len(steps), -1)
    with np.errstate(over="ignore"):
        whole = np.rint(rows / steps[:, None])
    low, high = _LIMITS[dtype]
    if whole.min() < low or whole.max() > high:
        return None
    scale = _exact_scale(rows, whole, steps)
    if scale is None:
        return None
    codes = np.moveaxis(whole.astype(dtype).reshape(moved.shape), 0, axis)
    return StoredCodes(np.ascontiguousarray(codes), scale if steps.size > 1 else scale.reshape(()))


def _exact_scale(rows: Array, whole: Array, steps: Array) -> Array | None:
    """The scale of each row by which its codes are exactly its values; the steps may be off in their last bits."""
    largest = np.abs(whole).argmax(axis=1)[:, None]
    top, code = (np.take_along_axis(each, largest, axis=1)[:, 0] for each in (rows, whole))
    ratio = np.where(code == 0, steps, top / np.where(code == 0, 1, code)).astype(np.float32)
    tries = [steps, ratio]
    tries += [np.nextafter(each, np.float32(end)) for each in (steps, ratio) for end in (0, np.inf)]
    scale = np.zeros_like(steps)
    left = np.ones(len(steps), bool)
    for each in tries:
        again = (whole[left] * each[left, None]).astype(np.float32)
        fits = (again == rows[left]).all(axis=1)
        found = np.flatnonzero(left)[fits]
        scale[found] = each[found]
        left[found] = False
        if not left.any():
            return scale
    return None
