"""Operations in half precision all the way, as far as it matters where their sums and squares end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["in_half", "is_emulated"]

_EPSILON = 1e-5


def is_emulated(op_type: str) -> bool:
    """Whether what happens inside of an operation can overflow half precision although its result does not."""
    return op_type in _WAYS


def in_half(op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Array]) -> Array | None:
    """The result with every step in half precision, float32; None where the operation is not known.

    Args:
        op_type: The operation.
        attributes: Its attributes by name.
        inputs: Its inputs.
    """
    way = _WAYS.get(op_type)
    if way is None or not inputs:
        return None
    with np.errstate(all="ignore"):
        result = way([each.astype(np.float16) for each in inputs], attributes)
    return np.asarray(result, dtype=np.float32)


def _sum(values: Array, axes: tuple[int, ...]) -> Array:
    """A sum whose result does not fit becomes infinite; how it is added up does not matter for that."""
    return np.asarray(values.astype(np.float32).sum(axis=axes, keepdims=True).astype(np.float16))


def _layer_norm(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    x = inputs[0]
    first = int(attributes.get("axis", -1)) % x.ndim
    axes = tuple(range(first, x.ndim))
    count = np.float16(np.prod([x.shape[axis] for axis in axes]))
    centred = x - _sum(x, axes) / count
    # The square of what is above 255 is infinite.
    variance = _sum(centred * centred, axes) / count
    result = centred / np.sqrt(variance + np.float16(max(float(attributes.get("epsilon", _EPSILON)), 6e-8)))
    for scale, apply in zip(inputs[1:3], (np.multiply, np.add), strict=False):
        result = apply(result, scale)
    return np.asarray(result)


def _softmax(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    """Without the largest value taken away first."""
    raised = np.exp(inputs[0])
    axis = int(attributes.get("axis", -1)) % inputs[0].ndim
    return np.asarray(raised / _sum(raised, (axis,)))


def _mean_of_pictures(inputs: Sequence[Array], _attributes: Mapping[str, Any]) -> Array:
    x = inputs[0]
    axes = tuple(range(2, x.ndim))
    return np.asarray(_sum(x, axes) / np.float16(np.prod([x.shape[axis] for axis in axes])))


_WAYS = {
    "GlobalAveragePool": _mean_of_pictures,
    "LayerNormalization": _layer_norm,
    "Softmax": _softmax,
}
