"""Two arrays of one shape, walked together in blocks: nothing of their size is ever made."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages, split_blocks

__all__ = ["Apart", "all_finite", "apart", "blocks", "paired_blocks"]

# Values of a block: as float64 with what is computed of them a few MiB.
_BLOCK = 1 << 18
# Mapped pages are given back each time so many blocks have been read.
_RELEASED = 16


def blocks(array: Array) -> Iterator[Array]:
    """An array in parts, as float64."""
    for number, part in enumerate(split_blocks(array.shape, _BLOCK), 1):
        yield _exact(array[part.index])
        if number % _RELEASED == 0:
            release_pages(array)
    release_pages(array)


def paired_blocks(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one shape in parts, as float64."""
    for number, part in enumerate(split_blocks(one.shape, _BLOCK), 1):
        yield _exact(one[part.index]), _exact(other[part.index])
        if number % _RELEASED == 0:
            release_pages(one)
            release_pages(other)
    release_pages(one)
    release_pages(other)


def _exact(part: Array) -> Array:
    # Bytes that are no numbers may be signalling ones.
    with np.errstate(invalid="ignore", over="ignore"):
        return part.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Apart:
    """How far two arrays are apart.

    Attributes:
        worst: Largest absolute difference; infinite where one side alone is not finite.
        square: Sum of the squares of finite differences.
        finite: How many of these there are.
        total: Sum of absolute differences; not finite where values are not.
        count: How many values there are.
    """

    worst: float = 0.0
    square: float = 0.0
    finite: int = 0
    total: float = 0.0
    count: int = 0

    def merge(self, other: "Apart") -> "Apart":
        """Both together."""
        return Apart(
            max(self.worst, other.worst),
            self.square + other.square,
            self.finite + other.finite,
            self.total + other.total,
            self.count + other.count,
        )


def apart(one: Array, other: Array) -> Apart:
    """Measure two arrays of one shape; values that are not finite are equal when both sides have the same."""
    found = Apart()
    for wanted, had in paired_blocks(one, other):
        with np.errstate(invalid="ignore", over="ignore"):
            plain = np.abs(wanted - had)
            same = (wanted == had) | (np.isnan(wanted) & np.isnan(had))
            error = np.where(same, 0.0, np.where(np.isnan(plain), np.inf, plain))
            known = error[np.isfinite(error)]
            part = Apart(
                float(error.max(initial=0)),
                float(np.square(known).sum()),
                known.size,
                float(plain.sum()),
                plain.size,
            )
        found = found.merge(part)
    return found


def all_finite(array: Array) -> bool:
    """Whether every value is a finite number."""
    if array.dtype.kind in "iub":
        return True
    return all(bool(np.isfinite(part).all()) for part in blocks(array))
