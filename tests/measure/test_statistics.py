import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.measure.statistics import BLOCK, TensorStats, to_float32

REAL = st.floats(allow_nan=True, allow_infinity=True, width=32)
# Magnitudes whose squares are within the range of float64; beyond, a standard deviation is 0 or inf.
SQUARABLE = (1e-140, 1e140)
ARRAYS = hnp.arrays(np.float32, st.integers(0, 60), elements=REAL)
NUMBERS = hnp.arrays(
    st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]),
    hnp.array_shapes(max_dims=3, max_side=6),
)


def check(stats: TensorStats, array: Array) -> None:
    """Against numpy in float64, NaN and infinities left out."""
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    assert stats.count == values.size
    assert (stats.nans, stats.infs) == (np.isnan(values).sum(), np.isinf(values).sum())
    assert (stats.finite, stats.zeros) == (finite.size, (finite == 0).sum())
    if not finite.size:
        assert (stats.minimum, stats.maximum, stats.mean, stats.std) == (math.inf, -math.inf, 0, 0)
        assert stats.abs_max == 0
        return
    assert (stats.minimum, stats.maximum) == (finite.min(), finite.max())
    assert stats.abs_max == np.abs(finite).max()
    # Scaled, because sums of the largest float64 overflow in numpy.
    scale = np.abs(finite).max() or 1.0
    assert stats.mean == pytest.approx((finite / scale).mean() * scale, rel=1e-12, abs=1e-12 * scale)
    if SQUARABLE[0] < scale < SQUARABLE[1]:
        assert stats.std == pytest.approx((finite / scale).std() * scale, rel=1e-9, abs=1e-12 * scale)


def same(one: TensorStats, other: TensorStats, scale: float) -> None:
    assert (one.count, one.nans, one.infs, one.zeros) == (other.count, other.nans, other.infs, other.zeros)
    assert (one.minimum, one.maximum) == (other.minimum, other.maximum)
    assert one.mean == pytest.approx(other.mean, rel=1e-12, abs=1e-12 * scale)
    assert one.std == pytest.approx(other.std, rel=1e-9, abs=1e-12 * scale)


def largest(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.abs(finite.astype(np.float64)).max()) if finite.size else 0.0


@given(ARRAYS)
def test_agrees_with_numpy(array: Array) -> None:
    check(TensorStats.of(array), array)


@given(NUMBERS)
@settings(deadline=None)
def test_agrees_with_numpy_for_every_type(array: Array) -> None:
    check(TensorStats.of(array), array)


@given(ARRAYS, st.integers(1, 70))
def test_blocks_of_any_size_give_the_same(array: Array, block: int) -> None:
    same(TensorStats.of(array, block=block), TensorStats.of(array), largest(array))


@given(ARRAYS, ARRAYS)
def test_merging_equals_one_pass(first: Array, second: Array) -> None:
    both = np.concatenate([first, second])
    same(TensorStats.of(first).merge(TensorStats.of(second)), TensorStats.of(both), largest(both))


@given(ARRAYS)
def test_merging_with_nothing_changes_nothing(array: Array) -> None:
    stats = TensorStats.of(array)

    assert TensorStats().merge(stats) == stats
    assert stats.merge(TensorStats()) == stats


def test_arrays_larger_than_a_block() -> None:
    array = np.random.default_rng(0).standard_normal(2 * BLOCK + 12_345).astype(np.float32)
    array[BLOCK + 5] = np.nan
    array[-3:] = (np.inf, -np.inf, 0)

    check(TensorStats.of(array), array)


def test_the_spread_of_values_far_from_zero_keeps_its_digits() -> None:
    array = 1e8 + np.random.default_rng(0).standard_normal(100_000)

    assert TensorStats.of(array).std == pytest.approx(array.std(), rel=1e-9)


def test_a_constant_has_no_spread() -> None:
    stats = TensorStats.of(np.full(100_000, 0.1, np.float32))

    assert stats.std == 0
    assert stats.mean == stats.minimum == np.float32(0.1)


def test_values_whose_squares_overflow_do_not_harm() -> None:
    stats = TensorStats.of(np.array([1e300, -1e300, 1e308, 1e308]))

    assert stats.mean == pytest.approx(5e307)
    assert stats.std == math.inf


def test_strided_arrays_and_scalars() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2].T

    check(TensorStats.of(array), array)
    assert TensorStats.of(np.array(3, np.float32)).mean == 3


def test_every_half_is_widened_as_numpy_does() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    for values in (halves, finite, finite[::2], finite[:0], finite.astype(np.float64), np.arange(-5, 5)):
        out = np.empty(values.size, np.float32)
        to_float32(values, out)
        # Signs of zeros included.
        assert np.array_equal(out.view(np.uint32), values.astype(np.float32).view(np.uint32))
