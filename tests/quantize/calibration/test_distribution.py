"""Both kinds of distribution give the same answers as the elements themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import distributions
from roundoff.quantize.calibration.distribution import Levels, ObservedDistribution
from roundoff.quantize.calibration.histogram import Grid
from tests.quantize.calibration.observing import counted, observed

RNG = np.random.default_rng(0)
NORMAL = RNG.standard_normal((3, 20_000)).astype(np.float32) * np.array([[1], [10], [0.1]], np.float32)
NORMAL[2] = np.abs(NORMAL[2])


def levels(step: list[float], first: float, last: float, *, floor: bool = False) -> Levels:
    steps = np.tile(np.array(step), (3, 1))
    return Levels(steps, np.full_like(steps, first), np.full_like(steps, last), floor=floor)


def both(values: Array) -> tuple[ObservedDistribution, ObservedDistribution]:
    """Of all elements, and of a histogram of them."""
    exact = observed(values, axis=0)
    (left,), (right,) = distributions(exact), distributions(counted(exact))
    return left, right


@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("ends", [(-8, 7), (0, 15), (-20, 3)])
def test_squared_error(ends: tuple[int, int], floor: bool) -> None:
    asked = levels([0.01, 0.1, 0.5, 3.0], *ends, floor=floor)
    expected = np.empty((3, 4))
    for row, column in np.ndindex(3, 4):
        step = asked.step[row, column]
        rounded = np.floor(NORMAL[row] / step) if floor else np.rint(NORMAL[row] / step)
        expected[row, column] = np.mean((np.clip(rounded, *ends) * step - NORMAL[row].astype(np.float64)) ** 2)
    exact, estimated = both(NORMAL)
    np.testing.assert_allclose(exact.squared_error(asked), expected, rtol=1e-6)
    np.testing.assert_allclose(estimated.squared_error(asked), expected, rtol=0.02)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50), st.floats(2.0**-6, 50))
@settings(max_examples=50, deadline=None)
def test_squared_error_of_an_estimate_is_never_far_off(values: list[float], step: float) -> None:
    """Each element moves by at most the width of its bin, and its error with it."""
    array = np.array([values], np.float32)
    asked = Levels(np.array([[step]]), np.array([[-8.0]]), np.array([[7.0]]))
    exact, estimated = both(array)
    width = float(np.abs(array).max()) / 128
    truth, found = (float(np.sqrt(each.squared_error(asked)[0, 0])) for each in (exact, estimated))
    assert found == pytest.approx(truth, abs=width + 1e-6)


def test_elements_by_rank() -> None:
    ordered = np.sort(NORMAL, axis=1)
    exact, estimated = both(NORMAL)
    for index in (0, 1, 17, 9_999, 19_998, 19_999):
        asked = np.full(3, index)
        np.testing.assert_array_equal(exact.smallest(asked), ordered[:, index])
        np.testing.assert_allclose(estimated.smallest(asked), ordered[:, index], rtol=0.01, atol=1e-4)
    np.testing.assert_array_equal(estimated.smallest(np.zeros(3)), ordered[:, 0])
    np.testing.assert_array_equal(estimated.smallest(np.full(3, 19_999)), ordered[:, -1])


def test_magnitudes() -> None:
    ordered = np.sort(np.abs(NORMAL), axis=1)
    for each in both(NORMAL):
        np.testing.assert_allclose(each.magnitudes().smallest(np.full(3, 15_000)), ordered[:, 15_000], rtol=0.005)
        np.testing.assert_array_equal(each.magnitudes().high, ordered[:, -1])


def test_typical_magnitude_is_of_elements_other_than_zero() -> None:
    values = np.array([[0.0] * 90 + [1.0, 2.0, 3.0, -4.0, 5.0, -6.0, 7.0, 8.0, 9.0, 10.0]], np.float32)
    for each in both(values):
        assert 5 <= each.typical()[0] <= 6.1


def test_elements_beyond_a_range() -> None:
    low, high = np.array([-1.0, -5.0, 0.0]), np.array([0.5, 30.0, 0.05])
    values = NORMAL.copy()
    expected = np.sum((values < low[:, None]) | (values > high[:, None]), axis=1)
    exact, estimated = both(values)
    np.testing.assert_array_equal(exact.beyond(low, high), expected)
    np.testing.assert_allclose(estimated.beyond(low, high), expected, rtol=0.02)


def test_equal_bins() -> None:
    exact, estimated = both(NORMAL)
    for row in range(3):
        expected, _ = np.histogram(NORMAL[row].astype(np.float64), 16)
        np.testing.assert_array_equal(exact.binned(row, 16), expected)
        np.testing.assert_allclose(estimated.binned(row, 16), expected, atol=60)
        assert estimated.binned(row, 16).sum() == pytest.approx(20_000)


def test_many_rows_come_in_parts() -> None:
    values = RNG.standard_normal((700, 90)).astype(np.float32)
    exact = observed(values, axis=0)
    for known in (exact, counted(exact, Grid(6, 16))):
        parts = list(distributions(known))
        np.testing.assert_array_equal(np.concatenate([part.low for part in parts]), values.min(axis=1))
        assert sum(int(part.total.sum()) for part in parts) == values.size
