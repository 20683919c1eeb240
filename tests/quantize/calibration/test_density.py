"""The divergence in closed form is what summing over very fine cells gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.density import Density
from roundoff.quantize.calibration.distribution import Levels
from roundoff.quantize.calibration.histogram import TENSOR_GRID, FloatHistogram, Grid, exponents_of, histogram_of


def integrated(edges: Array, shares: Array, levels: tuple[float, int, int]) -> float:
    """The divergence by sums over very fine cells: another way to what the method has in closed form."""
    step, first, last = levels
    borders = np.linspace(edges[0], edges[-1], 400_001)
    middles = (borders[:-1] + borders[1:]) / 2
    density = shares / np.diff(edges)
    p = density[np.searchsorted(edges, middles) - 1] * (edges[-1] - edges[0]) / middles.size
    level = np.floor(middles / step + 0.5).astype(int)
    kept = p[(level >= first) & (level <= last)].sum()
    divergence = 0.0
    for each in range(first, last + 1):
        own = p[level == each]
        moved = p[level < first].sum() * (each == first) + p[level > last].sum() * (each == last)
        # Rounding makes the density of a level even. What was clipped is taken to lose as much.
        divergence += np.sum(own * np.log(own * own.size / own.sum())) / kept
        together = own.sum() + moved
        divergence += together * np.log(together * kept / own.sum())
    return float(divergence)


@pytest.mark.parametrize(
    "levels", [(0.5, -7, 7), (0.5, -2, 3), (0.25, -6, 7), (1.0, -2, 3), (0.3, -9, 12)], ids=str
)
def test_the_divergence_is_an_integral(levels: tuple[float, int, int]) -> None:
    grid, exponent = Grid(bits=6, doublings=12), exponents_of(np.array([3.0]))
    borders = FloatHistogram(grid, exponent, np.zeros((1, 2, grid.bins), np.int64)).ascending()[0][0]
    # So many elements that chance has no part in it, over a density that goes up and down.
    density = 2 + np.sin(3 * borders[:-1]) + np.random.default_rng(0).uniform(-0.5, 0.5, borders.size - 1)
    counts = (2.0**40 * density * np.diff(borders)).astype(np.int64)
    both = np.stack([counts[grid.bins - 1 :], np.append(0, counts[: grid.bins - 1][::-1])])
    histogram = FloatHistogram(grid, exponent, both[None])
    edges, shares = (each[0] for each in histogram.ascending())
    np.testing.assert_array_equal(shares, counts)
    step, first, last = (np.array([float(each)]) for each in levels)
    density = Density(histogram, -4.0, 4.0)
    found, beyond = density.divergence(Levels(step, first, last))
    expected = integrated(edges, shares / shares.sum(), levels)
    assert expected > 0.01
    assert found[0] == pytest.approx(expected, rel=0.01)
    outside = (edges[1:] <= (first - 0.5) * step) | (edges[:-1] >= (last + 0.5) * step)
    clipped = shares[outside].sum() / shares.sum()
    assert beyond[0] == pytest.approx(clipped, abs=0.01)


@given(st.floats(0, 2), st.lists(st.floats(0.001, 3), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_only_what_is_too_much_may_be_left_out(at_most: float, steps: list[float]) -> None:
    values = np.random.default_rng(0).standard_normal((1, 5000)).astype(np.float32)
    density = Density(histogram_of(values, TENSOR_GRID), float(values.min()), float(values.max()))
    levels = Levels(np.array(steps), np.full(len(steps), -8.0), np.full(len(steps), 7.0))
    whole, clipped = density.divergence(levels)
    found, again = density.divergence(levels, at_most=at_most)
    np.testing.assert_array_equal(clipped, again)
    np.testing.assert_array_equal(found[whole <= at_most], whole[whole <= at_most])
    assert (found[whole > at_most] > at_most).all()
