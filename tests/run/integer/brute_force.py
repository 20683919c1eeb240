"""Integer arithmetic by definition: loops over Python's integers and fractions, no float and no cleverness."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

import numpy as np

from roundoff.core.quantizers import QuantParams, QuantSpec, Rounding
from roundoff.core.tensors import Array


def rounded(value: Fraction, rounding: Rounding) -> int:
    """Round by definition."""
    if rounding == "floor":
        return floor(value)
    if rounding == "half_even":
        return round(value)
    if rounding == "half_up" or value > 0:
        return floor(value + Fraction(1, 2))
    return -floor(-value + Fraction(1, 2))


def requantized(
    total: Array, scale: Any, params: QuantParams, spec: QuantSpec, rounding: Rounding = "half_even"
) -> Array:
    """Codes of ``total * scale``, computed in fractions; `scale` is a number or an array that broadcasts."""
    codes = np.empty(total.shape, dtype=np.int64)
    scales: Any = np.broadcast_to(np.asarray(scale, dtype=object), total.shape)
    for place in np.ndindex(total.shape):
        slice_ = place[spec.axis] if spec.axis is not None else 0
        step, zero = Fraction(float(params.scale.reshape(-1)[slice_])), int(params.zero_point.reshape(-1)[slice_])
        number: Any = total[place]
        code = rounded(Fraction(number) * Fraction(scales[place]) / step, rounding) + zero
        codes[place] = min(max(code, spec.code_min), spec.code_max)
    return codes


def conv(
    values: Array,
    weights: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    groups: int,
) -> Array:
    """Sums of products of Conv; integers [N, C, ...] without zero points."""
    samples, channels, *size = values.shape
    count, inner, *kernel = weights.shape
    rank = len(size)
    out = [
        (size[axis] + pads[axis] + pads[axis + rank] - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis]
        + 1
        for axis in range(rank)
    ]
    total = np.zeros((samples, count, *out), dtype=object)
    for sample, channel in product(range(samples), range(count)):
        first = channel // (count // groups) * inner
        for place in np.ndindex(*out):
            for source, offset in product(range(inner), np.ndindex(*kernel)):
                at = tuple(
                    place[axis] * strides[axis] + offset[axis] * dilations[axis] - pads[axis]
                    for axis in range(rank)
                )
                if all(0 <= at[axis] < size[axis] for axis in range(rank)):
                    value = int(values[(sample, first + source, *at)])
                    total[(sample, channel, *place)] += value * int(weights[(channel, source, *offset)])
    assert channels == inner * groups
    return total


def conv_transpose(
    values: Array,
    weights: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    *,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    """Sums of products of ConvTranspose: every input element adds a window of the kernel to the output."""
    samples, channels, *size = values.shape
    _, per_group, *kernel = weights.shape
    rank = len(size)
    out = [
        (size[axis] - 1) * strides[axis]
        + (kernel[axis] - 1) * dilations[axis]
        + 1
        + output_padding[axis]
        - pads[axis]
        - pads[axis + rank]
        for axis in range(rank)
    ]
    total = np.zeros((samples, per_group * groups, *out), dtype=object)
    for sample, channel in product(range(samples), range(channels)):
        group = channel // (channels // groups)
        for place, offset, index in product(np.ndindex(*size), np.ndindex(*kernel), range(per_group)):
            at = tuple(
                place[axis] * strides[axis] + offset[axis] * dilations[axis] - pads[axis] for axis in range(rank)
            )
            if all(0 <= at[axis] < out[axis] for axis in range(rank)):
                term = int(values[(sample, channel, *place)]) * int(weights[(channel, index, *offset)])
                total[(sample, group * per_group + index, *at)] += term
    return total


def matmul(left: Array, right: Array) -> Array:
    """Matrix product over Python's integers, with numpy's rules for shapes."""
    return np.asarray(np.matmul(left.astype(object), right.astype(object)))


def window_means(
    values: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], *, count_padding: bool
) -> Array:
    """Means of pooling windows as fractions; padding counts as zeros, or not at all."""
    samples, channels, *size = values.shape
    rank = len(size)
    out = [
        (size[axis] + pads[axis] + pads[axis + rank] - kernel[axis]) // strides[axis] + 1 for axis in range(rank)
    ]
    means = np.empty((samples, channels, *out), dtype=object)
    for sample, channel, *place in np.ndindex(samples, channels, *out):
        total, count = 0, 0
        for offset in np.ndindex(*kernel):
            at = tuple(place[axis] * strides[axis] + offset[axis] - pads[axis] for axis in range(rank))
            inside = all(0 <= at[axis] < size[axis] for axis in range(rank))
            total += int(values[(sample, channel, *at)]) if inside else 0
            count += inside or count_padding
        means[(sample, channel, *place)] = Fraction(total, max(count, 1))
    return means


def scaled_twice(value: int, factor: float) -> int:
    """A number times a real factor with a 31-bit multiplier, rounded to the upper half and again by the shift."""
    multiplier, shift = _multiplier(factor)
    high = floor(Fraction(value * 2 ** max(shift, 0) * multiplier, 2**31) + Fraction(1, 2))
    return rounded(Fraction(high, 2 ** max(-shift, 0)), "half_away")


def _multiplier(factor: float) -> tuple[int, int]:
    exact, shift = Fraction(factor), 0
    while exact >= 1:
        exact, shift = exact / 2, shift + 1
    while exact and exact < Fraction(1, 2):
        exact, shift = exact * 2, shift - 1
    multiplier = rounded(exact * 2**31, "half_away")
    return (multiplier // 2, shift + 1) if multiplier == 2**31 else (multiplier, shift)


def fixed_sum(left: int, right: int, scales: tuple[float, float, float]) -> int:
    """Two 8-bit codes without zero points added the way fixed-point kernels do, in steps of the result."""
    first, second, result = scales
    common = 2 * max(first, second)
    parts = scaled_twice(left << 20, first / common) + scaled_twice(right << 20, second / common)
    return scaled_twice(parts, common / (2**20 * result))
