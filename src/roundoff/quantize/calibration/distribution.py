"""What calibration methods ask of the elements of a tensor, whether all are known or only a histogram of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.float_grid import FloatHistogram

__all__ = ["BLOCK", "Distribution", "Levels", "Ranged", "sum_in_blocks"]

BLOCK = 1 << 16
"""Values looked at together: the arrays of a step of the computation stay in the cache."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The values a quantizer can produce: ``step`` times the whole numbers from ``first`` to ``last``.

    Attributes:
        step: Distance of two levels; [rows, candidates], as the others.
        first: Smallest whole number, at most 0.
        last: Largest whole number, at least 0.
        floor: Values are rounded down instead of to the nearest.
    """

    step: Array
    first: Array
    last: Array
    floor: bool = False

    def some(self, part: slice | Array) -> "Levels":
        """Those of some candidates."""
        return Levels(self.step[..., part], self.first[..., part], self.last[..., part], self.floor)

    def of_row(self, row: int) -> "Levels":
        """Those of one row, of shape [candidates]."""
        return Levels(self.step[row], self.first[row], self.last[row], self.floor)


class Distribution(Protocol):
    """The elements of one or more rows; rows are independent of one another."""

    @property
    def low(self) -> Array:
        """Smallest value of each row; 0 where there is none."""
        ...

    @property
    def high(self) -> Array:
        """Largest value of each row; 0 where there is none."""
        ...

    @property
    def total(self) -> Array:
        """Elements of each row."""
        ...

    def squared_error(self, levels: Levels) -> Array:
        """Mean squared distance of the elements from the levels they are quantized to, [rows, candidates]."""
        ...

    def smallest(self, index: Array) -> Array:
        """The element of each row that has so many smaller ones; [rows]."""
        ...

    def magnitudes(self) -> "Distribution":
        """The distribution of the absolute values."""
        ...

    def typical(self) -> Array:
        """The magnitude that half of the elements other than zero exceed; [rows]."""
        ...

    def beyond(self, low: Array, high: Array) -> Array:
        """Elements of each row outside of a range; [rows]."""
        ...

    def binned(self, row: int, bins: int) -> Array:
        """Elements in each of so many equal bins from the smallest to the largest value of a row."""
        ...

    def row(self, index: int) -> "Distribution":
        """One of the rows alone."""
        ...

    def histogram(self) -> FloatHistogram:
        """The elements counted on a grid; large, so that of one row at a time."""
        ...

    def coarser(self) -> "Distribution":
        """The same with less detail where that saves time, for a first look."""
        ...


class Ranged:
    """What both kinds of distribution have.

    Args:
        low: Smallest value of each row; anything where there are no elements.
        high: Largest value of each row.
        total: Elements of each row.
    """

    def __init__(self, low: Array, high: Array, total: Array) -> None:
        known = total > 0
        self._low, self._high = np.where(known, low, 0.0), np.where(known, high, 0.0)
        self._total = total

    @property
    def low(self) -> Array:
        """Smallest value of each row; 0 where there is none."""
        return self._low

    @property
    def high(self) -> Array:
        """Largest value of each row; 0 where there is none."""
        return self._high

    @property
    def total(self) -> Array:
        """Elements of each row."""
        return self._total


def sum_in_blocks(sum_up: Callable[[slice], Array], levels: Levels, length: int) -> Array:
    """Sums for all candidates, some at a time."""
    rows, candidates = levels.step.shape
    at_once = max(1, BLOCK // max(1, rows * length))
    parts = [sum_up(slice(start, start + at_once)) for start in range(0, candidates, at_once)]
    return np.concatenate(parts, axis=1)
