"""Two tensors with their elements in another order, the same for both: every error is still there."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.metrics import score
from roundoff.measure.pairs import channel_axis_of, measure_pair
from roundoff.studies.compare.difference import describe

__all__ = ["Mixed", "mixed_alike"]

# Channels of fewer elements have no order to speak of: these are mixed with all others.
_FEWEST = 16
# Sums in another order differ in the last bits.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """A pair without its order.

    Attributes:
        reference: One side.
        candidate: The other.
        reasons: Why it does not show what the original shows; empty when it does.
    """

    reference: Array
    candidate: Array
    reasons: tuple[str, ...]


def mixed_alike(reference: Array, candidate: Array, *, seed: int) -> Mixed:
    """Put the elements of each channel into another order, alike on both sides, and see if the fault stays.

    Args:
        reference: One side.
        candidate: The other, of the same shape.
        seed: Of the order.
    """
    axis = channel_axis_of(reference.shape)
    if axis is None or reference.size < _FEWEST * reference.shape[axis]:
        axis = None
    random = np.random.default_rng(seed)
    rows = [_rows(np.asarray(each), axis) for each in (reference, candidate)]
    order = random.permuted(np.broadcast_to(np.arange(rows[0].shape[1]), rows[0].shape), axis=1)
    mixed = [_back(np.take_along_axis(each, order, axis=1), reference.shape, axis) for each in rows]
    before, after = _seen(np.asarray(reference), np.asarray(candidate), axis), _seen(mixed[0], mixed[1], axis)
    reasons = []
    if before[0] != after[0]:
        reasons.append(f"the difference looks like {after[0]} instead of {before[0]}")
    if not np.isclose(before[1], after[1], rtol=_SAME):
        reasons.append(f"the error is {after[1]:.4g} dB instead of {before[1]:.4g} dB")
    return Mixed(mixed[0], mixed[1], tuple(reasons))


def _seen(reference: Array, candidate: Array, axis: int | None) -> tuple[str, float]:
    moments = measure_pair(reference, candidate, channel_axis=axis)
    return describe(moments, reference, candidate).kind, score(moments).values.get("sqnr_db", np.nan)


def _rows(values: Array, axis: int | None) -> Array:
    """A row for each channel."""
    if axis is None:
        return values.reshape(1, -1)
    moved = np.moveaxis(values, axis, 0)
    return moved.reshape(moved.shape[0], -1)


def _back(rows: Array, shape: tuple[int, ...], axis: int | None) -> Array:
    if axis is None:
        return rows.reshape(shape)
    first = (shape[axis], *(size for place, size in enumerate(shape) if place != axis % len(shape)))
    return np.ascontiguousarray(np.moveaxis(rows.reshape(first), 0, axis))
