"""Exact products of integer matrices through float BLAS, in blocks whose sums no float type rounds."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["BlockPlan", "plan_for_bounds", "plan_for_weights", "product"]

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


def product(left: Array, right: Array, plan: BlockPlan) -> Array:
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
