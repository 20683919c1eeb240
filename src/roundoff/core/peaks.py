"""How many peaks a distribution has for certain.

Of all distributions whose cumulative function stays within a given distance of the one observed, the taut string
has the fewest peaks: a string pulled tight between the two ends, inside a tube around the cumulative function
(Davies and Kovac, *Densities, spectral densities and modality*, 2004). So no peak is counted that noise of that
size, the width of a bin, or the gaps between the values of a quantized tensor could have made.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["certain_peaks", "tube_radius"]

SMALLEST_RADIUS = 0.01
"""Whatever less than about 4 % of the values do is no peak."""

# Times 1 / sqrt(n) it is the distance from the true cumulative function that n independent values stay within in
# 95 of 100 cases (Kolmogorov).
_KOLMOGOROV = 1.358


def tube_radius(count: int) -> float:
    """How far the cumulative function of so many values may be from the true one."""
    return max(SMALLEST_RADIUS, _KOLMOGOROV / math.sqrt(max(1, count)))


def certain_peaks(
    edges: Sequence[float], counts: Sequence[float], *, radius: float | None = None
) -> tuple[float, ...]:
    """Where the peaks are that cannot be explained away.

    Args:
        edges: Borders of bins, strictly ascending, one more than counts.
        counts: Values in each bin, not negative.
        radius: Largest distance between cumulative functions that means nothing; by default what so many
            independent values can be off by, and at least one per cent.

    Returns:
        The middle of each peak in ascending order; one for a distribution that could have a single peak, or be
        flat; none when there are no values.
    """
    total = sum(counts)
    if total <= 0:
        return ()
    running, cumulative = 0.0, [0.0]
    for count in counts:
        running += count
        cumulative.append(running / total)
    knots = _taut_string(edges, cumulative, tube_radius(round(total)) if radius is None else radius)
    return _maxima(edges, knots)


def _taut_string(x: Sequence[float], y: Sequence[float], radius: float) -> list[tuple[int, float]]:
    """The shortest path from the first to the last point that stays within a distance above and below all others.

    Returns:
        Where it bends: position in x, and height there.
    """
    last = len(x) - 1
    floor = [y[0], *(each - radius for each in y[1:last]), y[last]]
    ceiling = [y[0], *(each + radius for each in y[1:last]), y[last]]
    bends, at, height = [(0, y[0])], 0, y[0]
    while at < last:
        # The steepest line that has to be taken, and the flattest; both begin at the last bend.
        steepest_floor, flattest_ceiling = -math.inf, math.inf
        floor_at = ceiling_at = at
        for here in range(at + 1, last + 1):
            distance = x[here] - x[at]
            to_floor, to_ceiling = (floor[here] - height) / distance, (ceiling[here] - height) / distance
            if to_floor > flattest_ceiling:
                at, height = ceiling_at, ceiling[ceiling_at]
                break
            if to_ceiling < steepest_floor:
                at, height = floor_at, floor[floor_at]
                break
            if to_floor >= steepest_floor:
                steepest_floor, floor_at = to_floor, here
            if to_ceiling <= flattest_ceiling:
                flattest_ceiling, ceiling_at = to_ceiling, here
        else:
            at, height = last, y[last]
        bends.append((at, height))
    return bends


def _maxima(x: Sequence[float], bends: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Middles of the stretches that are steeper than both neighbours."""
    slopes: list[tuple[float, float, float]] = []
    for (left, low), (right, high) in pairwise(bends):
        slope = (high - low) / (x[right] - x[left])
        if slopes and math.isclose(slope, slopes[-1][0], rel_tol=1e-9, abs_tol=1e-300):
            slopes[-1] = (slope, slopes[-1][1], x[right])
        else:
            slopes.append((slope, x[left], x[right]))
    found = []
    for index, (slope, start, end) in enumerate(slopes):
        before = slopes[index - 1][0] if index else -math.inf
        after = slopes[index + 1][0] if index + 1 < len(slopes) else -math.inf
        if slope > before and slope > after:
            found.append((start + end) / 2)
    return tuple(found)
