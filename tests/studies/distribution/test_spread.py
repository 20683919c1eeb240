"""Shares and quantiles against plain numpy, for values that are all known and for those known by their bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.observer import Observer
from roundoff.studies.distribution.values import resolution, spreads

SHARES = np.array([0.0, 0.001, 0.25, 0.5, 0.77, 0.999, 1.0])
FINITE = st.floats(-1e4, 1e4, width=32)


def observed(parts: list[Array], axis: int | None = None) -> Observer:
    observer = Observer(axis)
    for part in parts:
        observer.add(part)
    return observer


@given(arrays(np.float32, st.integers(1, 200), elements=FINITE), st.integers(0, 200), FINITE)
def test_few_values_are_exact(values: Array, cut: int, position: float) -> None:
    (spread,) = spreads(observed([values[:cut], values[cut:]]).observation())
    exact = values.astype(np.float64)
    assert (spread.count, spread.low, spread.high) == (values.size, exact.min(), exact.max())
    np.testing.assert_allclose(spread.quantiles(SHARES), np.quantile(exact, SHARES), rtol=1e-12, atol=1e-12)
    assert spread.below(np.array([position])) == np.count_nonzero(exact < position)


@pytest.mark.parametrize("seed", range(3))
def test_many_values_are_known_to_a_bin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(150_000) * 10 ** rng.uniform(-3, 3)).astype(np.float32)
    observation = observed(np.split(values, 5)).observation()
    (spread,) = spreads(observation)
    width = resolution(observation)
    assert width == 1 / 256
    exact = np.quantile(values.astype(np.float64), SHARES)
    np.testing.assert_allclose(spread.quantiles(SHARES), exact, rtol=width, atol=1e-3 * values.std())
    assert spread.quantiles(np.array([0.0, 1.0])) == pytest.approx([values.min(), values.max()])
    positions = np.quantile(values, [0.01, 0.3, 0.6, 0.99])
    found = spread.below(positions) / spread.count
    np.testing.assert_allclose(found, [0.01, 0.3, 0.6, 0.99], atol=2e-3)


def test_a_share_that_ends_in_a_gap_is_not_spread_over_it() -> None:
    values = np.repeat(np.array([1.0, 1000.0], np.float32), 50_000)
    (spread,) = spreads(observed([values]).observation())
    low, high = spread.quantiles(np.array([0.499, 0.501]))
    assert (low, high) == pytest.approx((1, 1000), rel=1 / 256)


def test_zeros_are_zeros() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(100_000) < 0.4, 0, rng.standard_normal(100_000)).astype(np.float32)
    (spread,) = spreads(observed([values]).observation())
    assert spread.quantiles(np.array([0.35, 0.5, 0.65])).tolist() == [0, 0, 0]
    assert spread.below(np.array([0.0]))[0] == np.count_nonzero(values < 0)
    assert spread.below(np.array([1e-12]))[0] == pytest.approx(np.count_nonzero(values <= 0), abs=1)


@pytest.mark.parametrize("size", [50, 20_000])
def test_rows_are_kept_apart(size: int) -> None:
    rng = np.random.default_rng(size)
    values = (rng.standard_normal((4, 3, size)) * np.array([1, 100, 0])[:, None]).astype(np.float32)
    observation = observed([values[:2], values[2:]], axis=1).observation()
    width = resolution(observation)
    assert (width == 0) == (size == 50)
    for channel, spread in enumerate(spreads(observation)):
        exact = np.quantile(values[:, channel].astype(np.float64), SHARES)
        np.testing.assert_allclose(
            spread.quantiles(SHARES), exact, rtol=max(width, 1e-12), atol=5e-3 * values[:, channel].std()
        )


@pytest.mark.parametrize("repeat", [3, 40_000])
def test_distinct_values_are_counted_while_they_are_few(repeat: int) -> None:
    levels = np.array([-2.0, 0.0, 0.5, 3.0], np.float32)
    (spread,) = spreads(observed([np.repeat(levels, repeat)]).observation())
    found = spread.distinct(4)
    assert found is not None
    np.testing.assert_allclose(found[0], levels, rtol=1 / 256)
    assert found[1].tolist() == [repeat] * 4
    assert spread.distinct(3) is None


def test_nothing_has_no_spread() -> None:
    (spread,) = spreads(observed([np.array([np.nan, np.inf], np.float32)]).observation())
    assert (spread.count, spread.low, spread.high) == (0, 0, 0)
    assert spread.quantiles(SHARES).tolist() == [0] * len(SHARES)
    with pytest.raises(ValueError, match="only ranges"):
        next(iter(spreads(Observer(ranges_only=True).observation())))
