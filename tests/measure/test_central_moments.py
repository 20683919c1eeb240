"""Skewness and kurtosis against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roundoff.measure.statistics import CentralMoments

VALUES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=60)


def by_definition(values: list[float], power: int) -> float:
    x = np.array(values, np.float64)
    d = x - x.mean()
    return float((d**power).mean() / math.sqrt((d**2).mean()) ** power)


@given(VALUES, st.integers(0, 60))
def test_moments_are_those_of_the_definition_however_the_values_are_cut(values: list[float], cut: int) -> None:
    array = np.array(values, np.float32)
    spread = float(array.astype(np.float64).std())
    assume(spread > 1e-3 * max(1.0, float(np.abs(array).max())))
    found = CentralMoments.of(array[:cut]).merge(CentralMoments.of(array[cut:]))
    assert found.count == len(values)
    assert found.mean == pytest.approx(float(array.astype(np.float64).mean()), rel=1e-9, abs=1e-9 * spread)
    assert found.skewness == pytest.approx(by_definition(array.tolist(), 3), rel=1e-6, abs=1e-6)
    assert found.excess_kurtosis == pytest.approx(by_definition(array.tolist(), 4) - 3, rel=1e-6, abs=1e-6)


def test_known_distributions() -> None:
    rng = np.random.default_rng(0)
    normal = CentralMoments.of(rng.standard_normal(200_000).astype(np.float32))
    assert (normal.skewness, normal.excess_kurtosis) == pytest.approx((0, 0), abs=0.05)
    exponential = CentralMoments.of(rng.exponential(size=200_000))
    assert (exponential.skewness, exponential.excess_kurtosis) == pytest.approx((2, 6), rel=0.1)


def test_what_is_not_finite_is_left_out() -> None:
    values = np.array([1.0, 2.0, 5.0])
    damaged = np.array([1.0, np.nan, 2.0, np.inf, 5.0, -np.inf])
    assert CentralMoments.of(damaged) == CentralMoments.of(values)


@pytest.mark.parametrize("values", [[], [3.0], [7.0] * 5, [np.nan]])
def test_without_spread_there_is_no_shape(values: list[float]) -> None:
    found = CentralMoments.of(np.array(values))
    assert found.skewness is None
    assert found.excess_kurtosis is None


def test_very_small_and_very_large_values_keep_their_shape() -> None:
    shape = np.array([0.0, 1.0, 1.0, 4.0])
    wanted = CentralMoments.of(shape).skewness
    for scale in (1e-38, 1e-30, 1e38):
        assert CentralMoments.of(shape * scale).skewness == pytest.approx(wanted, rel=1e-9)
