"""Skewness and kurtosis of values that come block by block."""

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["CentralMoments"]

# Elements per block: its float64 copies stay in the cache.
_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True)
class CentralMoments:
    """Sums of powers of the distance from the mean; what is not finite is left out.

    Attributes:
        count: Finite values.
        mean: Their mean.
        second: Sum of squared distances from it.
        third: Sum of cubed distances.
        fourth: Sum of fourth powers.
    """

    count: int = 0
    mean: float = 0.0
    second: float = 0.0
    third: float = 0.0
    fourth: float = 0.0

    @property
    def skewness(self) -> float | None:
        """Of the population: 0 for what is symmetric, above 0 with a tail to the right; None without spread."""
        return self._standardized(self.third, 3)

    @property
    def excess_kurtosis(self) -> float | None:
        """Of the population: 0 for a normal distribution, above 0 with heavy tails; None without spread."""
        fourth = self._standardized(self.fourth, 4)
        return None if fourth is None else fourth - 3.0

    @classmethod
    def of(cls, array: Array) -> "CentralMoments":
        """Moments of an array of real numbers of any shape."""
        flat = array.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = (_of_block(flat[start : start + _BLOCK]) for start in range(0, flat.size, _BLOCK))
            return reduce(cls.merge, parts, cls())

    def merge(self, other: "CentralMoments") -> "CentralMoments":
        """Moments of both sets of values together."""
        if not self.count or not other.count:
            return self if self.count else other
        n, a, b = self.count + other.count, self.count, other.count
        d = other.mean - self.mean
        # Each sum moved from the mean of its part to the common one (binomial theorem).
        second = self.second + other.second + d * d * a * b / n
        third = self.third + other.third + d**3 * a * b * (a - b) / n**2
        third += 3 * d * (a * other.second - b * self.second) / n
        fourth = self.fourth + other.fourth + d**4 * a * b * (a * a - a * b + b * b) / n**3
        fourth += 6 * d * d * (a * a * other.second + b * b * self.second) / n**2
        fourth += 4 * d * (a * other.third - b * self.third) / n
        return CentralMoments(n, self.mean + d * b / n, second, third, fourth)

    def _standardized(self, power_sum: float, power: int) -> float | None:
        if not self.count or not self.second > 0:
            return None
        scale = math.sqrt(self.second / self.count)
        # One factor at a time: the fourth power of a very small spread would vanish.
        value = power_sum / self.count
        for _ in range(power):
            value /= scale
        return value if math.isfinite(value) else None


def _of_block(block: Array) -> CentralMoments:
    values = block.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        values = values[finite]
    if not values.size:
        return CentralMoments()
    # Halved where the sum could overflow, which changes nothing else.
    mean = float(np.add.reduce(values / values.size))
    distance = np.subtract(values, mean, out=values)
    square = distance * distance
    sums = [float(np.add.reduce(power)) for power in (square, square * distance, square * square)]
    return CentralMoments(values.size, mean, *sums)
