"""Sums over two long vectors as numpy's float32 gives them for the whole, without ever holding the whole.

The vendor's figures are float32 sums of entire arrays, and their last printed digits show it. numpy adds such
arrays pairwise, in a tree of halves; adding block by block along the same tree gives the same bits.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.blocks import release_pages
from roundoff.core.tensors import Array

__all__ = ["EPSILON", "Pair", "tree_sum"]

EPSILON = float(np.finfo(np.float64).eps)
"""What the vendor takes for zero."""

_FLOAT32_EPSILON = np.finfo(np.float32).eps
_LEAF = 1 << 16
_RELEASED = 64
"""Blocks after which memory of mapped files is given back: 16 MiB of float32 a side."""

_MOST_KEPT = 1 << 24
"""Elements up to which values of another type are kept as float32 between passes: 64 MiB a side."""

_UNROLLED = 8
"""numpy adds eight partial sums at once, so that its halves begin at multiples of eight."""


def tree_sum(count: int, leaf: Callable[[int, int], Array], *, start: int = 0) -> Array:
    """Add what `leaf` gives for consecutive parts, in the order in which numpy adds a vector of this length.

    Args:
        count: Length of the vector.
        leaf: Partial sums of the elements from the first to before the second number.
        start: Where the vector begins.
    """
    if count <= _LEAF:
        return leaf(start, start + count)
    half = count // 2
    half -= half % _UNROLLED
    left = tree_sum(half, leaf, start=start)
    return left + tree_sum(count - half, leaf, start=start + half)


class Pair:
    """Two vectors of equal length and what the vendor's formulas need of them; each pass runs when first needed.

    Args:
        mine: The values under test, flat.
        golden: The values they should have, flat.
    """

    def __init__(self, mine: Array, golden: Array) -> None:
        self.mine = mine
        self.golden = golden
        self.count = mine.size
        self.largest_difference: np.floating[Any] = np.float32(-np.inf)
        self.largest_relative: np.floating[Any] = np.float32(-np.inf)
        self.totals = [0.0, 0.0]
        self._low, self._high = [np.float32(np.inf)] * 2, [np.float32(-np.inf)] * 2
        self._squares = [0.0, 0.0]
        self._lows: dict[tuple[int, int], float] = {}
        self._blocks = 0

    @cached_property
    def _sides(self) -> tuple[Array, Array]:
        """Both sides, as float32 where that takes little memory."""
        return _narrowed(self.mine), _narrowed(self.golden)

    @cached_property
    def _scratch(self) -> tuple[list[Array], Array]:
        size = min(self.count, _LEAF)
        return [np.empty(size, np.float32) for _ in range(4)], np.empty(size, np.float64)

    def _block(self, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
        """Both sides of a block as float32, not to be changed, and two arrays of its length to work in."""
        self._blocks += 1
        if self._blocks % _RELEASED == 0:
            self.release()
        spare = [part[: stop - start] for part in self._scratch[0]]
        sides = []
        for place, whole in enumerate(self._sides):
            part = whole[start:stop]
            if part.dtype != np.float32:
                np.copyto(spare[place], part, casting="unsafe")
                part = spare[place]
            sides.append(part)
        return sides[0], sides[1], spare[2], spare[3]

    @cached_property
    def sums(self) -> Array:
        """Sums of mine², golden², |difference|, difference² and relative error; extremes are kept beside."""
        with np.errstate(all="ignore"):
            return tree_sum(self.count, self._first)

    def _first(self, start: int, stop: int) -> Array:
        mine, golden, work, other = self._block(start, stop)
        found = np.zeros(5, np.float32)
        if start == stop:
            return found
        for place, side in enumerate((mine, golden)):
            found[place] = np.multiply(side, side, out=work).sum()
            low = side.min()
            self._lows[start, place] = float(low)
            self._low[place] = np.minimum(self._low[place], low)
            self._high[place] = np.maximum(self._high[place], side.max())
            self.totals[place] += float(side.sum(dtype=np.float64))
        np.subtract(mine, golden, out=work)
        np.abs(work, out=work)
        found[2] = work.sum()
        self.largest_difference = np.maximum(self.largest_difference, work.max())
        found[3] = np.multiply(work, work, out=work).sum()
        np.divide(mine, golden, out=work)
        np.subtract(work, 1, out=work)
        np.abs(work, out=work)
        compared = np.abs(golden, out=other) > EPSILON
        if not compared.all():
            np.copyto(work, 0, where=~compared)
        found[4] = work.sum()
        self.largest_relative = np.maximum(self.largest_relative, work.max())
        return found

    @cached_property
    def _second(self) -> Array:
        """Sum of products of both sides at length one, sums of both as densities; squares are kept beside."""
        with np.errstate(all="ignore"):
            lengths = [np.sqrt(total) for total in self.sums[:2]]
            means = [total / max(self.count, 1) for total in self.totals]

            def leaf(start: int, stop: int) -> Array:
                mine, golden, work, other = self._block(start, stop)
                np.divide(mine, lengths[0], out=work)
                np.divide(golden, lengths[1], out=other)
                found = [np.multiply(work, other, out=work).sum()]
                wide = self._scratch[1][: stop - start]
                for place, side in enumerate((mine, golden)):
                    found.append(self._density(side, place, start=start, out=work).sum())
                    np.subtract(side, means[place], out=wide, dtype=np.float64)
                    self._squares[place] += float(np.multiply(wide, wide, out=wide).sum())
                return np.array(found, np.float32)

            return tree_sum(self.count, leaf)

    def _density(self, side: Array, place: int, *, start: int, out: Array) -> Array:
        """One side moved and stretched to reach from 0 to 1, and then kept above the smallest step of float32."""
        low = self._low[place]
        stretch = self._high[place] - low
        if stretch == 0:
            np.copyto(out, side)
        else:
            np.subtract(side, low, out=out)
            np.divide(out, stretch, out=out)
        # Most blocks hold nothing as small as that; the smallest of each is known from the first pass.
        smallest = np.float32(self._lows.get((start, place), 0.0))
        if not (smallest if stretch == 0 else (smallest - low) / stretch) >= _FLOAT32_EPSILON:
            np.maximum(out, _FLOAT32_EPSILON, out=out)
        return out

    @property
    def cosine(self) -> np.float32:
        """Sum of the products of both sides, each divided by its length."""
        return np.float32(self._second[0])

    @cached_property
    def divergence(self) -> np.float32:
        """Kullback-Leibler divergence of both sides taken as densities."""
        _, *whole = self._second

        def leaf(start: int, stop: int) -> Array:
            mine, golden, work, other = self._block(start, stop)
            np.divide(self._density(mine, 0, start=start, out=work), whole[0], out=work)
            np.divide(self._density(golden, 1, start=start, out=other), whole[1], out=other)
            np.divide(work, other, out=other)
            np.log(other, out=other)
            total: Array = np.multiply(work, other, out=work).sum(keepdims=True)
            return total

        with np.errstate(all="ignore"):
            return np.float32(tree_sum(self.count, leaf)[0])

    def spread(self, place: int) -> tuple[float, float]:
        """Mean and standard deviation of one side, in float64: of mine (0) or of golden (1)."""
        if self.count == 0:
            return float("nan"), float("nan")
        _ = self._second
        with np.errstate(all="ignore"):
            return self.totals[place] / self.count, float(np.sqrt(self._squares[place] / self.count))

    def release(self) -> None:
        """Give back the memory of values that are mapped from files."""
        release_pages(self.mine)
        release_pages(self.golden)


def _narrowed(side: Array) -> Array:
    if side.dtype == np.float32 or side.size > _MOST_KEPT:
        return side
    with np.errstate(all="ignore"):
        narrow: Array = side.astype(np.float32)
    return narrow
