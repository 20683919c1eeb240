"""The simulated chip's arithmetic."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scripts import npu

from roundoff.core.tensors import Array

RATIOS = st.floats(1e-6, 0.99)
ACCUMULATORS = st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=8).map(np.array)


@given(ACCUMULATORS, RATIOS)
def test_requantization_rounds_the_product_to_the_nearest_code(accumulators: Array, ratio: float) -> None:
    codes = npu.requantize(accumulators, ratio, 0)
    # 31 bits of multiplier are exact to 2**-31 of the product.
    slack = 0.5 + np.abs(accumulators * ratio) * 2.0**-30
    assert (np.abs(codes - accumulators * ratio) <= slack).all()


@given(st.integers(-(2**24), 2**24), st.integers(1, 20))
def test_requantization_by_a_power_of_two_is_exact_and_halves_round_up(accumulator: int, bits: int) -> None:
    expected = math.floor(Fraction(accumulator, 2**bits) + Fraction(1, 2))
    assert npu.requantize(np.array([accumulator]), 2.0**-bits, 0)[0] == expected


@given(ACCUMULATORS, RATIOS)
def test_one_bit_too_far_is_half_the_ratio(accumulators: Array, ratio: float) -> None:
    too_far = npu.requantize(accumulators, ratio, 1)
    np.testing.assert_array_equal(too_far, npu.requantize(accumulators, ratio / 2, 0))


@given(st.floats(-100, 100), st.floats(-100, 100), st.floats(0, 1))
def test_values_inside_the_range_come_back_within_half_a_step(a: float, b: float, share: float) -> None:
    low, high = sorted((a, b))
    scale = npu.Scale.covering(low, high)
    value = low + share * (high - low)
    back = scale.decode(scale.encode(np.array([value])))[0]
    # The zero point is rounded to a whole code, which can cost the ends of the range another half step.
    assert abs(back - value) <= 1.01 * scale.scale + 1e-6


@given(st.floats(-100, 100), st.floats(-100, 100))
def test_zero_is_exact(a: float, b: float) -> None:
    scale = npu.Scale.covering(min(a, b), max(a, b))
    assert scale.decode(scale.encode(np.zeros(1)))[0] == 0.0
