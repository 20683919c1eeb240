"""Multiplying whole numbers by a real one the way integer hardware does: by a whole multiplier, then a shift."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.quantization import round_values
from roundoff.core.quantizer import Rounding
from roundoff.core.tensors import Array

__all__ = ["FixedPoint", "fixed_point", "multiply", "shift_right"]

# Products up to this stay within 64 bits when one half is added.
_SAFE_BITS = 62
# Right shifts of a 64-bit product beyond this change nothing any more.
_LONGEST_SHIFT = 63
# Where the product is rounded first, what is left has 32 bits, and longer shifts leave nothing of it.
_LONGEST_SECOND_SHIFT = 31


@dataclass(frozen=True, slots=True, eq=False)
class FixedPoint:
    """Real multipliers as ``multiplier * 2**(exponent - bits)``.

    Attributes:
        multiplier: int64, 0 or of exactly `bits` significant bits; negative for a negative factor.
        exponent: int64 of the same shape.
        bits: Significant bits, at most 62.
    """

    multiplier: Array
    exponent: Array
    bits: int


def fixed_point(factor: Array, bits: int) -> FixedPoint:
    """The nearest fixed-point numbers to real factors (half away from zero)."""
    fraction, exponent = np.frexp(np.asarray(factor, dtype=np.float64))
    bits = min(bits, _SAFE_BITS)
    multiplier = round_values(np.asarray(np.ldexp(fraction, bits)), "half_away").astype(np.int64)
    # Rounding may carry into one bit more.
    carried = np.abs(multiplier) == 1 << bits
    multiplier = np.where(carried, multiplier // 2, multiplier)
    return FixedPoint(multiplier, exponent.astype(np.int64) + carried, bits)


def multiply(values: Array, factor: FixedPoint, rounding: Rounding, *, twice: bool) -> Array:
    """Exact products with a fixed-point number, rounded to whole numbers.

    Args:
        values: int64.
        factor: Of a shape that broadcasts with them.
        rounding: How the shift rounds.
        twice: Round the upper half of the product first (half up), then shift.

    Returns:
        int64.
    """
    left = np.maximum(factor.exponent, 0) if twice else np.zeros((), dtype=np.int64)
    if _magnitude(values).bit_length() + int(left.max(initial=0)) + factor.bits <= _SAFE_BITS:
        return _multiply(values, left, factor, rounding, twice=twice)
    # Rare: numbers without limit are exact here, if slow.
    wide = FixedPoint(factor.multiplier.astype(object), factor.exponent.astype(object), factor.bits)
    product = _multiply(values.astype(object), left.astype(object), wide, rounding, twice=twice)
    limits = np.iinfo(np.int64)
    return np.asarray(np.clip(product, limits.min, limits.max).astype(np.int64))


def _magnitude(values: Array) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def _multiply(values: Array, left: Array, factor: FixedPoint, rounding: Rounding, *, twice: bool) -> Array:
    if not twice:
        return shift_right(values * factor.multiplier, factor.bits - factor.exponent, rounding)
    high = shift_right((values << left) * factor.multiplier, np.asarray(factor.bits), "half_up")
    right = np.maximum(-factor.exponent, 0)
    vanishing = right > _LONGEST_SECOND_SHIFT
    return np.asarray(np.where(vanishing, 0, shift_right(high, np.where(vanishing, 0, right), rounding)))


def shift_right(values: Array, places: Array, rounding: Rounding) -> Array:
    """Divide whole numbers by powers of two and round; negative places shift to the left.

    Args:
        values: int64 of magnitudes below 2**62, or Python integers of any size.
        places: Of a shape that broadcasts with them.
        rounding: How to round.
    """
    if values.dtype != object:
        places = np.minimum(places, _LONGEST_SHIFT)
    if rounding == "half_away":
        magnitude = shift_right(np.abs(values), places, "half_up")
        return np.asarray(np.where(values < 0, -magnitude, magnitude))
    right = np.maximum(places, 0)
    one = np.ones((), dtype=values.dtype)
    half = np.where(right > 0, one << np.maximum(right - 1, 0), 0)
    if rounding == "half_up":
        quotient = (values + half) >> right
    else:
        quotient = values >> right
        if rounding == "half_even":
            rest = values - (quotient << right)
            quotient = quotient + ((rest > half) | ((rest == half) & (half > 0) & (quotient % 2 == 1)))
    return np.asarray(quotient << np.maximum(-places, 0))
