"""Sharing out ranges: factors by which what stands on both sides of a tensor fills its range alike."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["LARGEST_LOGARITHM", "Side", "balanced"]

LARGEST_LOGARITHM = float(np.log(2.0**20))
"""Factors stay between this and one over it."""

# Factors that change by less than one thousandth are found.
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Magnitudes that share one scale, or one for each row of them: a weight, or a tensor.

    Attributes:
        matrix: The magnitudes.
        times: Channels by whose factors they are multiplied, of the same shape; 0 for none.
        over: Channels by whose factors they are divided.
        rows: Which of them share a scale, numbers from 0 on; all when None.
    """

    matrix: Array
    times: Array
    over: Array
    rows: Array | None = None

    def has(self, channels: Array) -> bool:
        """Whether any of some channels scales them."""
        return bool(np.isin(channels, self.times).any() or np.isin(channels, self.over).any())

    def filling(self, logarithms: Array) -> Array:
        """How far each magnitude fills the range of its scale, from 0 to 1, as a logarithm."""
        with np.errstate(divide="ignore"):
            now = np.log(self.matrix) + logarithms[self.times] - logarithms[self.over]
        if self.rows is None:
            return np.asarray(now - _finite(now.max(initial=-np.inf)))
        largest = np.full(int(self.rows.max()) + 1, -np.inf)
        np.maximum.at(largest, self.rows.ravel(), now.ravel())
        return np.asarray(now - _finite(largest)[self.rows])


def _finite(values: Array) -> Array:
    """Where all is zero there is nothing to fill."""
    return np.where(np.isfinite(values), values, 0.0)


def balanced(groups: Sequence[Array], sides: Sequence[Side], *, low: Array, iterations: int) -> Array:
    """Factors for which every channel fills the ranges it is divided in as far as those it is multiplied in.

    Args:
        groups: Channels to be scaled, group by group.
        sides: All that they scale.
        low: Least logarithm of the factor of each channel, of all that there are.
        iterations: How often all groups are gone through at most.

    Returns:
        Logarithms of the factors, of the shape of `low`; 0 for channels that are in no group.
    """
    logarithms = np.zeros(low.size)
    parts = [(roots, [side for side in sides if side.has(roots)]) for roots in groups]
    for _ in range(iterations):
        before = logarithms.copy()
        for roots, own in parts:
            change = _imbalance(logarithms, own)[roots] / 2
            # A channel of zeros on either side has nothing to share out.
            wanted = logarithms[roots] + np.where(np.isfinite(change), change, 0.0)
            logarithms[roots] = np.clip(np.maximum(wanted, low[roots]), -LARGEST_LOGARITHM, LARGEST_LOGARITHM)
        if np.abs(logarithms - before).max(initial=0.0) < _SETTLED:
            break
    return logarithms


def _imbalance(logarithms: Array, sides: Sequence[Side]) -> Array:
    """By how much each channel fills the ranges it is divided in more than those it is multiplied in."""
    divided, multiplied = np.full(logarithms.size, -np.inf), np.full(logarithms.size, -np.inf)
    for side in sides:
        filling = side.filling(logarithms)
        np.maximum.at(divided, side.over.ravel(), filling.ravel())
        np.maximum.at(multiplied, side.times.ravel(), filling.ravel())
    with np.errstate(invalid="ignore"):
        return np.asarray(divided - multiplied)
