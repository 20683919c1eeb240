"""The range with the smallest mean squared error."""

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.density import Loss, find_range, levels_of
from roundoff.quantize.calibration.distribution import Distribution
from roundoff.quantize.calibration.registry import Options, method

__all__ = ["mse"]


@method("mse")
def mse(distribution: Distribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The range with the smallest mean squared error after quantizing and back.

    The error is that of the very quantizer the range leads to: its levels, its rounding, its saturation. Within a
    bin of a histogram it is integrated, so that steps far smaller than a bin are judged rightly too.
    """
    return find_range(
        distribution,
        _error(distribution, spec),
        first_look=_error(distribution.coarser(), spec),
        symmetric=spec.symmetric,
    )


def _error(distribution: Distribution, spec: QuantSpec) -> Loss:
    return lambda low, high: distribution.squared_error(levels_of(low, high, spec))
