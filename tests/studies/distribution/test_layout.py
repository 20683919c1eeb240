"""Bins of histograms: nothing is lost, and levels never make a comb."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.observer import Observer
from roundoff.studies.distribution.values import Spread, automatic_bins, counted_in, lay_out, spreads


def spread_of(values: Array) -> Spread:
    observer = Observer()
    observer.add(values.astype(np.float32))
    return next(iter(spreads(observer.observation())))


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=50), st.integers(2, 300))
def test_every_value_is_in_a_bin(values: list[float], most: int) -> None:
    spread = spread_of(np.array(values))
    layout = lay_out([spread], most)
    assert layout is not None
    assert layout.bins <= most
    bins = counted_in(spread, layout)
    assert sum(bins.counts) == len(values)
    assert len(bins.edges) == len(bins.counts) + 1


@given(st.integers(-300, 0), st.integers(1, 300), st.floats(1e-6, 1e3), st.integers(2, 250))
def test_bins_hold_equally_many_levels(first: int, last: int, step: float, most: int) -> None:
    step = float(np.float32(step))
    levels = np.arange(first, last + 1) * step
    layout = lay_out([spread_of(levels)], most, step=step)
    assert layout is not None
    assert layout.bins <= most + 2
    edges = layout.start + layout.width * np.arange(layout.bins + 1)
    # No level is near a border, so that rounding cannot move it over.
    places = (edges / step)[:, None] - np.arange(first, last + 1)
    assert np.abs(places).min() > 0.99 / 2 * min(1.0, layout.width / step)
    counts = np.histogram(levels, edges)[0]
    inner = counts[:-1] if layout.width >= step else counts[counts > 0]
    assert len(set(inner.tolist())) <= 1


def test_the_values_before_quantization_get_the_same_bins() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(5000).astype(np.float32)
    step = 0.05
    quantized = np.round(values / step) * step
    sides = [spread_of(values), spread_of(quantized)]
    layout = lay_out(sides, 200, step=step)
    assert layout is not None
    before, after = (np.array(counted_in(side, layout).counts) for side in sides)
    np.testing.assert_array_equal(before, after)


def test_one_value_and_none() -> None:
    layout = lay_out([spread_of(np.array([5.0, 5.0]))], 20, step=0.1)
    assert layout is not None
    assert layout.bins == 1
    assert layout.start < 5 < layout.start + layout.width
    assert lay_out([spread_of(np.array([np.nan]))], 20) is None


def test_a_step_far_too_small_is_ignored() -> None:
    layout = lay_out([spread_of(np.array([-1e38, 1e38]))], 20, step=1e-300)
    assert layout is not None
    assert layout.bins == 20
    assert layout.start == pytest.approx(-1e38)


@given(st.integers(0, 10**9))
def test_the_number_of_bins_grows_with_the_number_of_values(count: int) -> None:
    assume(count)
    assert 16 <= automatic_bins(count) <= min(200, max(16, 2 * math.isqrt(count)))
