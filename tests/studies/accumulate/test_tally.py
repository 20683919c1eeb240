"""Means over samples, and what is compared."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.measure.light_pairs import LightMeter
from roundoff.measure.metrics import get_metric
from roundoff.measure.pairs import measure_pair
from roundoff.measure.rows import SampleMean
from roundoff.studies.accumulate.study import PlaceTally, compare


def mean_of(metric: str, values: list[float]) -> SampleMean:
    mean = SampleMean(get_metric(metric))
    for at, value in enumerate(values):
        mean.add(value, f"s{at}")
    return mean


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=10))
def test_the_mean_of_plain_values_is_the_mean(values: list[float]) -> None:
    mean = mean_of("sqnr_db", values)
    assert mean.value == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert mean.worst == min(values)
    assert mean.worst_sample == f"s{values.index(min(values))}"


def test_perfect_samples_of_an_endless_metric_count_only_when_all_are() -> None:
    assert mean_of("sqnr_db", [math.inf, 20.0, 30.0]).value == 25.0
    assert mean_of("sqnr_db", [math.inf, math.inf]).value == math.inf
    assert mean_of("sqnr_db", [-math.inf, 20.0]).value == -math.inf
    assert mean_of("cosine", [1.0, 0.5]).value == 0.75


def test_samples_without_a_score_do_not_count() -> None:
    assert mean_of("cosine", [math.nan, 0.5]).value == 0.5
    empty = mean_of("cosine", [math.nan])
    assert (empty.value, empty.worst) == (None, None)


def test_where_lower_is_better_the_worst_is_the_highest() -> None:
    mean = mean_of("mse", [1.0, 3.0, 2.0])
    assert (mean.worst, mean.worst_sample) == (3.0, "s1")


@pytest.mark.parametrize("metric", ["cosine", "mean_relative_error", "kl_divergence", "worst_channel_sqnr_db"])
def test_every_metric_gets_the_sums_it_needs(metric: str) -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((2, 3, 5)).astype(np.float32)
    others = [reference + rng.standard_normal(reference.shape).astype(np.float32) for _ in range(8)]
    chosen = get_metric(metric)
    small = reference[:, :2]
    pairs = [*((reference, other) for other in others), (reference, reference[:1]), (small, small + 1)]
    *found, unlike, last = compare(LightMeter(), chosen, pairs)
    assert unlike is None
    assert last is not None
    assert chosen.compute(last) == pytest.approx(
        chosen.compute(measure_pair(small, small + 1, channel_axis=2)), rel=1e-5
    )
    for moments, other in zip(found, others, strict=True):
        assert moments is not None
        expected = chosen.compute(measure_pair(reference, other, channel_axis=2))
        assert chosen.compute(moments) == pytest.approx(expected, rel=1e-5)


def test_nothing_compared_has_no_score_and_nothing_finite_none_either() -> None:
    unlike = PlaceTally(get_metric("cosine"))
    unlike.add(None, "s0")
    assert (unlike.unlike, unlike.score.value, unlike.sqnr_db) == (1, None, None)
    broken = PlaceTally(get_metric("cosine"))
    broken.add(measure_pair(np.ones(3, np.float32), np.full(3, np.nan, np.float32)), "s1")
    assert (broken.nonfinite, broken.score.value, broken.sqnr_db) == (3, None, -math.inf)


def test_empty_tensors_are_perfect() -> None:
    tally = PlaceTally(get_metric("cosine"))
    empty = np.empty((0, 3), np.float32)
    tally.add(measure_pair(empty, empty), "s0")
    assert (tally.score.value, tally.sqnr_db) == (1.0, math.inf)
