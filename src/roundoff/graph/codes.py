"""Codes of large constants, computed block by block."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from roundoff.core.quantization import code_dtype, quantize
from roundoff.core.quantizer import QuantParams, QuantSpec
from roundoff.core.tensors import Array

__all__ = ["codes_of"]

_Block: TypeAlias = tuple[tuple[slice, ...], QuantParams]

_BLOCK_ELEMENTS = 1 << 16
"""Values of one block: with all that is computed between, they stay in the cache."""


def codes_of(values: Array, params: QuantParams, spec: QuantSpec) -> Array:
    """Like `roundoff.core.quantization.quantize` in float32, but nothing else is as large as the codes.

    Args:
        values: Floats of any type; may be mapped from a file.
        params: Of shape [], or [C] with C the size of ``spec.axis``.
        spec: How values become codes.
    """
    if values.size <= _BLOCK_ELEMENTS or values.ndim == 0:
        return quantize(values.astype(np.float32, copy=False), params, spec)
    codes = np.empty(values.shape, code_dtype(spec))
    for index, part in _blocks(values, params, spec):
        codes[index] = quantize(values[index].astype(np.float32, copy=False), part, spec)
    return codes


def _blocks(
    values: Array, params: QuantParams, spec: QuantSpec
) -> Iterator[tuple[tuple[slice, ...], QuantParams]]:
    """Parts of an array, each with its parameters: cut along the first axes until they are small."""
    sliced = None if spec.axis is None or params.scale.ndim == 0 else spec.axis % values.ndim
    sizes = [1] * values.ndim
    room = _BLOCK_ELEMENTS
    for axis in reversed(range(values.ndim)):
        sizes[axis] = min(values.shape[axis], room)
        room = max(1, room // max(1, values.shape[axis]))
    counts = [-(-length // size) for length, size in zip(values.shape, sizes, strict=True)]
    for places in np.ndindex(*counts):
        index = tuple(slice(at * size, (at + 1) * size) for at, size in zip(places, sizes, strict=True))
        if sliced is None:
            yield index, params
        else:
            cut = index[sliced]
            yield index, replace(params, scale=params.scale[cut], zero_point=params.zero_point[cut])
