"""Where the bins of a histogram are: so that each holds the same number of levels of a quantizer.

With any other bins some would hold two levels and their neighbours one, and the picture of a smooth distribution
would be a comb.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.spread import Spread
from roundoff.core.distributions import Bins

__all__ = ["Layout", "automatic_bins", "counted_in", "lay_out"]

_FEWEST_BINS, _MOST_BINS = 16, 200

# Rounding must not turn a whole number of steps into the next one.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Layout:
    """Equal bins.

    Attributes:
        start: Lower border of the first.
        width: Of each.
        bins: How many.
    """

    start: float
    width: float
    bins: int


def automatic_bins(count: int) -> int:
    """Bins for so many values: few enough that they are not mostly empty."""
    return min(_MOST_BINS, max(_FEWEST_BINS, 2 * math.isqrt(count)))


def lay_out(parts: Iterable[Spread], most: int, *, step: float | None = None) -> Layout | None:
    """Bins that hold all values of one or more sets.

    Args:
        parts: The sets.
        most: How many bins at most; with a step it may be two more.
        step: Distance between the levels of a quantizer; None when there are none.

    Returns:
        None when there are no values.
    """
    held = [part for part in parts if part.count]
    if not held:
        return None
    low, high = min(part.low for part in held), max(part.high for part in held)
    span = high / 2 - low / 2  # halves: the whole may be infinite
    if span <= 0:
        width = abs(low) / most or 1.0
        return Layout(low - width / 2, width, 1)
    if step is None or not math.isfinite(low / step) or not math.isfinite(high / step):
        return Layout(low, 2 * (span / most), most)
    wanted = 2 * (span / most)
    pieces = math.floor(step / wanted)
    # An odd number of bins to a step, or whole steps to a bin: then no border is on a level.
    unit = step if pieces < 1 else step / (pieces if pieces % 2 else pieces - 1)
    width = unit * max(1, math.ceil(wanted / unit - _SLACK))
    start = (math.floor(low / unit + 0.5) - 0.5) * unit
    return Layout(start, width, math.floor((high - start) / width) + 1)


def counted_in(spread: Spread, layout: Layout) -> Bins:
    """How many values each bin holds."""
    edges = layout.start + layout.width * np.arange(layout.bins + 1)
    below = spread.below(edges)
    # Rounding of the borders must not lose the outermost values.
    below[0], below[-1] = 0, spread.count
    return Bins(layout.start, layout.width, tuple(np.diff(below).tolist()))
