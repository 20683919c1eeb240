"""Other quantizers in the place of one: the same bits over another range, scales of slices, more bits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.quantization import parameters_from_range, representable_range
from roundoff.core.quantizer import Quantizer, QuantParams
from roundoff.core.tensors import Array

__all__ = ["WIDE_BITS", "per_slice", "reach", "rounded_again", "with_bits", "with_range", "with_slice_ranges"]

WIDE_BITS = 16
"""So wide that rounding is no part of what is lost."""


def reach(quantizer: Quantizer) -> tuple[float, float]:
    """Smallest and largest value that a quantizer can represent, in any slice."""
    low, high = representable_range(quantizer.params, quantizer.spec)
    return float(low.min()), float(high.max())


def with_range(quantizer: Quantizer, low: float, high: float) -> Quantizer:
    """The same bits over another range, with one scale for the whole tensor."""
    spec = quantizer.spec.along(None)
    return replace(quantizer, spec=spec, params=parameters_from_range(low, high, spec), codes=None)


def with_slice_ranges(quantizer: Quantizer, axis: int, low: Array, high: Array) -> Quantizer:
    """The same bits with a range for each slice along an axis.

    Args:
        quantizer: The quantizer.
        axis: The axis.
        low: Smallest value of each slice, of shape [C].
        high: Largest value of each.
    """
    spec = quantizer.spec.along(axis)
    params = parameters_from_range(low, high, spec)
    empty = (np.minimum(low, 0) == 0) & (np.maximum(high, 0) == 0)
    if empty.any() and not empty.all():
        # A slice of zeros has the scale of the others; the default of 1 would lose biases that are told in it.
        params = QuantParams(np.where(empty, params.scale[~empty].max(), params.scale), params.zero_point)
    return replace(quantizer, spec=spec, params=params, codes=None)


def per_slice(
    quantizer: Quantizer, axis: int, sizes: Sequence[int], ranges: Sequence[tuple[float, float]]
) -> Quantizer:
    """The same bits with a range for each of several slices of different sizes."""
    low = np.repeat([low for low, _ in ranges], sizes)
    high = np.repeat([high for _, high in ranges], sizes)
    return with_slice_ranges(quantizer, axis, low, high)


def rounded_again(quantizer: Quantizer) -> Quantizer:
    """The same scale with codes that rounding gives, half to even."""
    return replace(quantizer, codes=None, spec=replace(quantizer.spec, rounding="half_even"))


def with_bits(quantizer: Quantizer, bits: int) -> Quantizer:
    """Codes of other width over the same range; each slice keeps its own."""
    low, high = representable_range(quantizer.params, quantizer.spec)
    spec = replace(quantizer.spec, bits=bits, narrow=False)
    return replace(quantizer, spec=spec, params=parameters_from_range(low, high, spec), codes=None)
