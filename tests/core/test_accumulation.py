"""Curves as data."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.accumulation import running_means


def test_each_value_becomes_the_mean_of_all_up_to_it() -> None:
    assert running_means([1.0, 0.9, 0.9, 0.8]) == pytest.approx((1.0, 0.95, 0.9333333333, 0.9))


def test_what_is_missing_or_endless_has_no_part_in_a_mean() -> None:
    found = running_means([math.inf, None, 30.0, math.inf, 20.0])
    assert found == (math.inf, None, 30.0, 30.0, 25.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_means_stay_within_the_values_seen(values: list[float]) -> None:
    for place, mean in enumerate(running_means(values)):
        assert mean is not None
        assert min(values[: place + 1]) - 1e-6 <= mean <= max(values[: place + 1]) + 1e-6
