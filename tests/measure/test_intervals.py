"""Intervals of pooled ratios and shares hold what they promise, on populations that are known."""

import math

import numpy as np

from roundoff.measure.inference import agreement_interval, energy_ratio_interval_db, paired_energy_gain_db


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
