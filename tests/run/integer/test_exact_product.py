import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.run.integer import convolution
from roundoff.run.integer.convolution import (
    conv_geometry,
    convolve,
    plan_for_bounds,
    plan_for_weights,
    prepare_kernel,
)
from roundoff.run.integer.convolution import exact_product as product
from tests.run.integer import brute_force


@pytest.mark.parametrize(
    ("inner", "largest", "weight", "dtype", "blocks"),
    [
        (500, 255, 127, np.float32, 1),
        (1000, 255, 127, np.float32, 2),
        (1100, 255, 127, np.float64, 1),
        (50, 2**16, 2**15, np.float64, 1),
        (20, 2**16, 2**34, np.float64, 3),
    ],
)
def test_the_largest_sums_are_exact(inner: int, largest: int, weight: int, dtype: type, blocks: int) -> None:
    right = np.full((inner, 2), weight)
    right[:, 1] *= np.where(np.arange(inner) % 2, 1, -1)
    left = np.full((1, inner), largest)
    left[0, 0] -= 1
    plan = plan_for_weights(right.T, largest)

    assert plan is not None
    assert (plan.dtype, len(plan.blocks)) == (dtype, blocks)
    total = product(left.astype(plan.dtype), right.astype(plan.dtype), plan)
    assert total.astype(object).tolist() == brute_force.matmul(left, right).tolist()


@given(st.integers(1, 3000), st.integers(1, 2**16), st.integers(1, 2**16), st.integers(0, 2**32))
def test_products_of_bounded_numbers_are_exact(inner: int, left: int, right: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (
        rng.integers(-left, left, (2, inner), endpoint=True),
        rng.integers(-right, right, (inner, 1), endpoint=True),
    )
    plan = plan_for_bounds(inner, left, right)

    assert plan is not None
    total = product(a.astype(plan.dtype), b.astype(plan.dtype), plan)
    assert total.astype(object).tolist() == brute_force.matmul(a, b).tolist()


def test_products_too_large_for_any_float_are_declined() -> None:
    assert plan_for_weights(np.array([[2**30]]), 2**30) is None
    assert plan_for_bounds(4, 2**30, 2**30) is None


def test_windows_are_unrolled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.integers(-255, 256, (2, 4, 9, 7)), rng.integers(-128, 128, (6, 2, 3, 3))
    kernel = prepare_kernel(weights.astype(np.float64), 2, 255)
    geometry = conv_geometry({"strides": [2, 1], "pads": [1, 1, 1, 1]}, (9, 7), (3, 3))
    assert kernel is not None

    whole = convolve(values, kernel, geometry)
    monkeypatch.setattr(convolution, "_UNROLLED_ELEMENTS", 2 * 2 * 4 * 9 * 7)
    parts = convolve(values, kernel, geometry)

    assert np.array_equal(whole, parts)
    assert np.array_equal(whole, brute_force.conv(values, weights, [2, 1], [1, 1], [1] * 4, 2).astype(np.float64))
