"""Exact convolutions of integers in float arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from roundoff.core.tensors import Array

# Exact products of integer matrices through float BLAS, in blocks whose sums no float type rounds.

# Up to these magnitudes every whole number is a float of that type, so no order of summation rounds.
_EXACT_FLOAT32 = 1 << 24
_EXACT_FLOAT64 = 1 << 53
# Sums of blocks up to this stay within int64 when a bias is added.
_EXACT_INT64 = 1 << 62
# Each block costs a pass over the result; with more of them float64 throughout is faster.
_MOST_FLOAT32_BLOCKS = 2
_ELEMENTS_AT_A_TIME = 1 << 18


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How to cut the inner axis of a product.

    Attributes:
        dtype: Float type of the products.
        blocks: Ranges of the inner axis, each exact in that type.
        largest: No sum exceeds this in magnitude.
    """

    dtype: type[np.float32] | type[np.float64]
    blocks: tuple[slice, ...]
    largest: float

    @property
    def sum_dtype(self) -> type[np.float64] | type[np.int64]:
        """A type that holds all sums exactly."""
        return np.float64 if self.largest <= _EXACT_FLOAT64 else np.int64


def plan_for_weights(weights: Array, largest: int) -> BlockPlan | None:
    """Plan the product of known integers with others.

    Args:
        weights: Whole numbers, the inner axis last.
        largest: Largest magnitude of the other operand.

    Returns:
        None when single products are not exact in float64, or their sums may not be in int64.
    """
    length = weights.shape[-1]
    if not weights.size:
        return BlockPlan(np.float32, (slice(0, length),), largest=0)
    rows = weights.reshape(-1, length)
    middle = (length + 1) // 2
    for blocks in ((slice(0, length),), (slice(0, middle), slice(middle, length))):
        sums = [_largest_row_sum(rows[:, block]) * largest for block in blocks]
        if max(sums) <= _EXACT_FLOAT32:
            return BlockPlan(np.float32, blocks, sum(sums))
    if sum(sums) <= _EXACT_FLOAT64:
        return BlockPlan(np.float64, (slice(0, length),), sum(sums))
    return plan_for_bounds(length, int(np.abs(rows).max()), largest)


def _largest_row_sum(rows: Array) -> float:
    """Largest sum of magnitudes of a row; taken in parts, so that no copy of large weights is made."""
    step = max(1, _ELEMENTS_AT_A_TIME // max(1, rows.shape[1]))
    parts = (rows[start : start + step] for start in range(0, len(rows), step))
    return max(float(np.abs(part).sum(axis=1, dtype=np.float64).max()) for part in parts)


def plan_for_bounds(length: int, left: int, right: int) -> BlockPlan | None:
    """Plan the product of two matrices of which only the largest magnitudes are known.

    Args:
        length: Size of the inner axis.
        left: Largest magnitude of the left operand.
        right: Largest magnitude of the right operand.

    Returns:
        None when single products are not exact in float64, or their sums may not be in int64.
    """
    if not length:
        return BlockPlan(np.float32, (slice(0, 0),), largest=0)
    term = max(1, left * right)
    if length * term > _EXACT_INT64:
        return None
    for dtype, limit, most in (
        (np.float32, _EXACT_FLOAT32, _MOST_FLOAT32_BLOCKS),
        (np.float64, _EXACT_FLOAT64, length),
    ):
        size = limit // term
        if length <= size * most:
            blocks = tuple(slice(start, min(start + size, length)) for start in range(0, length, size))
            return BlockPlan(dtype, blocks, length * term)
    return None


def exact_product(left: Array, right: Array, plan: BlockPlan) -> Array:
    """Matrix product of whole numbers, exact.

    Args:
        left: [..., M, K] in the plan's dtype.
        right: [..., K, N] in the plan's dtype.
        plan: How to cut K.

    Returns:
        float64, or int64 where a sum may exceed what float64 holds exactly.
    """
    dtype = plan.sum_dtype
    first, *others = plan.blocks
    total: Array = np.matmul(left[..., first], right[..., first, :]).astype(dtype, copy=False)
    for block in others:
        total += np.matmul(left[..., block], right[..., block, :]).astype(dtype, copy=False)
    return total


# Where the windows of convolutions and pooling lie.


@dataclass(frozen=True, slots=True)
class Geometry:
    """Windows over the spatial axes of an input.

    Attributes:
        kernel: Size of the window on each axis.
        strides: Distance between windows.
        dilations: Distance between elements of a window.
        begins: Padding before each axis.
        ends: Padding after it.
        out: Number of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def pointwise(self) -> bool:
        """Whether each window is the one element at its place."""
        plain = all(size == 1 for size in (*self.kernel, *self.strides))
        return plain and not any((*self.begins, *self.ends))

    @property
    def positions(self) -> int:
        """Number of windows on all axes together."""
        return prod(self.out)

    def offsets(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each element of the window, and where it lies in the padded input for all windows at once."""
        for offset in product(*map(range, self.kernel)):
            starts = (place * step for place, step in zip(offset, self.dilations, strict=True))
            yield (
                offset,
                tuple(
                    slice(start, start + (count - 1) * stride + 1, stride)
                    for start, count, stride in zip(starts, self.out, self.strides, strict=True)
                ),
            )


def conv_geometry(attributes: Mapping[str, Any], spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Geometry:
    """Windows of Conv on an input of this size."""
    strides, dilations = _steps(attributes, len(spatial))
    reach = tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(-(-size // stride) for size, stride in zip(spatial, strides, strict=True))
        lacking = (
            max(0, (count - 1) * stride + span - size)
            for count, stride, span, size in zip(out, strides, reach, spatial, strict=True)
        )
        begins, ends = _halves(lacking, more_at_end=mode == "SAME_UPPER")
        return Geometry(kernel, strides, dilations, begins, ends, out)
    begins, ends = _pads(attributes, len(spatial))
    out = tuple(
        (size + begin + end - span) // stride + 1
        for size, begin, end, span, stride in zip(spatial, begins, ends, reach, strides, strict=True)
    )
    return Geometry(kernel, strides, dilations, begins, ends, out)


def transposed_geometry(
    attributes: Mapping[str, Any], spatial: tuple[int, ...], kernel: tuple[int, ...]
) -> Geometry:
    """Windows of ConvTranspose, which lie over its output, one for each input element; `out` is its size."""
    rank = len(spatial)
    strides, dilations = _steps(attributes, rank)
    extra = tuple(attributes.get("output_padding") or (0,) * rank)
    full = tuple(
        (size - 1) * stride + (length - 1) * dilation + 1 + more
        for size, stride, length, dilation, more in zip(spatial, strides, kernel, dilations, extra, strict=True)
    )
    mode = attributes.get("auto_pad", "NOTSET")
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    wanted = tuple(attributes.get("output_shape") or ())[-rank:]
    if same and not wanted:
        wanted = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    if wanted:
        surplus = (max(0, have - want) for have, want in zip(full, wanted, strict=True))
        begins, ends = _halves(surplus, more_at_end=mode == "SAME_UPPER")
        return Geometry(kernel, strides, dilations, begins, ends, wanted)
    begins, ends = _pads(attributes, rank)
    out = tuple(size - begin - end for size, begin, end in zip(full, begins, ends, strict=True))
    return Geometry(kernel, strides, dilations, begins, ends, out)


def pad_spatial(values: Array, begins: tuple[int, ...], ends: tuple[int, ...]) -> Array:
    """Zeros around the spatial axes of [N, C, ...]."""
    if not any((*begins, *ends)):
        return values
    return np.pad(values, ((0, 0), (0, 0), *zip(begins, ends, strict=True)))


def _steps(attributes: Mapping[str, Any], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    strides = tuple(attributes.get("strides") or (1,) * rank)
    return strides, tuple(attributes.get("dilations") or (1,) * rank)


def _pads(attributes: Mapping[str, Any], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET"
    pads = tuple(attributes.get("pads") or ()) if explicit else ()
    pads = pads or (0,) * (2 * rank)
    return pads[:rank], pads[rank:]


def _halves(totals: Iterator[int], *, more_at_end: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    smaller = [(total // 2, total - total // 2) for total in totals]
    pairs = smaller if more_at_end else [(end, begin) for begin, end in smaller]
    return tuple(begin for begin, _ in pairs), tuple(end for _, end in pairs)


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
        return exact_product(kernel.matrices, columns, kernel.plan).reshape(
            samples, kernel.channels, *geometry.out
        )
    windows = _windows(padded, geometry)
    result = np.empty((samples, kernel.channels, *geometry.out), kernel.plan.sum_dtype)
    per_row = padded.shape[0] * padded.shape[1] * prod(kernel.size) * prod(geometry.out[1:])
    rows = max(1, _UNROLLED_ELEMENTS // max(1, per_row))
    for start in range(0, geometry.out[0], rows):
        part = slice(start, start + rows)
        total = exact_product(kernel.matrices, _unrolled(windows[:, :, part], groups), kernel.plan)
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
    spread = exact_product(kernel.matrices, columns, kernel.plan).reshape(
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
