"""The range without a small share of outermost elements."""

import numpy as np

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.quantize.calibration.distribution import Distribution
from roundoff.quantize.calibration.registry import Option, Options, method

__all__ = ["percentile"]

# Products of shares and counts are a little off; an element is dropped only when the share allows it whole.
_TOLERANCE = 1e-9


@method(
    "percentile",
    percentile=Option(0.9999, 0.5, 100, "the share of elements that the range keeps, as 0.9999 or 99.99 percent"),
)
def percentile(distribution: Distribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The range that keeps a given share of all elements of all samples.

    Symmetric quantizers drop the largest magnitudes. Others drop the same number on both sides, but where all
    elements lie on one side of zero only the far end: the range goes on to zero anyway.
    """
    dropped = (1 - _share(options["percentile"])) * distribution.total
    if spec.symmetric:
        magnitudes = distribution.magnitudes()
        largest = magnitudes.smallest(magnitudes.total - 1 - np.floor(dropped + _TOLERANCE))
        return np.maximum(distribution.low, -largest), np.minimum(distribution.high, largest)
    one_sided = (distribution.low >= 0) | (distribution.high <= 0)
    each = np.floor(np.where(one_sided, dropped, dropped / 2) + _TOLERANCE)
    low = distribution.smallest(np.where(distribution.low >= 0, 0, each))
    high = distribution.smallest(distribution.total - 1 - np.where(distribution.high <= 0, 0, each))
    return low, high


def _share(value: float) -> float:
    if 1 < value < 50:
        what = f"The option percentile is {value:g}, which is neither a share nor a percentage that makes sense."
        raise BadInput(what, fix="give the share of elements to keep, as in percentile=0.9999 or percentile=99.99")
    return value if value <= 1 else value / 100
