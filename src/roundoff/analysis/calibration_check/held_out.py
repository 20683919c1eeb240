"""Samples that ranges were not found on: how many of their values are cut off, and whether that is chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["HeldOutRecord", "chance_of_exceeding"]


def chance_of_exceeding(samples: int, others: int, exceeding: int) -> float:
    """The chance that so many of `others` lie beyond all `samples` on one side, when both are of one kind.

    Exact: all of the outermost `exceeding` of both together must be among the others.
    """
    chance = 1.0
    for place in range(exceeding):
        chance *= (others - place) / (samples + others - place)
    return chance


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """Two ends of a range for each tensor, float64 [tensors]."""

    low: Array
    high: Array


class HeldOutRecord:
    """Counts values beyond ranges.

    Args:
        covered: Ends of what codes cover, as found on the other samples.
        seen: Smallest and largest value of the other samples.
    """

    def __init__(self, covered: tuple[Array, Array], seen: tuple[Array, Array]) -> None:
        self._covered, self._seen = _Ends(*covered), _Ends(*seen)
        tensors = covered[0].size
        self.count = 0
        self._values, self._outside = np.zeros(tensors, np.int64), np.zeros(tensors, np.int64)
        self.exceeding = np.zeros((2, tensors), np.int64)
        self._low, self._high = np.full(tensors, np.inf), np.full(tensors, -np.inf)

    def add(self, arrays: Sequence[Array], low: Array, high: Array) -> None:
        """See one sample: its tensors, and their smallest and largest values."""
        self.count += 1
        # Most tensors of most samples stay within, and need no look at each value.
        beyond = (low < self._covered.low) | (high > self._covered.high)
        for place, array in enumerate(arrays):
            self._values[place] += array.size
            if beyond[place]:
                outside = (array < self._covered.low[place]) | (array > self._covered.high[place])
                self._outside[place] += int(np.count_nonzero(outside))
        self.exceeding += np.stack([low < self._seen.low, high > self._seen.high])
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def outside(self) -> Array:
        """Share of values beyond the range, of each tensor."""
        return np.asarray(self._outside / np.maximum(1, self._values))

    def overshoot(self) -> Array:
        """How far values go beyond the range, over its width; infinite where it has none."""
        width = self._covered.high - self._covered.low
        low = np.maximum(self._covered.low - self._low, 0.0)
        high = np.maximum(self._high - self._covered.high, 0.0)
        most = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)
        over = np.maximum(*most)
        ratio = np.where(over > 0, np.inf, 0.0)
        np.divide(over, width, out=ratio, where=width > 0)
        return ratio
