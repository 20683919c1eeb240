"""The grid is the same whatever the order of arrival."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.measure.statistics import BINS_PER_SIDE, EMPTY_HISTOGRAM, Histogram, histogram_of

_VALUES = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), max_size=30)


def equal(left: Histogram, right: Histogram) -> bool:
    return left.exponent == right.exponent and np.array_equal(left.counts, right.counts)


@given(_VALUES, _VALUES)
@settings(max_examples=200, deadline=None)
def test_merging_equals_counting_together(left: list[float], right: list[float]) -> None:
    together = histogram_of(np.array(left + right))
    assert equal(histogram_of(np.array(left)).merge(histogram_of(np.array(right))), together)
    assert together.total == len(left) + len(right)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50))
def test_each_value_is_in_its_bin(values: list[float]) -> None:
    found = histogram_of(np.array(values))
    if found.exponent is None:
        assert found.counts[BINS_PER_SIDE] == len(values)
        return
    width = 2.0**found.exponent
    for index in range(2 * BINS_PER_SIDE):
        low = (index - BINS_PER_SIDE) * width
        assert found.counts[index] == sum(low <= value < low + width for value in values)


def test_nothing_merges_to_nothing() -> None:
    assert equal(EMPTY_HISTOGRAM.merge(histogram_of(np.empty(0))), EMPTY_HISTOGRAM)
