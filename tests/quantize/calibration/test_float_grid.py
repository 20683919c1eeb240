"""Bins are where they should be, and counts do not depend on how elements come together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.histogram import TENSOR_GRID, FloatHistogram, Grid, channel_grid, histogram_of

SMALL = Grid(bits=2, doublings=4)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def arrays(rows: int = 2) -> st.SearchStrategy[Array]:
    return hnp.arrays(np.float32, st.tuples(st.just(rows), st.integers(0, 20)), elements=FLOATS)


def equal(left: FloatHistogram, right: FloatHistogram) -> bool:
    return (
        left.grid == right.grid
        and np.array_equal(left.exponent, right.exponent)
        and np.array_equal(left.counts, right.counts)
    )


@given(arrays())
@settings(max_examples=50, deadline=None)
def test_each_element_is_in_its_bin(values: Array) -> None:
    edges, counts = histogram_of(values, SMALL).ascending()
    for row, elements in enumerate(values.astype(np.float64)):
        for index, count in enumerate(counts[row]):
            low, high = edges[row, index], edges[row, index + 1]
            # Borders belong to the bin of the larger magnitude; that around zero has none of its own.
            if low >= 0:
                inside = (elements >= low) & (elements < high)
            elif high <= 0:
                inside = (elements > low) & (elements <= high)
            else:
                inside = (elements > low) & (elements < high)
            assert count == np.count_nonzero(inside)


@given(arrays(), arrays())
@settings(max_examples=50, deadline=None)
def test_merging_equals_counting_together(left: Array, right: Array) -> None:
    together = histogram_of(np.concatenate([left, right], axis=1), SMALL)
    assert equal(histogram_of(left, SMALL).merge(histogram_of(right, SMALL)), together)


@given(arrays(3))
@settings(max_examples=50, deadline=None)
def test_rows_together_are_one_row(values: Array) -> None:
    assert equal(histogram_of(values, SMALL).collapsed(), histogram_of(values.reshape(1, -1), SMALL))


@given(arrays())
@settings(max_examples=50, deadline=None)
def test_a_coarser_grid_is_the_same_from_both_ways(values: Array) -> None:
    coarse = Grid(0, SMALL.doublings)
    assert equal(histogram_of(values, SMALL).coarser(0), histogram_of(values, coarse))


def test_different_grids_merge_on_the_coarser() -> None:
    left, right = np.array([[1.0, 5.0]], np.float32), np.array([[-0.3, 100.0, 0.0]], np.float32)
    fine, coarse = Grid(5, 20), Grid(3, 7)
    merged = histogram_of(left, fine).merge(histogram_of(right, coarse))
    assert equal(merged, histogram_of(np.concatenate([left, right], axis=1), coarse))


def test_bins_are_narrow_where_values_are_small() -> None:
    edges = TENSOR_GRID.edges(histogram_of(np.array([[1.0]], np.float32), TENSOR_GRID).exponent)[0]
    assert edges[-1] == 2
    np.testing.assert_array_less(np.diff(edges) / edges[:-1], 1.0001 / 256)
    assert edges[0] < 2.0**-38


def test_edges_at_the_end_of_float32() -> None:
    edges, counts = histogram_of(np.array([[np.finfo(np.float32).max]], np.float32), SMALL).ascending()
    assert np.isfinite(edges).all()
    assert edges[0, -1] == 2.0**128
    assert counts[0, -1] == 1


@pytest.mark.parametrize("channels", [1, 7, 64, 1000, 5000])
def test_memory_of_channels_is_bounded(channels: int) -> None:
    grid = channel_grid(channels)
    assert grid.bits >= 3
    assert channels * grid.bins * 2 * 8 <= max(2**21, channels * 2**12)
