"""Curves as data."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.studies.accumulate.result import Jump, running_means
from tests.report.curves import curves_of


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


@pytest.mark.parametrize(
    "change",
    [
        lambda found: {"curves": ()},
        lambda found: {"nodes": found.nodes[1:]},
        lambda found: {"nodes": found.nodes[::-1]},
        lambda found: {"curves": (*found.curves, replace(found.curves[0], values=(1.0,)))},
        lambda found: {"curves": (replace(found.curves[0], sample_sqnr_db=((1.0,),)),)},
        lambda found: {"verdict": replace(found.verdict, jumps=(Jump(4, None, 1.0),))},
        lambda found: {"verdict": replace(found.verdict, falls_at=-1)},
    ],
)
def test_curves_that_do_not_fit_their_places_are_refused(change: Any) -> None:
    found = curves_of()
    with pytest.raises(ValueError, match="node"):
        replace(found, **change(found))
