"""Exact convolutions of integers in float arrays."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from roundoff.core.tensors import Array
from roundoff.runtime.integer.exact_product import BlockPlan, plan_for_weights, product
from roundoff.runtime.integer.geometry import Geometry, pad_spatial

__all__ = ["Kernel", "convolve", "convolve_transposed", "prepare_kernel", "prepare_transposed_kernel"]

# Unrolled windows are built in parts of at most so many elements, which stay in the caches of most machines.
_UNROLLED_ELEMENTS = 1 << 21


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Weights ready for exact products.

    Attributes:
        matrices: [groups, rows, inner]: for Conv output channels by inputs of a window, for ConvTranspose
            outputs of a window by input channels.
        channels: Output channels.
        size: Spatial size of the window.
        plan: How products are kept exact.
    """

    matrices: Array
    channels: int
    size: tuple[int, ...]
    plan: BlockPlan

    @property
    def depthwise(self) -> bool:
        """Whether each output channel sees one input channel only."""
        groups, _, inner = self.matrices.shape
        return bool(groups > 1 and inner == prod(self.size))


def prepare_kernel(weights: Array, groups: int, largest: int) -> Kernel | None:
    """Weights of Conv, whole numbers [OC, C / groups, ...], for inputs up to `largest` in magnitude."""
    plan = plan_for_weights(weights.reshape(weights.shape[0], -1), largest)
    if plan is None:
        return None
    matrices = weights.reshape(groups, weights.shape[0] // groups, -1).astype(plan.dtype, copy=False)
    return Kernel(matrices, weights.shape[0], weights.shape[2:], plan)


def prepare_transposed_kernel(weights: Array, groups: int, largest: int) -> Kernel | None:
    """Weights of ConvTranspose, whole numbers [C, OC / groups, ...]."""
    channels, per_group, *size = weights.shape
    grouped = weights.reshape(groups, channels // groups, per_group, -1)
    # An output is a sum over input channels and over the windows that overlap there.
    plan = plan_for_weights(grouped.transpose(0, 2, 1, 3).reshape(groups * per_group, -1), largest)
    if plan is None or plan.sum_dtype is not np.float64:
        return None
    inner = channels // groups
    # The sum over windows is not cut into blocks, so it must be exact as a whole.
    dtype = plan.dtype if len(plan.blocks) == 1 else np.float64
    matrices = grouped.transpose(0, 2, 3, 1).reshape(groups, -1, inner).astype(dtype, copy=False)
    whole = BlockPlan(dtype, (slice(0, inner),), plan.largest)
    return Kernel(matrices, per_group * groups, tuple(size), whole)


def convolve(values: Array, kernel: Kernel, geometry: Geometry) -> Array:
    """Sums of products [N, OC, ...] of whole numbers [N, C, ...]."""
    padded = pad_spatial(values.astype(kernel.plan.dtype, copy=False), geometry.begins, geometry.ends)
    if kernel.depthwise and len(kernel.plan.blocks) == 1:
        return _depthwise(padded, kernel, geometry)
    samples, groups = values.shape[0], kernel.matrices.shape[0]
    if geometry.pointwise:
        columns = padded.reshape(samples, groups, -1, geometry.positions)
        return product(kernel.matrices, columns, kernel.plan).reshape(samples, kernel.channels, *geometry.out)
    windows = _windows(padded, geometry)
    result = np.empty((samples, kernel.channels, *geometry.out), kernel.plan.sum_dtype)
    per_row = padded.shape[0] * padded.shape[1] * prod(kernel.size) * prod(geometry.out[1:])
    rows = max(1, _UNROLLED_ELEMENTS // max(1, per_row))
    for start in range(0, geometry.out[0], rows):
        part = slice(start, start + rows)
        total = product(kernel.matrices, _unrolled(windows[:, :, part], groups), kernel.plan)
        result[:, :, part] = total.reshape(samples, kernel.channels, -1, *geometry.out[1:])
    return result


def _windows(padded: Array, geometry: Geometry) -> Array:
    """A view [N, C, *out, *kernel] of every element that each window sees."""
    sample, channel, *steps = padded.strides
    return as_strided(
        padded,
        shape=(*padded.shape[:2], *geometry.out, *geometry.kernel),
        strides=(
            sample,
            channel,
            *(step * stride for step, stride in zip(steps, geometry.strides, strict=True)),
            *(step * dilation for step, dilation in zip(steps, geometry.dilations, strict=True)),
        ),
        writeable=False,
    )


def _unrolled(windows: Array, groups: int) -> Array:
    """Columns [N, groups, channels of a group * kernel, positions]."""
    samples, channels, *rest = windows.shape
    rank = len(rest) // 2
    places, offsets = range(2, 2 + rank), range(2 + rank, 2 + 2 * rank)
    return windows.transpose(0, 1, *offsets, *places).reshape(
        samples, groups, channels // groups * prod(rest[rank:]), prod(rest[:rank])
    )


def _depthwise(padded: Array, kernel: Kernel, geometry: Geometry) -> Array:
    samples, channels = padded.shape[:2]
    multiples = kernel.channels // channels
    rank = len(geometry.out)
    weights = kernel.matrices.reshape(channels, multiples, *kernel.size)
    total = np.zeros((samples, channels, multiples, *geometry.out), dtype=padded.dtype)
    for offset, places in geometry.offsets():
        at: tuple[Any, ...] = (..., *offset)
        weight = weights[at].reshape(channels, multiples, *[1] * rank)
        total += padded[:, :, None, *places] * weight
    return total.reshape(samples, kernel.channels, *geometry.out).astype(np.float64, copy=False)


def convolve_transposed(values: Array, kernel: Kernel, geometry: Geometry) -> Array:
    """Sums of products [N, OC, ...] of ConvTranspose of whole numbers [N, C, ...]."""
    samples, _, *spatial = values.shape
    groups = kernel.matrices.shape[0]
    columns = values.astype(kernel.plan.dtype, copy=False).reshape(samples, groups, -1, prod(spatial))
    spread = product(kernel.matrices, columns, kernel.plan).reshape(
        samples, kernel.channels, *kernel.size, *spatial
    )
    size = tuple(
        max(begin + out, (count - 1) * stride + (length - 1) * dilation + 1)
        for begin, out, count, stride, length, dilation in zip(
            geometry.begins, geometry.out, spatial, geometry.strides, kernel.size, geometry.dilations, strict=True
        )
    )
    total = np.zeros((samples, kernel.channels, *size), dtype=spread.dtype)
    over_input = Geometry(
        kernel.size, geometry.strides, geometry.dilations, geometry.begins, geometry.ends, tuple(spatial)
    )
    for offset, places in over_input.offsets():
        at: tuple[Any, ...] = (slice(None), slice(None), *offset)
        total[:, :, *places] += spread[at]
    inside = (slice(begin, begin + out) for begin, out in zip(geometry.begins, geometry.out, strict=True))
    return total[:, :, *inside]
