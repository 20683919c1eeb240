"""The whole range, as it was observed."""

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.distribution import Distribution
from roundoff.quantize.calibration.registry import Options, method

__all__ = ["minmax"]


@method("minmax", needs="range")
def minmax(distribution: Distribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """From the smallest to the largest value."""
    return distribution.low, distribution.high
