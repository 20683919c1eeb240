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
from roundoff.measure.statistics import half_ends, release_pages, to_float32

EPSILON = float(np.finfo(np.float64).eps)
"""What the vendor takes for zero."""

_FLOAT32_EPSILON = np.finfo(np.float32).eps
_ROUNDING = float(_FLOAT32_EPSILON) / 2
"""The largest relative error of one operation in float32."""

_LEAF = 1 << 19
"""Elements of a block: with smaller ones the calls take longer than the sums, larger ones leave the caches."""

_RELEASED = 1 << 26
"""Bytes of both sides after which memory of mapped files is given back; to get it again takes time, too."""

_UNROLLED = 8
"""numpy adds eight partial sums at once, so that its halves begin at multiples of eight."""

_LOOP = 128
"""Elements that numpy adds in one loop before it begins to halve."""

_ROW = 1 << 8
"""Elements of one dot product or sum that BLAS takes; it, too, adds eight partial sums at once or more."""

_ROW_ERROR = (_ROW / _UNROLLED + math.log2(_UNROLLED) + 1) * _ROUNDING
"""The largest relative error of such a sum of products of one sign."""

_MANY = 1 << 18
"""Elements from which shorter ways are taken: fewer do not take long."""

_SAMPLED = 1 << 14
"""Values by which is told how much of a tensor is repetition, and what roundings come to on the average."""

_REPEATED = 1 / 500
"""Repetition from which roundings of the many terms of a sum do not cancel out any more."""

_SIGMAS = 4.5
"""How many deviations a mean of a sample may be off."""

_COSINE_ERROR = 6.5 * _ROUNDING
"""The vendor's error in a cosine of 1 whose terms' roundings cancel out: that of the last halves that it adds, in
the two lengths and in the sum of products. In tensors of many kinds its deviation is 1.1 roundings."""

_HELD = (1e-24, 1e36)
"""Between which a sum of squares neither loses terms that are too small for float32, nor is too large for it."""

_ONES = np.ones(_ROW, np.float32)
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
        self._lows: dict[tuple[int, int], np.floating[Any]] = {}
        self._totals = [0.0, 0.0]
        self._lengths = [0.0, 0.0]
        self._samples: tuple[list[Array], list[Array]] = ([], [])
        self._product = self._apart = self._squares = self._logs = 0.0
        self._scratch = [_memory(min(self.count, _LEAF)) for _ in range(4)]
        self._read = self._start = 0

    def _block(self, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
        """Both sides of a block as float32, not to be changed, and two arrays of its length to work in."""
        self._begin(start, stop)
        spare = [part[: stop - start] for part in self._scratch]
        sides = []
        for place, (whole, out) in enumerate(zip((self.mine, self.golden), spare, strict=False)):
            part = whole[start:stop]
            if part.dtype != np.float32:
                to_float32(part, out, finite=(start, place) in self._lows)
                part = out
            sides.append(part)
        return sides[0], sides[1], spare[2], spare[3]

    def _begin(self, start: int, stop: int) -> None:
        self._start = start
        self._read += (stop - start) * (self.mine.itemsize + self.golden.itemsize)
        if self._read > _RELEASED:
            self._read = 0
            self.release()

    def _sum(self, term: Callable[[Array, Array, Array, Array], Array]) -> float:
        """Sum of what is computed of both sides, given two arrays to work in, with the vendor's bits."""

        def leaf(start: int, stop: int) -> Array:
            found: Array = np.add.reduce(term(*self._block(start, stop)), keepdims=True)
            return found

        with np.errstate(all="ignore"):
            return float(tree_sum(self.count, leaf, last_first=True)[0])

    @cached_property
    def _sums(self) -> Array:
        """Sums of relative errors, and of both sides as densities; all else of the pass is kept beside."""
        with np.errstate(all="ignore"):
            if "density" in self.needs:
                tree_sum(self.count, self._reach)
            return tree_sum(self.count, self._first)

    @property
    def relative_sum(self) -> np.floating[Any]:
        """Sum of relative errors."""
        total: np.floating[Any] = self._sums[0]
        return total

    def _reach(self, start: int, stop: int) -> Array:
        """Keep the smallest and the largest value of a block: densities need those of the whole."""
        self._begin(start, stop)
        for place, side in enumerate((self.mine, self.golden) if stop > start else ()):
            part = side[start:stop]
            found = half_ends(part) if part.dtype == np.float16 and part.flags.c_contiguous else None
            if found is None:
                values = part.astype(np.float32, copy=False)
                found = np.minimum.reduce(values), np.maximum.reduce(values)
            if np.isfinite(found).all():
                self._lows[start, place] = found[0]
            self._low[place] = np.minimum(self._low[place], found[0])
            self._high[place] = np.maximum(self._high[place], found[1])
        return np.zeros(1, np.float32)

    def _first(self, start: int, stop: int) -> Array:
        mine, golden, work, other = self._block(start, stop)
        found = np.zeros(3, np.float32)
        if start == stop:
            return found
        for place, side in enumerate((mine, golden)):
            self._samples[place].append(side[:: self.count // _SAMPLED | 1].copy())
            if "lengths" in self.needs:
                self._lengths[place] += _dot(side, side)
            if "spread" in self.needs:
                self._totals[place] += _total(side)
        if "cosine" in self.needs:
            self._product += _dot(mine, golden)
        if "difference" in self.needs:
            np.abs(np.subtract(mine, golden, out=work), out=work)
            self._apart += _total(work)
            self.largest_difference = np.maximum(self.largest_difference, np.maximum.reduce(work))
            self._squares += _dot(work, work)
        if "relative" in self.needs:
            found[0] = self._relative(mine, golden, work, other)
        if "density" in self.needs:
            found[1:] = self._densities(mine, golden, work, other)
        return found

    def _densities(self, mine: Array, golden: Array, work: Array, other: Array) -> list[np.floating[Any]]:
        """Sums of both sides as densities; what leads to their divergence is kept beside."""
        parts = ((mine, work), (golden, other))
        sums = [np.add.reduce(self._density(side, place, out=out)) for place, (side, out) in enumerate(parts)]
        if self.count >= _MANY:
            np.log(np.divide(work, other, out=other), out=other)
            self._logs += _dot(work, other)
        return sums

    def _relative(self, mine: Array, golden: Array, work: Array, other: Array) -> np.floating[Any]:
        """The sum of relative errors of a block; the largest is kept beside."""
        # |mine / golden - 1|, not |mine - golden| / |golden|: the same in theory, another rounding in float32.
        np.divide(mine, golden, out=work)
        np.abs(np.subtract(work, 1, out=work), out=work)
        largest = np.maximum.reduce(work)
        # Beside a golden of next to nothing a half gives 1 or more, or no number: it is zero, or not that small.
        # Where golden is a half itself, it is zero then.
        if not (largest < 1 and np.float16 in (self.mine.dtype, self.golden.dtype)):
            np.abs(golden, out=other)
            if not np.minimum.reduce(other) > EPSILON:
                np.copyto(work, 0, where=~(other > EPSILON))
                largest = np.maximum.reduce(work)
        self.largest_relative = np.maximum(self.largest_relative, largest)
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

    @property
    def lengths(self) -> tuple[float, float]:
        """Squared lengths of both sides: near enough, or with the vendor's bits where float32 matters."""
        _ = self._sums
        near = self._lengths[0], self._lengths[1]
        return near if self.count >= _MANY and all(map(_held, near)) else self._exact_lengths

    @cached_property
    def _exact_lengths(self) -> tuple[float, float]:
        def leaf(start: int, stop: int) -> Array:
            mine, golden, work, other = self._block(start, stop)
            squares = np.multiply(mine, mine, out=work), np.multiply(golden, golden, out=other)
            return np.array([np.add.reduce(each) for each in squares])

        with np.errstate(all="ignore"):
            mine, golden = tree_sum(self.count, leaf, last_first=True)
        return mine, golden

    def cosine(self, show: Show) -> str:
        """Sum of the products of both sides, each divided by its length, as it is shown."""

        def exact() -> float:
            # Each side is divided by its length before the product: the vendor's order, which keeps large
            # values from overflowing float32 and rounds otherwise than one division at the end.
            lengths = [np.sqrt(total) for total in self._exact_lengths]

            def term(mine: Array, golden: Array, work: Array, other: Array) -> Array:
                np.divide(mine, lengths[0], out=work)
                np.divide(golden, lengths[1], out=other)
                return np.multiply(work, other, out=work)

            return self._sum(term)

        mine, golden = self.lengths
        with np.errstate(all="ignore"):
            near = float(self._product / np.sqrt(np.float64(mine) * np.float64(golden)))
        margin = math.nan
        if self.count >= _MANY and self._repetition < _REPEATED:
            margin = _COSINE_ERROR
        return self._settled(show, near, margin=margin, exact=exact)

    def absolute_difference(self, show: Show) -> str:
        """Sum of the absolute differences, as it is shown."""

        def term(mine: Array, golden: Array, work: Array, other: Array) -> Array:
            return np.abs(np.subtract(mine, golden, out=work), out=work)

        _ = self._sums
        margin = self._apart * (_ROW_ERROR + self._tree_error)
        return self._settled(show, self._apart, margin=margin, exact=lambda: self._sum(term))

    def squared_difference(self, show: Show) -> str:
        """Sum of the squared differences, as it is shown."""
        near = self._near_squares
        margin = near * (_ROW_ERROR + self._tree_error)
        return self._settled(show, near, margin=margin, exact=lambda: self._exact_squares)

    @property
    def _near_squares(self) -> float:
        """Sum of the squared differences; no number where float32 cannot hold it or its terms."""
        _ = self._sums
        return self._squares if _held(self._squares) or self.largest_difference == 0 else math.nan

    def squared_distance(self, show: Show) -> str:
        """Sum of the squared differences, relative to that of golden, as it is shown; 0 for a golden of zeros."""

        def exact() -> float:
            golden = np.float32(self._exact_lengths[1])
            return 0.0 if np.sqrt(golden) <= EPSILON else float(np.float32(self._exact_squares) / golden)

        golden = self.lengths[1]
        with np.errstate(all="ignore"):
            near = float(np.float64(self._near_squares) / golden) if _held(golden) else math.nan
            margin = 2 * near * (_ROW_ERROR + self._tree_error)
            return self._settled(show, near, margin=margin, exact=exact)

    @cached_property
    def _exact_squares(self) -> float:
        def term(mine: Array, golden: Array, work: Array, other: Array) -> Array:
            np.subtract(mine, golden, out=work)
            return np.multiply(work, work, out=work)

        return self._sum(term)

    def _density(self, side: Array, place: int, *, out: Array) -> Array:
        """One side of a block as a density."""
        return self._stretched(side, place, out=out, smallest=self._lows.get((self._start, place)))

    def _stretched(
        self, side: Array, place: int, *, out: Array, smallest: np.floating[Any] | None = None
    ) -> Array:
        """Values moved and stretched to reach from 0 to 1, and then kept above the smallest step of float32."""
        low = self._low[place]
        stretch = self._high[place] - low
        if stretch == 0:
            np.copyto(out, side)
        else:
            np.divide(np.subtract(side, low, out=out), stretch, out=out)
            smallest = None if smallest is None else (smallest - low) / stretch
        # Most blocks hold nothing as small as that; the smallest of each is known.
        if smallest is not None and smallest >= _FLOAT32_EPSILON:
            return out
        return np.maximum(out, _LEAST[: out.size], out=out)

    def divergence(self, show: Show) -> str:
        """Kullback-Leibler divergence of both sides taken as densities, as it is shown."""
        mine, golden = self._sums[1:]

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
            # The vendor's ratio is rounded three times, which comes to something where ratios are next to 1.
            rounded, unsure = self._rounded_ratios(apart)
            near, margin = near + rounded, margin + _SIGMAS * unsure
        return self._settled(show, near, margin=margin, exact=lambda: self._sum(term))

    def spread(self, place: int, show: Callable[[float, float], str]) -> str:
        """Mean and standard deviation of one side, of mine (0) or of golden (1), as they are shown."""
        if self.count == 0:
            return show(math.nan, math.nan)
        square = float(self.lengths[place]) / self.count
        mean = self._totals[place] / self.count
        variance = square - mean * mean
        if self.count >= _MANY and math.isfinite(variance):
            off = _ROW_ERROR * math.sqrt(square)
            loose = _ROW_ERROR * square + (2 * abs(mean) + off) * off
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

    @property
    def _repetition(self) -> float:
        """How much either side is a few values again and again, from 1 for one value to 0 for different ones.

        Roundings of different values cancel out; those of a value that comes again add up. This is the share of
        pairs of values in a sample that are equal, weighted by what they have in a sum of squares.
        """
        found = 0.0
        with np.errstate(all="ignore"):
            for parts in self._samples:
                values = np.sort(np.concatenate(parts)).astype(np.float64)
                weights = np.square(values)
                together = np.add.reduceat(weights, np.flatnonzero(np.diff(values, prepend=-math.inf)))
                alone = float(weights @ weights)
                pairs = float(together @ together) - alone
                share = pairs / max(float(np.add.reduce(weights)) ** 2 - alone, EPSILON)
                # Each value is at least a pair with itself.
                share += alone / max(float(np.add.reduce(weights)) ** 2, EPSILON) * values.size / self.count
                found = max(found, share if math.isfinite(share) else 1.0)
        return found

    def _rounded_ratios(self, apart: float) -> tuple[float, float]:
        """What roundings of the vendor's ratios of densities add to the divergence; with its standard deviation.

        Both are those of a sample, of which the logarithms are taken in the vendor's way and in the shorter one.

        Args:
            apart: The logarithm of the ratio of both sums, which the shorter way adds at the end.
        """
        sampled = [np.concatenate(parts) for parts in self._samples]
        mine, golden = (self._stretched(side, place, out=side) for place, side in enumerate(sampled))
        sums = self._sums[1:]
        with np.errstate(all="ignore"):
            slow = np.log((mine / sums[0]) / (golden / sums[1])).astype(np.float64)
            off = slow - np.log(mine / golden) - apart
            weights = mine / np.add.reduce(mine, dtype=np.float64)
            mean = float(off @ weights)
            return mean, float(np.sqrt(np.square((off - mean) * weights).sum()))

    def release(self) -> None:
        """Give back the memory of values that are mapped from files."""
        release_pages(self.mine)
        release_pages(self.golden)

    def close(self) -> None:
        """Give back all memory: there is nothing more to compute."""
        self.release()
        _UNUSED.extend(self._scratch)
        _UNUSED.sort(key=len)
        del _UNUSED[: -len(self._scratch)]
        self._scratch = []


_UNUSED: list[Array] = []
"""Arrays that may be written again: to get fresh memory takes longer than to write it."""


def _memory(count: int) -> Array:
    place = next((place for place, each in enumerate(_UNUSED) if each.size >= count), None)
    return np.empty(count, np.float32) if place is None else _UNUSED.pop(place)


def _held(squares: float) -> bool:
    """Whether a sum of squares is one that float32 can hold, terms and all."""
    return _HELD[0] < squares < _HELD[1]


def _total(side: Array) -> float:
    """Sum of a block, with an error that is bounded whatever the order of its terms."""
    whole = side.size - side.size % _ROW
    rows = side[:whole].reshape(-1, _ROW) @ _ONES
    return float(np.add.reduce(rows, dtype=np.float64) + np.add.reduce(side[whole:], dtype=np.float64))


def _dot(left: Array, right: Array) -> float:
    """Sum of the products of two blocks, row by row."""
    whole = left.size - left.size % _ROW
    rows = np.vecdot(left[:whole].reshape(-1, _ROW), right[:whole].reshape(-1, _ROW))
    return float(np.add.reduce(rows, dtype=np.float64) + np.vecdot(left[whole:], right[whole:]))
