from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.quantizers import Rounding
from roundoff.run.integer.results import fixed_point, multiply, shift_right

ROUNDINGS: tuple[Rounding, ...] = ("half_even", "half_up", "half_away", "floor")


def rounded(value: Fraction, rounding: Rounding) -> int:
    """The definition, in exact fractions."""
    if rounding == "floor":
        return floor(value)
    if rounding == "half_even":
        return round(value)
    if rounding == "half_up" or value > 0:
        return floor(value + Fraction(1, 2))
    return -floor(-value + Fraction(1, 2))


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


@given(st.integers(-(2**61), 2**61), st.integers(-20, 80), st.sampled_from(ROUNDINGS))
def test_shifts_round_as_their_definition(value: int, places: int, rounding: Rounding) -> None:
    if places < 0:
        value >>= 40
    shifted = shift_right(np.array([value]), np.array([places]), rounding)

    assert shifted[0] == rounded(value / power(places), rounding)


@given(st.floats(1e-12, 1e6), st.booleans(), st.integers(4, 62))
def test_a_multiplier_is_the_nearest_of_its_width(factor: float, negative: bool, bits: int) -> None:
    factor = -factor if negative else factor
    found = fixed_point(np.array(factor), bits)

    assert 1 << (bits - 1) <= abs(int(found.multiplier)) < 1 << bits
    step = power(int(found.exponent) - bits)
    assert abs(Fraction(factor) - int(found.multiplier) * step) <= step / 2


def test_zero_has_a_multiplier() -> None:
    assert fixed_point(np.array(0.0), 31).multiplier == 0


@given(
    st.integers(-(2**40), 2**40),
    st.floats(1e-9, 50.0),
    st.integers(8, 31),
    st.sampled_from(ROUNDINGS),
    st.booleans(),
)
def test_one_rounding_is_of_the_exact_product(
    value: int, factor: float, bits: int, rounding: Rounding, small: bool
) -> None:
    if small:
        value >>= 12
    fixed = fixed_point(np.array(factor), bits)
    exact = value * int(fixed.multiplier) * power(int(fixed.exponent) - bits)

    assert multiply(np.array([value]), fixed, rounding, twice=False)[0] == rounded(exact, rounding)


@given(st.integers(-(2**33), 2**33), st.floats(1e-9, 50.0), st.sampled_from(ROUNDINGS))
def test_two_roundings_are_of_the_upper_half_and_of_the_shift(
    value: int, factor: float, rounding: Rounding
) -> None:
    fixed = fixed_point(np.array(factor), 31)
    exponent = int(fixed.exponent)
    upper = rounded(value * power(max(exponent, 0)) * int(fixed.multiplier) / power(31), "half_up")

    expected = rounded(upper / power(max(-exponent, 0)), rounding)

    assert multiply(np.array([value]), fixed, rounding, twice=True)[0] == expected


def test_rounding_twice_can_round_up_what_is_below_one_half() -> None:
    eighth = fixed_point(np.array(0.125), 31)  # 2**30 and two places more

    once = multiply(np.array([3, -3]), eighth, "half_away", twice=False)
    again = multiply(np.array([3, -3]), eighth, "half_away", twice=True)

    assert once.tolist() == [0, 0]  # 0.375
    assert again.tolist() == [1, 0]  # 1.5 -> 2, 2/4 -> 1; but -1.5 -> -1, -1/4 -> 0


@pytest.mark.parametrize("twice", [False, True])
def test_one_multiplier_for_each_channel(twice: bool) -> None:
    values = np.arange(-6, 6).reshape(2, 6) * 1000
    factors = np.array([[0.5], [0.001]])

    together = multiply(values, fixed_point(factors, 31), "half_away", twice=twice)

    for row, factor, expected in zip(values, factors, together, strict=True):
        assert np.array_equal(multiply(row, fixed_point(factor, 31), "half_away", twice=twice), expected)


def test_nothing_can_be_multiplied() -> None:
    empty = np.zeros((0, 3), dtype=np.int64)

    assert multiply(empty, fixed_point(np.array(0.3), 31), "half_even", twice=True).shape == (0, 3)


def test_products_beyond_64_bits_stop_at_the_limit() -> None:
    huge = multiply(np.array([2**61, -(2**61)]), fixed_point(np.array(1e6), 31), "half_even", twice=False)

    assert huge.tolist() == [2**63 - 1, -(2**63)]
