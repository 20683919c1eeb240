"""The range that changes the distribution of values least."""

import math

import numpy as np

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.density import FEW_ELEMENTS, NEGLIGIBLE, Density, find_range, levels_of
from roundoff.quantize.calibration.distribution import FIRST_LOOK_BITS, Distribution, Pieces
from roundoff.quantize.calibration.registry import Options, method

__all__ = ["entropy"]

# So few elements may be clipped whatever that does to the squared error: a share of those other than zero.
_STRAY = 1e-5
# Squared errors that differ by less are the same.
_SAME = 1e-6


@method("entropy")
def entropy(distribution: Distribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The range with the smallest Kullback-Leibler divergence between original and quantized distribution.

    Zero is always a level, so zeros are left out. Rounding to levels finer than the histogram loses nothing: many
    bits lead to the whole range. Divergence alone would ruin tensors whose few large values are what matters, such
    as probabilities, for the sake of the many small ones. So a range is considered only if its squared error is
    not larger than that of the whole range, or if it clips no more than stray elements.
    """
    rows = [_row(distribution.row(index), spec) for index in range(distribution.low.size)]
    low, high = (np.concatenate([np.empty(0), *(row[end] for row in rows)]) for end in (0, 1))
    return low, high


def _row(distribution: Distribution, spec: QuantSpec) -> tuple[Array, Array]:
    whole = np.minimum(distribution.low, 0.0), np.maximum(distribution.high, 0.0)
    if distribution.total[0] < FEW_ELEMENTS:
        return whole
    histogram = distribution.histogram()
    density = Density(histogram, float(distribution.low[0]), float(distribution.high[0]))
    pieces = Pieces(histogram.coarser(FIRST_LOOK_BITS), distribution.low, distribution.high)
    most = pieces.squared_error(levels_of(whole[0][:, None], whole[1][:, None], spec))

    # The smallest loss so far: a range is not taken when its own is larger by more than what is negligible.
    least = math.inf

    def loss(low: Array, high: Array) -> Array:
        nonlocal least
        levels = levels_of(low, high, spec)
        losses, clipped = density.divergence(levels.of_row(0), at_most=least * (1 + NEGLIGIBLE))
        stray = clipped <= _STRAY
        least = min(least, float(losses[stray].min(initial=np.inf)))
        # Squared errors cost most, so they are asked for last.
        asked = np.flatnonzero(~stray & (losses <= least * (1 + NEGLIGIBLE)))
        if asked.size:
            too_large = pieces.squared_error(levels.some(asked))[0] > most[0] * (1 + _SAME)
            losses[asked[too_large]] = np.inf
            least = min(least, float(losses[asked].min()))
        losses[~stray & (losses > least * (1 + NEGLIGIBLE))] = np.inf
        return losses[None]

    loss(whole[0][:, None], whole[1][:, None])
    return find_range(distribution, loss, symmetric=spec.symmetric)
