"""Sums over a tensor and its golden one: with the vendor's bits, or as many digits as the vendor prints.

The vendor's figures are float32 sums of entire arrays, and their last printed digits show it. numpy adds such
arrays pairwise, in a tree of halves; adding block by block along the same tree gives the same bits. Of large
tensors a shorter way is taken first where its error is bounded, and the vendor's own only where the bounds leave
two texts.
"""

import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages, to_float32

EPSILON = float(np.finfo(np.float64).eps)
"""What the vendor takes for zero."""

_FLOAT32_EPSILON = np.finfo(np.float32).eps
_ROUNDING = float(_FLOAT32_EPSILON) / 2
"""The largest relative error of one operation in float32."""

_LEAF = 1 << 18
"""Elements of a block: with smaller ones the calls take longer than the sums, larger ones leave the caches."""

_RELEASED = 32
"""Blocks after which memory of mapped files is given back: 32 MiB of float32 a side."""

_MOST_KEPT = 1 << 24
"""Elements up to which values of another type are kept as float32 between passes: 64 MiB a side."""

_UNROLLED = 8
"""numpy adds eight partial sums at once, so that its halves begin at multiples of eight."""

_LOOP = 128
"""Elements that numpy adds in one loop before it begins to halve."""

_ROW = 1 << 12
"""Elements of one dot product; BLAS, too, adds eight partial sums at once or more."""

_ROW_ERROR = _ROW / _UNROLLED * _ROUNDING
"""The largest relative error of such a product of numbers of one sign."""

_SHORT_ROW = 1 << 8
_SHORT_ROW_ERROR = _SHORT_ROW * _ROUNDING
"""The largest relative error of a sum of so many numbers of one sign, in whatever order."""

_MANY = 1 << 18
"""Elements from which shorter ways are taken: fewer do not take long."""

_SAMPLED = 1 << 11
"""Values by which is told how much of a tensor is repetition."""

_REPEATED = 1 / 500
"""Repetition from which roundings of the many terms of a sum do not cancel out any more."""

_SIGMAS = 4.0
_COSINE_ERROR = 6.5 * _ROUNDING
"""The vendor's error in a sum of 1 whose terms' roundings cancel out: that of the last halves that it adds."""

_ONES = np.ones(_SHORT_ROW, np.float32)
_LEAST = np.full(_LEAF, _FLOAT32_EPSILON, np.float32)

Show = Callable[[float], str]
"""How a number is printed; what grows with it, or falls."""


def tree_sum(count: int, leaf: Callable[[int, int], Array], *, start: int = 0, last_first: bool = False) -> Array:
    """Add what `leaf` gives for consecutive parts, in the order in which numpy adds a vector of this length.

    Args:
        count: Length of the vector.
        leaf: Partial sums of the elements from the first to before the second number.
        start: Where the vector begins.
        last_first: Look at the last part first, which a pass before may have left in the cache.
    """
    if count <= _LEAF:
        return leaf(start, start + count)
    # numpy's own split (pairwise_sum): halves, the first cut down to a multiple of its unrolled loop. float32
    # addition is not associative, so any other tree would change the last printed digits.
    half = count // 2
    half -= half % _UNROLLED
    parts = [(half, start), (count - half, start + half)]
    if last_first:
        parts.reverse()
    one, other = (tree_sum(size, leaf, start=begin, last_first=last_first) for size, begin in parts)
    return one + other


_EVERYTHING = ("lengths", "cosine", "difference", "relative", "density", "spread")


class GoldenPair:
    """Two vectors of equal length and what the vendor's formulas need of them; each pass runs when first needed.

    Args:
        mine: The values under test, flat.
        golden: The values they should have, flat.

    Attributes:
        needs: What is computed of them; all, unless fewer algorithms are asked for.
    """

    def __init__(self, mine: Array, golden: Array) -> None:
        self.mine = mine
        self.golden = golden
        self.count = mine.size
        self.largest_difference: np.floating[Any] = np.float32(-np.inf)
        self.largest_relative: np.floating[Any] = np.float32(-np.inf)
        self.needs = frozenset(_EVERYTHING)
        self._low, self._high = [np.float32(np.inf)] * 2, [np.float32(-np.inf)] * 2
        self._lows: dict[int, list[np.floating[Any]]] = {}
        self._totals = [0.0, 0.0]
        self._samples: tuple[list[Array], list[Array]] = ([], [])
        self._product = self._squares = self._logs = 0.0
        self._scratch = [_memory(min(self.count, _LEAF)) for _ in range(4)]
        self._kept = [
            _memory(self.count) if side.dtype != np.float32 and side.size <= _MOST_KEPT else None
            for side in (mine, golden)
        ]
        self._filled = self._blocks = self._start = 0

    def _block(self, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
        """Both sides of a block as float32, not to be changed, and two arrays of its length to work in."""
        self._start = start
        self._blocks += 1
        if self._blocks % _RELEASED == 0:
            self.release()
        spare = [part[: stop - start] for part in self._scratch]
        sides = []
        for place, (whole, kept) in enumerate(zip((self.mine, self.golden), self._kept, strict=True)):
            part = whole[start:stop]
            if part.dtype != np.float32:
                out = spare[place] if kept is None else kept[start:stop]
                if kept is None or stop > self._filled:
                    to_float32(part, out)
                part = out
            sides.append(part)
        self._filled = max(self._filled, stop)
        return sides[0], sides[1], spare[2], spare[3]

    def _sum(self, term: Callable[[Array, Array, Array, Array], Array]) -> float:
        """Sum of what is computed of both sides, given two arrays to work in, with the vendor's bits."""

        def leaf(start: int, stop: int) -> Array:
            found: Array = np.add.reduce(term(*self._block(start, stop)), keepdims=True)
            return found

        with np.errstate(all="ignore"):
            return float(tree_sum(self.count, leaf, last_first=True)[0])

    @cached_property
    def sums(self) -> Array:
        """Sums of mine², golden², |difference| and relative error; the rest is kept beside."""
        with np.errstate(all="ignore"):
            return tree_sum(self.count, self._first)

    def _first(self, start: int, stop: int) -> Array:
        mine, golden, work, other = self._block(start, stop)
        found = np.zeros(4, np.float32)
        if start == stop:
            return found
        for place, side in enumerate((mine, golden)):
            self._samples[place].append(side[:: max(1, self.count // _SAMPLED)].copy())
            if "lengths" in self.needs:
                found[place] = np.add.reduce(np.multiply(side, side, out=work))
            if "density" in self.needs:
                low = np.minimum.reduce(side)
                self._lows.setdefault(start, []).append(low)
                self._low[place] = np.minimum(self._low[place], low)
                self._high[place] = np.maximum(self._high[place], np.maximum.reduce(side))
            if "spread" in self.needs:
                self._totals[place] += _total(side)
        if "cosine" in self.needs:
            self._product += _dot(mine, golden)
        if "difference" in self.needs:
            np.abs(np.subtract(mine, golden, out=work), out=work)
            found[2] = np.add.reduce(work)
            self.largest_difference = np.maximum(self.largest_difference, np.maximum.reduce(work))
            self._squares += _dot(work, work)
        if "relative" in self.needs:
            found[3] = self._relative(mine, golden, work, other)
        return found

    def _relative(self, mine: Array, golden: Array, work: Array, other: Array) -> np.floating[Any]:
        """The sum of relative errors of a block; the largest is kept beside."""
        # |mine / golden - 1|, not |mine - golden| / |golden|: the same in theory, another rounding in float32.
        np.divide(mine, golden, out=work)
        np.abs(np.subtract(work, 1, out=work), out=work)
        np.abs(golden, out=other)
        if not np.minimum.reduce(other) > EPSILON:
            np.copyto(work, 0, where=~(other > EPSILON))
        self.largest_relative = np.maximum(self.largest_relative, np.maximum.reduce(work))
        total: np.floating[Any] = np.add.reduce(work)
        return total

    def _settled(self, show: Show, near: float, *, margin: float, exact: Callable[[], float]) -> str:
        """What is shown of a number known but for a margin; computed as the vendor does where that is open."""
        if self.count >= _MANY and math.isfinite(near) and math.isfinite(margin):
            texts = {show(near - margin), show(near + margin)}
            if len(texts) == 1:
                return texts.pop()
        return show(exact())

    @property
    def _tree_error(self) -> float:
        """The largest relative error of the vendor's sum of numbers of one sign."""
        depth = math.log2(max(self.count / _LOOP, 1)) + 1
        return (_LOOP / _UNROLLED + math.log2(_UNROLLED) + depth + 1) * _ROUNDING

    def cosine(self, show: Show) -> str:
        """Sum of the products of both sides, each divided by its length, as it is shown."""
        lengths = [np.sqrt(total) for total in self.sums[:2]]

        def term(mine: Array, golden: Array, work: Array, other: Array) -> Array:
            # Each side is divided by its length before the product: the vendor's order, which keeps large
            # values from overflowing float32 and rounds otherwise than one division at the end.
            np.divide(mine, lengths[0], out=work)
            np.divide(golden, lengths[1], out=other)
            return np.multiply(work, other, out=work)

        with np.errstate(all="ignore"):
            near = float(self._product / (np.float64(lengths[0]) * np.float64(lengths[1])))
        margin = math.nan
        if self.count >= _MANY and self._repetition(np.square) < _REPEATED:
            margin = _COSINE_ERROR
        return self._settled(show, near, margin=margin, exact=lambda: self._sum(term))

    def squared_difference(self, show: Show) -> str:
        """Sum of the squared differences, as it is shown."""
        _ = self.sums
        margin = self._squares * (_ROW_ERROR + self._tree_error)
        return self._settled(show, self._squares, margin=margin, exact=lambda: self._exact_squares)

    @cached_property
    def _exact_squares(self) -> float:
        def term(mine: Array, golden: Array, work: Array, other: Array) -> Array:
            np.subtract(mine, golden, out=work)
            return np.multiply(work, work, out=work)

        return self._sum(term)

    @cached_property
    def _wholes(self) -> Array:
        """Sums of both sides as densities; what leads to their divergence is kept beside."""

        def leaf(start: int, stop: int) -> Array:
            mine, golden, work, other = self._block(start, stop)
            found = np.empty(2, np.float32)
            for place, (side, out) in enumerate(((mine, work), (golden, other))):
                found[place] = np.add.reduce(self._density(side, place, out=out))
            if self.count >= _MANY:
                np.log(np.divide(work, other, out=other), out=other)
                self._logs += _dot(work, other)
            return found

        with np.errstate(all="ignore"):
            return tree_sum(self.count, leaf, last_first=True)

    def _density(self, side: Array, place: int, *, out: Array) -> Array:
        """One side moved and stretched to reach from 0 to 1, and then kept above the smallest step of float32."""
        low = self._low[place]
        stretch = self._high[place] - low
        smallest = self._lows[self._start][place]
        if stretch == 0:
            np.copyto(out, side)
        else:
            np.divide(np.subtract(side, low, out=out), stretch, out=out)
            smallest = (smallest - low) / stretch
        # Most blocks hold nothing as small as that; the smallest of each is known from the first pass.
        return out if smallest >= _FLOAT32_EPSILON else np.maximum(out, _LEAST[: out.size], out=out)

    def divergence(self, show: Show) -> str:
        """Kullback-Leibler divergence of both sides taken as densities, as it is shown."""
        _ = self.sums
        mine, golden = self._wholes

        def term(left: Array, right: Array, work: Array, other: Array) -> Array:
            # sum(p * log(p / q)), p and q being values stretched to 0..1 over their sum: no histogram is made.
            np.divide(self._density(left, 0, out=work), mine, out=work)
            np.divide(self._density(right, 1, out=other), golden, out=other)
            np.log(np.divide(work, other, out=other), out=other)
            return np.multiply(work, other, out=work)

        near, margin = math.nan, math.nan
        if self.largest_difference == 0 and math.isfinite(mine):
            near = margin = 0.0  # every logarithm is that of 1
        elif self.count >= _MANY and all(high > low for low, high in zip(self._low, self._high, strict=True)):
            apart = math.log(float(golden) / float(mine))
            near = self._logs / float(mine) + apart
            # Terms of both signs come to this at most: those below zero to the distance of the densities, which
            # Pinsker's inequality bounds.
            terms = abs(near) + math.sqrt(2 * abs(near))
            margin = (_ROW_ERROR + self._tree_error) * terms + self._tree_error * abs(apart)
            # The ratio within the logarithm is rounded four times on both ways together.
            margin += _SIGMAS * 4 * _ROUNDING * math.sqrt(self._repetition(lambda values: values - values[0]) / 3)
        return self._settled(show, near, margin=margin, exact=lambda: self._sum(term))

    def spread(self, place: int, show: Callable[[float, float], str]) -> str:
        """Mean and standard deviation of one side, of mine (0) or of golden (1), as they are shown."""
        if self.count == 0:
            return show(math.nan, math.nan)
        square = float(self.sums[place]) / self.count
        mean = self._totals[place] / self.count
        variance = square - mean * mean
        if self.count >= _MANY and math.isfinite(variance):
            off = _SHORT_ROW_ERROR * math.sqrt(square)
            loose = self._tree_error * square + (2 * abs(mean) + off) * off
            means = (mean - off, mean + off)
            spreads = [math.sqrt(max(variance + sign * loose, 0)) for sign in (-1, 1)]
            texts = {show(*ends) for ends in itertools.product(means, spreads)}
            if len(texts) == 1:
                return texts.pop()
        return show(*self._exact_spread(place))

    def _exact_spread(self, place: int) -> tuple[float, float]:
        """Mean and standard deviation of one side in float64."""
        wide = np.empty(min(self.count, _LEAF))
        mean, parts = 0.0, [(start, min(start + _LEAF, self.count)) for start in range(0, self.count, _LEAF)]
        with np.errstate(all="ignore"):
            for start, stop in parts:
                mean += float(np.add.reduce(self._block(start, stop)[place], dtype=np.float64)) / self.count
            squares = 0.0
            for start, stop in parts:
                side = self._block(start, stop)[place]
                apart = np.subtract(side, mean, out=wide[: side.size], dtype=np.float64)
                squares += float(apart @ apart)
        return mean, math.nan if math.isnan(squares) else math.sqrt(squares / self.count)

    def _repetition(self, weight: Callable[[Array], Array]) -> float:
        """How much either side is a few values again and again, from 1 for one value to 0 for different ones.

        Roundings of different values cancel out; those of a value that comes again add up. This is the share of
        pairs of values in a sample that are equal, weighted by what they have in a sum.

        Args:
            weight: What values have in the sum.
        """
        found = 0.0
        with np.errstate(all="ignore"):
            for parts in self._samples:
                values = np.sort(np.concatenate(parts).astype(np.float64))
                weights = weight(values)
                together = np.add.reduceat(weights, np.flatnonzero(np.diff(values, prepend=-math.inf)))
                alone = float(weights @ weights)
                pairs = float(together @ together) - alone
                share = pairs / max(float(np.add.reduce(weights)) ** 2 - alone, EPSILON)
                # Each value is at least a pair with itself.
                share += alone / max(float(np.add.reduce(weights)) ** 2, EPSILON) * values.size / self.count
                found = max(found, share if math.isfinite(share) else 1.0)
        return found

    def release(self) -> None:
        """Give back the memory of values that are mapped from files."""
        release_pages(self.mine)
        release_pages(self.golden)

    def close(self) -> None:
        """Give back all memory: there is nothing more to compute."""
        self.release()
        _UNUSED.extend(each for each in (*self._scratch, *self._kept) if each is not None)
        _UNUSED.sort(key=len)
        del _UNUSED[: -len(self._scratch) - len(self._kept)]
        self._scratch, self._kept = [], []


_UNUSED: list[Array] = []
"""Arrays that may be written again: to get fresh memory takes longer than to write it."""


def _memory(count: int) -> Array:
    place = next((place for place, each in enumerate(_UNUSED) if each.size >= count), None)
    return np.empty(count, np.float32) if place is None else _UNUSED.pop(place)


def _total(side: Array) -> float:
    """Sum of a block, with an error that is bounded whatever the order of its terms."""
    whole = side.size - side.size % _SHORT_ROW
    rows = side[:whole].reshape(-1, _SHORT_ROW) @ _ONES
    return float(np.add.reduce(rows, dtype=np.float64) + np.add.reduce(side[whole:], dtype=np.float64))


def _dot(left: Array, right: Array) -> float:
    """Sum of the products of two blocks, row by row."""
    whole = left.size - left.size % _ROW
    rows = np.vecdot(left[:whole].reshape(-1, _ROW), right[:whole].reshape(-1, _ROW))
    return float(np.add.reduce(rows, dtype=np.float64) + np.vecdot(left[whole:], right[whole:]))
