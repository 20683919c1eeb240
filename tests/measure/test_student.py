"""Student's t against tables, and what follows from it against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.measure.inference import (
    false_discoveries,
    mean_interval,
    paired_probability,
    two_sided_probability,
    two_sided_quantile,
    unpaired_probability,
)

# From printed tables: degrees of freedom, confidence, t.
TABLE = [
    (1, 0.95, 12.7062), (2, 0.95, 4.3027), (5, 0.95, 2.5706), (10, 0.95, 2.2281), (15, 0.95, 2.1314),
    (30, 0.95, 2.0423), (99, 0.95, 1.9842), (1000, 0.95, 1.9623), (10, 0.99, 3.1693), (3, 0.5, 0.7649),
]  # fmt: skip


@pytest.mark.parametrize(("freedom", "confidence", "t"), TABLE)
def test_quantiles_are_those_of_the_tables(freedom: int, confidence: float, t: float) -> None:
    assert two_sided_quantile(freedom, confidence) == pytest.approx(t, abs=5e-5)


@pytest.mark.parametrize("t", [0.1, 1.0, 3.0, 30.0])
def test_with_one_degree_of_freedom_it_is_cauchy(t: float) -> None:
    assert two_sided_probability(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-12)


@given(st.floats(0, 50), st.floats(0, 50), st.integers(1, 500))
def test_larger_is_rarer(one: float, other: float, freedom: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= two_sided_probability(high, freedom) <= two_sided_probability(low, freedom) <= 1


@given(st.floats(0.5, 0.999), st.integers(1, 300))
def test_the_quantile_inverts_the_probability(confidence: float, freedom: int) -> None:
    t = two_sided_quantile(freedom, confidence)
    assert two_sided_probability(t, freedom) == pytest.approx(1 - confidence, rel=1e-9)


def test_intervals_hold_the_true_mean_as_often_as_they_say() -> None:
    draws = np.random.default_rng(0).standard_normal((2000, 6)) + 3
    held = 0
    for row in draws:
        interval = mean_interval(row)
        assert interval is not None
        held += interval[0] < 3 < interval[1]
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_no_interval_without_spread_to_see() -> None:
    assert mean_interval(np.array([1.0])) is None
    assert mean_interval(np.array([1.0, np.inf])) is None
    assert mean_interval(np.array([2.0, 2.0, 2.0])) == (2.0, 2.0)


def test_a_shift_larger_than_the_noise_of_differences_is_seen() -> None:
    rng = np.random.default_rng(1)
    hard = 10 * rng.standard_normal(16)  # samples differ much more than the two sides do
    left, right = hard + 0.01 * rng.standard_normal(16), hard + 0.05 + 0.01 * rng.standard_normal(16)
    probability = paired_probability(left, right)
    assert probability is not None
    assert probability < 1e-4
    assert (paired_probability(left, right[::-1]) or 0) > 0.2


def test_chance_differences_are_seldom_called_real() -> None:
    rng = np.random.default_rng(2)
    found = [paired_probability(*rng.standard_normal((2, 8))) for _ in range(2000)]
    assert np.mean([each is not None and each < 0.05 for each in found]) == pytest.approx(0.05, abs=0.015)


def test_pairs_that_are_equal_missing_or_infinite() -> None:
    x = np.array([1.0, 2.0, 3.0])
    assert paired_probability(x, x.copy()) == 1.0
    assert paired_probability(x, x + 1) == 0.0
    assert paired_probability(x[:1], x[:1] + 1) is None
    assert paired_probability(np.array([1.0, np.nan, 2.0]), np.array([np.nan, 1.0, 2.0])) is None
    perfect = np.full(8, np.inf)
    assert paired_probability(perfect, perfect) == 1.0
    # Eight signs of one kind: 2 / 2**8.
    assert paired_probability(perfect, np.arange(8.0)) == pytest.approx(2 / 256)
    many = np.full(3000, np.inf)
    assert paired_probability(many, np.arange(3000.0)) == pytest.approx(0, abs=1e-12)


def test_two_draws_are_compared_as_welch_did() -> None:
    # A worked example with unequal spreads: t = -2.46 with 25 degrees of freedom, p = 0.021.
    left = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    right = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    assert unpaired_probability(np.array(left), np.array(right)) == pytest.approx(0.021, abs=5e-4)
    assert unpaired_probability(np.array([1.0]), np.array(right)) is None
    assert unpaired_probability(np.ones(3), np.ones(4)) == 1.0
    assert unpaired_probability(np.ones(3), np.zeros(4)) == 0.0


def test_two_draws_of_one_population_seldom_differ() -> None:
    generator = np.random.default_rng(0)
    found = [unpaired_probability(generator.normal(size=6), generator.normal(size=9)) for _ in range(1000)]
    assert 30 <= sum(each is not None and each < 0.05 for each in found) <= 72


def test_the_correction_is_that_of_the_worked_example() -> None:
    # Benjamini and Hochberg (1995): of 15 probabilities the first four are found at 5 %.
    found = false_discoveries(
        [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
         0.7590, 1.0]
    )  # fmt: skip
    assert [each <= 0.05 for each in found] == [True] * 4 + [False] * 11
    assert false_discoveries([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.02, 0.04, 0.04, 0.02))
    assert false_discoveries([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_correction_raises_and_keeps_the_order(probabilities: list[float]) -> None:
    corrected = false_discoveries(probabilities)
    assert all(raw <= new <= 1 for raw, new in zip(probabilities, corrected, strict=True))
    pairs = sorted(zip(probabilities, corrected, strict=True))
    assert [new for _, new in pairs] == sorted(corrected)
    assert max(corrected) == max(probabilities)
