"""Densities, and how far what quantizers make of them is from them."""

import math
from collections.abc import Callable

import numpy as np

from roundoff.core.quantizers import QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.distribution import Levels, ObservedDistribution
from roundoff.quantize.calibration.histogram import FloatHistogram

# Elements that a bin holds at least: with fewer, chance would look like structure that a quantizer destroys.
_PER_BIN = 32
FEW_ELEMENTS = 4 * _PER_BIN
"""Fewer than this do not tell anything that rounding could destroy: no range is better than the whole one."""

# A level without elements is taken to have this many; otherwise clipping to it would be infinitely bad.
_LEAST_ELEMENTS = 0.25
# Less than this is the rounding of the sums.
_NOTHING = 1e-12
# What exceeds the expected effect of chance by less than so many standard deviations is not taken for a loss.
_SPREADS = 2.0


class Density:
    """A density that is constant in each of some bins; bins that hold few elements are joined to wider ones.

    Widths count only where there are elements: values in between that never occur are no part of the distribution.

    Args:
        histogram: Of one row.
        low: Smallest value.
        high: Largest value.
    """

    def __init__(self, histogram: FloatHistogram, low: float, high: float) -> None:
        edges, counts = (each[0] for each in histogram.ascending())
        # The bin around zero, with the zeros, is the only one that a level always contains.
        counts = np.where((edges[:-1] < 0) & (edges[1:] > 0), 0, counts)
        used = np.flatnonzero(counts)
        start, stop = (used[0], used[-1] + 1) if used.size else (0, 1)
        edges, counts = np.clip(edges[start : stop + 1], low, high), counts[start:stop]
        self._total = int(counts.sum())
        self._edges = edges
        self._below = _running(counts / max(1, self._total))
        width_below = _running(np.where(counts > 0, np.diff(edges), 0.0))
        joined = self._joined(counts)
        self._joined_edges = edges[joined]
        share, width = np.diff(self._below[joined]), np.diff(width_below[joined])
        density = np.divide(share, width, out=np.ones_like(share), where=(share > 0) & (width > 0))
        information = _running(share * np.log(density))
        self._numbers = np.arange(joined.size, dtype=np.float64)
        sums = (self._below[joined], width_below[joined], information)
        self._sums = [(each, np.diff(each)) for each in sums]
        # Cells finer than this see nothing but the constant density of a bin.
        self._resolved = 2 << histogram.grid.bits

    def divergence(self, levels: Levels, *, at_most: float = math.inf) -> tuple[Array, Array]:
        """Kullback-Leibler divergence, in nats, of what each of several quantizers makes of it.

        The elements of each level are spread evenly over the values that are rounded to it; what is clipped moves
        to the outermost levels. Levels narrower than the bins lose nothing.

        Args:
            levels: Of the quantizers, [candidates].
            at_most: What is larger than this may be given as infinite, which saves time.

        Returns:
            The divergence, and the share of elements other than zero that is clipped; both [candidates].
        """
        below = self._below_outermost(levels)
        clipped = below[:, 0] + self._below[-1] - below[:, 3]
        if self._total == 0:
            return np.zeros(levels.step.shape), clipped
        least = _LEAST_ELEMENTS / self._total
        inside = np.maximum(below[:, 3] - below[:, 0], least)
        lost = _clipped(below, inside, least)
        asked = np.flatnonzero(lost <= max(at_most, _NOTHING))
        found = np.full_like(lost, np.inf)
        if asked.size:
            # What is clipped is taken to have lost by rounding as much as the rest.
            lost = lost[asked] + self._rounded(levels.some(asked)) / inside[asked]
            found[asked] = np.where(lost > _NOTHING, lost, 0.0)
        return found, clipped

    def _joined(self, counts: Array) -> Array:
        """Indices of the edges between which enough elements lie, outwards from zero."""
        enough = max(_PER_BIN, math.sqrt(self._total) / 4)
        zero = min(int(np.searchsorted(self._edges, 0.0)), counts.size)
        positive, negative = (
            1 + np.flatnonzero(np.diff(np.floor(_running(side) / enough)))
            for side in (counts[zero:], counts[:zero][::-1])
        )
        joined = np.concatenate([[0], zero - negative[::-1], [zero], zero + positive, [counts.size]])
        return np.asarray(joined[np.append(True, joined[1:] > joined[:-1])])

    def _rounded(self, levels: Levels) -> Array:
        """What is lost by spreading the elements of each level evenly."""
        count = int(np.max(levels.last - levels.first)) + 1
        if count <= 2 * self._resolved:
            cells = levels.first[:, None] + np.arange(count + 1)
        else:
            cells = np.arange(-self._resolved, self._resolved + 1)
            cells = np.clip(cells[None, :], levels.first[:, None], levels.last[:, None] + 1)
        borders = self._borders(levels, cells)
        places = np.interp(borders, self._joined_edges, self._numbers)
        bins = _steps(places)
        # Found once, a place serves all sums: looking it up costs more than all the rest.
        whole = np.minimum(places.astype(np.int64), self._numbers.size - 2)
        part = places - whole
        share, width, information = (_steps(sums[whole] + part * growth[whole]) for sums, growth in self._sums)
        # A level narrower than two bins sees a constant density, and at most the chance in where bins meet.
        used = (bins >= 2) & (share > 0) & (width > 0)
        density = np.divide(share, width, out=np.ones_like(share), where=used)
        # Sum over bins of p log(p / width), less that of the level as a whole: the divergence from an even spread.
        lost = np.sum(np.where(used, information - share * np.log(density), 0.0), axis=1)
        # Chance alone makes bins of a level differ: by half an element for each bin, with this spread.
        chance = np.sum(np.where(used, bins - 1, 0.0), axis=1) / 2
        return np.asarray(np.maximum(lost - (chance + _SPREADS * np.sqrt(chance)) / self._total, 0.0))

    def _below_outermost(self, levels: Levels) -> Array:
        """Share of elements below the borders of the lowest and of the highest level, [candidates, 4]."""
        cells = np.stack([levels.first, levels.first + 1, levels.last, levels.last + 1], axis=1)
        return np.asarray(np.interp(self._borders(levels, cells), self._edges, self._below))

    def _borders(self, levels: Levels, cells: Array) -> Array:
        """Where the values begin that are rounded to a level."""
        return np.asarray((cells - (0.0 if levels.floor else 0.5)) * levels.step[:, None])


def _clipped(below: Array, inside: Array, least: float) -> Array:
    """What is lost by moving elements beyond the outermost levels to these.

    Args:
        below: Share of elements below the borders of the lowest and of the highest level, [candidates, 4].
        inside: Share of elements that are not moved.
        least: The share that a level has at least.
    """
    # KL(P, Q) as TensorRT defines it: P has the clipped elements moved to the outermost levels, Q is what lies
    # inside, normalized to 1. P / Q is `inside` everywhere, times `ratio` at the outermost levels.
    beyond = np.stack([below[:, 0], 1 - below[:, 3]], axis=1)
    outermost = np.stack([below[:, 1] - below[:, 0], below[:, 3] - below[:, 2]], axis=1)
    together = beyond + outermost
    ratio = np.maximum(together, least) / np.maximum(outermost, least)
    return np.asarray(np.sum(together * np.log(ratio), axis=1) + np.log(inside))


def _running(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])


def _steps(values: Array) -> Array:
    """Differences of neighbours in each row."""
    return np.asarray(values[:, 1:] - values[:, :-1])


# Searching the range with the smallest loss, for all rows at the same time.

Loss = Callable[[Array, Array], Array]
"""The loss of candidate ranges: low and high, [rows, candidates], to [rows, candidates]."""

# Candidates to a doubling in the first look.
_PER_DOUBLING = 6
# Candidates on both sides of the best one so far, at the distances of each closer look (powers of two).
_AROUND = 4
_CLOSER = (1 / 32, 1 / 128)
_MOST_DOUBLINGS = 40
NEGLIGIBLE = 1e-4
"""A narrower range whose loss is smaller by less than this share is not taken."""


def levels_of(low: Array, high: Array, spec: QuantSpec) -> Levels:
    """The levels of the quantizers that ranges lead to."""
    params = parameters_from_range(low, high, spec)
    step = params.scale.astype(np.float64)
    first = (spec.code_min - params.zero_point).astype(np.float64)
    return Levels(step, first, first + (spec.code_max - spec.code_min), floor=spec.rounding == "floor")


def find_range(
    distribution: ObservedDistribution, loss: Loss, *, first_look: Loss | None = None, symmetric: bool
) -> tuple[Array, Array]:
    """The range with the smallest loss within what was observed; of equal losses the widest.

    Ranges are shrunk as a whole, down to where half of the elements that are not zero would be clipped; then,
    unless one number decides both sides, each side by itself; then looked at more closely around the best.

    Args:
        distribution: Of the elements.
        loss: What to minimize.
        first_look: A cheaper estimate of it, for all but the closer look.
        symmetric: Whether one number decides both sides.
    """
    low, high = np.minimum(distribution.low, 0.0), np.maximum(distribution.high, 0.0)
    search = _RangeSearch(loss if first_look is None else first_look, low, high)
    # Losses have several valleys, so that the first look is a grid: even in logarithms, as steps are.
    shrinking = _shrinking(distribution.typical(), np.maximum(high, -low))
    two_sided = not symmetric and bool(np.any((low < 0) & (high > 0)))
    if two_sided:
        one_sided = np.append(shrinking, np.zeros((len(shrinking), 1)), axis=1)
        whole = np.ones_like(one_sided)
        search.try_factors((shrinking, shrinking), (whole, one_sided), (one_sided, whole))
        kept_low, kept_high = (np.broadcast_to(kept[:, None], whole.shape) for kept in search.factors)
        search.try_factors((kept_low, one_sided), (one_sided, kept_high))
    else:
        search.try_factors((shrinking, shrinking))
    if first_look is not None:
        search.judge_again(loss)
    for distance in _CLOSER:
        search.try_around(2.0 ** (distance * np.arange(_AROUND, -_AROUND - 1, -1)), two_sided=two_sided)
    return search.low, search.high


def _shrinking(typical: Array, largest: Array) -> Array:
    """Factors of the range, from 1 to where it ends at the typical magnitude; [rows, candidates]."""
    smallest = np.divide(typical, largest, out=np.ones_like(largest), where=largest > 0)
    doublings = min(_MOST_DOUBLINGS, -math.log2(max(float(smallest.min(initial=1.0)), 2.0**-_MOST_DOUBLINGS)))
    powers = np.arange(math.ceil(doublings * _PER_DOUBLING) + 1) / -_PER_DOUBLING
    return np.maximum(2.0**powers, smallest[:, None])


class _RangeSearch:
    """The best ranges so far, as parts of the whole range.

    Attributes:
        factors: Of the lower and the upper end, [2, rows].

    Args:
        loss: What to minimize.
        low: Lower end of the whole range of each row, at most 0.
        high: Upper end, at least 0.
    """

    def __init__(self, loss: Loss, low: Array, high: Array) -> None:
        self._loss = loss
        self._ends = np.stack([low, high])
        self._best = np.full(low.shape, np.inf)
        self.factors = np.ones_like(self._ends)

    @property
    def low(self) -> Array:
        """Lower ends of the best ranges."""
        return np.asarray(self._ends[0] * self.factors[0])

    @property
    def high(self) -> Array:
        """Upper ends of the best ranges."""
        return np.asarray(self._ends[1] * self.factors[1])

    def judge_again(self, loss: Loss) -> None:
        """Let another loss choose between the best ranges so far and the whole ones."""
        found, self.factors = self.factors, np.ones_like(self.factors)
        self._loss, self._best = loss, np.full_like(self._best, np.inf)
        self._try(np.stack([np.ones_like(found), found], axis=2))

    def try_factors(self, *pairs: tuple[Array, Array]) -> None:
        """Try parts of the whole range: pairs of factors of its lower and upper end, each [rows, candidates]."""
        self._try(np.stack([np.concatenate([pair[end] for pair in pairs], axis=1) for end in (0, 1)]))

    def try_around(self, steps: Array, *, two_sided: bool) -> None:
        """Try multiples of the best range so far, none larger than the whole one; [candidates]."""
        kept = self.factors[:, :, None]
        both = np.minimum(kept * steps, 1.0)
        if two_sided:
            same = np.broadcast_to(kept, both.shape)
            both = np.concatenate([both, np.stack([same[0], both[1]]), np.stack([both[0], same[1]])], axis=2)
        self._try(both)

    def _try(self, candidates: Array) -> None:
        """Keep the best of the candidates, [ends, rows, candidates], where it is better than the best so far.

        Candidates come with the widest first, and narrower ones must earn it.
        """
        low, high = self._ends[:, :, None] * candidates
        # Without any width the scale would be 1, whatever the values are.
        nothing = (low == high) & np.any(self._ends != 0, axis=0)[:, None]
        losses = np.where(nothing, np.inf, self._loss(low, high))
        rows = np.arange(losses.shape[0])
        chosen = np.argmax(losses <= losses.min(axis=1, keepdims=True) * (1 + NEGLIGIBLE), axis=1)
        better = losses[rows, chosen] < self._best * (1 - NEGLIGIBLE)
        self._best = np.where(better, losses[rows, chosen], self._best)
        self.factors = np.where(better, candidates[:, rows, chosen], self.factors)
