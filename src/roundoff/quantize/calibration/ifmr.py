"""A search around the outermost elements, the default of one vendor's toolchain ("input feature map range")."""

from dataclasses import replace

import numpy as np

from roundoff.core.quantizers import QuantSpec, Rounding, round_values
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.quantize.calibration.density import levels_of
from roundoff.quantize.calibration.distribution import Distribution
from roundoff.quantize.calibration.registry import Option, Options, method

__all__ = ["ifmr"]


@method(
    "ifmr",
    max_percentile=Option(0.999999, 0.5, 1, "the share of elements below the largest value to start from"),
    min_percentile=Option(0.999999, 0.5, 1, "the share of elements above the smallest value to start from"),
    search_range_start=Option(0.7, 0.01, 10, "the first candidate as a part of the largest value"),
    search_range_end=Option(1.3, 0.01, 10, "the last candidate as a part of the largest value"),
    search_step=Option(0.01, 1e-4, 10, "the distance of two candidates as a part of the largest value"),
    include_end=Option(0, 0, 1, "1 when the end of the search range is a candidate too, as in older tools"),
    half_away=Option(0, 0, 1, "1 to round halves away from zero, as older tools do, instead of to even"),
)
def ifmr(distribution: Distribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The best of some multiples of the largest value by squared error, the smallest value staying as it is.

    Symmetric quantizers have both sides multiplied. The error is as the vendor defines it: values are clipped to
    the candidate range and rounded to multiples of the scale; codes do not limit them.
    """
    low, high = _start(distribution, options)
    factors = _factors(options)
    tops = high[:, None] * factors
    bottoms = low[:, None] * (factors if spec.symmetric else np.ones_like(factors))
    levels = levels_of(bottoms, tops, spec)
    if spec.symmetric:
        tops = np.maximum(tops, -bottoms)
        bottoms = -tops
    rounding: Rounding = "half_away" if options["half_away"] else "half_even"
    first, last = (round_values(end / levels.step, rounding) for end in (bottoms, tops))
    chosen = np.argmin(distribution.squared_error(replace(levels, first=first, last=last)), axis=1)
    return (low * factors[chosen] if spec.symmetric else low), high * factors[chosen]


def _start(distribution: Distribution, options: Options) -> tuple[Array, Array]:
    """The outermost elements, without a share of them, and zero."""
    total = distribution.total
    above = np.maximum(total - (options["max_percentile"] * total).astype(np.int64), 1)
    below = np.maximum(total - (options["min_percentile"] * total).astype(np.int64), 1)
    high = np.maximum(distribution.smallest(total - above), 0.0)
    low = np.minimum(distribution.smallest(below - 1), 0.0)
    return low, high


def _factors(options: Options) -> Array:
    start, end, step = (options[name] for name in ("search_range_start", "search_range_end", "search_step"))
    if end <= start or step > end - start:
        raise BadInput(
            f"The search range from {start:g} to {end:g} has no room for steps of {step:g}.",
            fix="give search_range_start < search_range_end and a search_step that fits in between",
        )
    if options["include_end"]:
        return start + step * np.arange(int((end - start) / step + 1))
    return np.arange(start, end, step)
