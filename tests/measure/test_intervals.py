"""Intervals of pooled ratios and shares hold what they promise, on populations that are known."""

import math

import numpy as np
import pytest

from roundoff.measure.inference import (
    agreement_interval,
    energy_ratio_interval_db,
    fit_extremes,
    paired_energy_gain_db,
    safe_end,
)


def energies(drawn: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signal, error before and error after: lognormal, and correlated as those of one sample are."""
    hard = drawn.normal(size=count)
    signal = np.exp(0.3 * drawn.normal(size=count) + 0.2 * hard)
    before = 0.05 * np.exp(0.4 * hard + 0.3 * drawn.normal(size=count))
    after = 0.01 * np.exp(0.4 * hard + 0.3 * drawn.normal(size=count))
    return signal, before, after


def test_a_pooled_ratio_lies_within_its_interval_in_95_percent() -> None:
    drawn = np.random.default_rng(7)
    many = energies(drawn, 400_000)
    truth = 10 * math.log10(many[0].sum() / many[2].sum())
    gain = 10 * math.log10(many[1].sum() / many[2].sum())
    hits = np.zeros(2)
    for _ in range(1000):
        signal, before, after = energies(drawn, 12)
        for at, (ends, right) in enumerate(
            [(energy_ratio_interval_db(signal, after), truth), (paired_energy_gain_db(before, after), gain)]
        ):
            assert ends is not None
            hits[at] += ends[0] <= right <= ends[1]
    # Few samples of a skewed population: a little less than promised, never far.
    assert (hits / 1000 >= 0.91).all()


def test_the_interval_is_around_the_pooled_ratio() -> None:
    signal, before, after = energies(np.random.default_rng(1), 20)
    ends = energy_ratio_interval_db(signal, after)
    assert ends is not None
    assert np.isclose(sum(ends) / 2, 10 * math.log10(signal.sum() / after.sum()))
    assert energy_ratio_interval_db(signal[:1], after[:1]) is None
    assert energy_ratio_interval_db(signal, 0 * after) is None
    assert paired_energy_gain_db(before, np.full(20, np.inf)) is None
    same = paired_energy_gain_db(before, before)
    assert same == (0.0, 0.0)


def test_no_change_among_few_does_not_prove_that_there_is_none() -> None:
    ends = agreement_interval(np.zeros(20))
    assert ends is not None
    assert ends[0] < -0.05
    assert ends[1] > 0.05
    drawn, hits = np.random.default_rng(5), 0
    for _ in range(1000):
        losses = drawn.choice([1.0, 0.0, -1.0], size=60, p=[0.05, 0.93, 0.02])
        found = agreement_interval(losses)
        assert found is not None
        hits += found[0] <= 0.03 <= found[1]
    assert hits >= 930


def level(values: np.ndarray, period: float) -> float:
    found = fit_extremes(values)
    assert found is not None
    return float(found.level(np.asarray(period)))


def test_the_largest_of_many_samples_is_told_by_few_of_them() -> None:
    drawn = np.random.default_rng(3)
    # Of a Gumbel distribution what one of 1000 exceeds is known; of long tails it is further out.
    exact = 3 - 0.5 * math.log(-math.log1p(-1 / 1000))
    found = [level(drawn.gumbel(3, 0.5, 36), 1000) for _ in range(400)]
    assert np.median(found) == pytest.approx(exact, rel=0.06)
    assert np.mean(np.abs(np.array(found) / exact - 1) < 0.25) >= 0.9
    long = np.median([level(np.exp(drawn.gumbel(0, 0.4, 36)), 1000) for _ in range(400)])
    short = np.median([level(np.exp(drawn.gumbel(0, 0.1, 36)), 1000) for _ in range(400)])
    assert 1.5 < short < math.exp(0.1 * 6.91) * 1.2 < 6 < long < math.exp(0.4 * 6.91) * 1.2


@pytest.mark.parametrize("values", [np.full(9, 2.6), np.zeros(9), np.array([1.0, 2.0]), np.zeros(0)])
def test_samples_that_all_end_alike_are_not_exceeded(values: np.ndarray) -> None:
    assert safe_end(values, other=0.0, rounding=1e-4, weight=2.0) == values.max(initial=0.0)


def test_a_range_ends_further_out_where_clipping_counts_more_and_nearer_where_more_values_are_rounded() -> None:
    drawn = np.random.default_rng(8)
    for _ in range(200):
        values = np.abs(drawn.standard_t(3, 24)) * drawn.uniform(0.01, 100)
        found = [safe_end(values, other=0.0, rounding=1e-3, weight=weight) for weight in (1, 4, 16)]
        assert found == sorted(found)
        more = [safe_end(values, other=0.0, rounding=each, weight=2.0) for each in (1e-6, 1e-4, 1e-2, 1e6)]
        assert more == sorted(more, reverse=True)
        assert more[-1] == pytest.approx(values.max(), rel=0.1)
        assert min(found + more) >= values.max()
        scaled = safe_end(7 * values, other=0.0, rounding=1e-3, weight=4)
        assert scaled == pytest.approx(7 * found[1])


def test_where_a_range_ends_costs_least_on_samples_that_it_was_not_found_on() -> None:
    """Against the least of all ends on 200,000 others, of a distribution that is known."""
    drawn = np.random.default_rng(5)
    others = drawn.gumbel(3, 0.5, 200_000)

    def cost(end: float, rounding: float) -> float:
        return rounding * end**2 + float(np.square(np.maximum(others - end, 0)).mean())

    least = min(cost(end, 2e-5) for end in np.linspace(3, 9, 601))
    many = [safe_end(drawn.gumbel(3, 0.5, 400), other=0.0, rounding=2e-5, weight=1.0) for _ in range(20)]
    assert np.median([cost(end, 2e-5) for end in many]) == pytest.approx(least, rel=0.05)
    few = [drawn.gumbel(3, 0.5, 24) for _ in range(200)]
    least = min(cost(end, 2e-4) for end in np.linspace(3, 9, 601))
    ours = np.array([cost(safe_end(each, other=0.0, rounding=2e-4, weight=2.0), 2e-4) for each in few])
    assert ours.mean() < np.mean([cost(each.max(), 2e-4) for each in few])
    assert np.quantile(ours, 0.95) < 2 * least
