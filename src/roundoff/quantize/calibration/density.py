"""Densities, and how far what quantizers make of them is from them."""

import math

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.distribution import Levels
from roundoff.quantize.calibration.float_grid import FloatHistogram

__all__ = ["FEW_ELEMENTS", "Density"]

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
