"""Means, intervals and ranks."""

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.quantizers import SwitchedSubject
from roundoff.measure.inference import two_sided_quantile
from roundoff.measure.metrics import get_metric
from roundoff.measure.rows import ROW_NUMBERS, row_table
from roundoff.studies.sensitivity.ranking import leading, load_sensitivity, rank, sample_values, summarize
from roundoff.studies.sensitivity.result import Mode, SubjectScore

SQNR, MSE = get_metric("sqnr_db"), get_metric("mse")


def row(signal: float, noise: float) -> list[float]:
    """What is gathered of one sample with these energies; nothing where one is NaN."""
    if math.isnan(signal + noise):
        return [math.nan] * ROW_NUMBERS
    sides = (np.array([[math.sqrt(signal), other]]) for other in (0.0, math.sqrt(noise)))
    return list(row_table(*sides)[0].tolist())


def decibels(value: float) -> list[float]:
    """What is gathered of one sample with so many decibels."""
    return row(0.0, 1.0) if value == -math.inf else row(1.0, 10 ** (-value / 10))


def scored(name: str, values: list[float], *, samples: list[int] | None = None) -> SubjectScore:
    table = np.array([[decibels(value)] for value in values])
    return summarize(SwitchedSubject(name, "node", (name,)), samples or range(len(values)), table, [SQNR])


def test_means_over_samples_then_outputs() -> None:
    # Each sample has two elements.
    table = np.array([[row(9, 2.0), row(9, 20.0)], [row(9, 6.0), row(9, math.nan)], [row(9, 10.0), row(9, 60.0)]])
    found = summarize(SwitchedSubject("n", "node", ()), [4, 5, 9], table, [MSE])
    assert found.per_output["mse"] == pytest.approx((3.0, 20.0))
    assert found.mean["mse"] == found.scores["mse"] == pytest.approx(11.5)
    np.testing.assert_allclose(sample_values(found, MSE, 0), [5.5, 3.0, 17.5])
    half = two_sided_quantile(2) * np.std([5.5, 3.0, 17.5], ddof=1) / math.sqrt(3)
    assert found.interval["mse"] == pytest.approx((26 / 3 - half, 26 / 3 + half))


def test_perfect_samples_of_sqnr_count_only_when_all_are() -> None:
    assert scored("some", [math.inf, 20.0, 30.0]).mean["sqnr_db"] == pytest.approx(25.0)
    assert scored("all", [math.inf, math.inf]).mean["sqnr_db"] == math.inf
    assert scored("none", [math.nan, math.nan]).mean["sqnr_db"] is not None
    assert math.isnan(scored("none", [math.nan, math.nan]).mean["sqnr_db"])
    assert scored("worst", [-math.inf, 20.0]).mean["sqnr_db"] == -math.inf
    one_output = np.array([[decibels(math.inf), decibels(40.0)], [decibels(math.inf), decibels(20.0)]])
    found = summarize(SwitchedSubject("n", "node", ()), [0, 1], one_output, [SQNR])
    assert found.mean["sqnr_db"] == pytest.approx(30.0)
    assert found.scores["sqnr_db"] == pytest.approx(10 * math.log10(2 / 0.0101))


def test_the_score_pools_energies_and_the_mean_has_its_own_name() -> None:
    table = np.array([[row(100.0, 0.1)], [row(1.0, 0.1)], [row(4.0, 0.0)]])
    pooled, mean = SQNR, get_metric("mean_sqnr_db")
    found = summarize(SwitchedSubject("n", "node", ()), range(3), table, [pooled, mean])
    assert found.scores["sqnr_db"] == pytest.approx(10 * math.log10(105 / 0.2))
    assert found.scores["mean_sqnr_db"] == found.mean["sqnr_db"] == pytest.approx(20.0)
    assert found.interval["sqnr_db"] == found.interval["mean_sqnr_db"]
    assert found.reach["mean_sqnr_db"] == found.interval["mean_sqnr_db"]


def test_a_pooled_score_lies_in_its_interval_whatever_single_samples_show() -> None:
    energies = np.array([[10.0, 0.5], [1.0, 1e-6], [2.0, 1e-6], [1.0, 1e-7]])
    table = np.array([[row(*line), row(*line), row(line[0], 0.0)] for line in energies.tolist()])
    found = summarize(SwitchedSubject("n", "node", ()), range(4), table, [SQNR])
    signal, noise = energies.T
    low, high = found.reach["sqnr_db"] or (math.nan, math.nan)
    middle = 10 * math.log10(signal.sum() / noise.sum())
    spread = np.sqrt(4 / 3 * np.square(noise / noise.sum() - signal / signal.sum()).sum()) * 10 / math.log(10)
    half = two_sided_quantile(3) * spread
    assert found.scores["sqnr_db"] == pytest.approx(middle)
    assert (low, high) == pytest.approx((middle - half, middle + half))
    # The mean over samples is another figure, and where it lies says nothing of this one.
    assert found.mean["sqnr_db"] > high


@given(st.lists(st.floats(-50, 100), min_size=1, max_size=8))
def test_the_worst_comes_first(means: list[float]) -> None:
    scores = [scored(f"n{at}", [mean, mean]) for at, mean in enumerate(means)]
    alone = [row.score.mean["sqnr_db"] for row in rank(scores, [SQNR], mode="alone")]
    assert alone == sorted(alone)
    # Left out, the one whose absence helps most.
    left_out = [row.score.mean["sqnr_db"] for row in rank(scores, [SQNR], mode="left_out")]
    assert left_out == sorted(alone, reverse=True)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_what_has_no_score_comes_last_and_equals_keep_their_order(mode: Mode) -> None:
    scores = [scored("nan", [math.nan]), scored("b", [3.0]), scored("a", [3.0])]
    assert [row.score.subject.name for row in rank(scores, [SQNR], mode=mode)] == ["b", "a", "nan"]


def test_neighbours_are_told_apart_by_their_samples() -> None:
    noise = np.random.default_rng(0).standard_normal(12)
    hard = 20 + 5 * np.random.default_rng(1).standard_normal(12)
    scores = [
        scored("first", list(hard)),
        scored("clearly better", list(hard + 1 + 0.01 * noise)),
        scored("perhaps better", list(hard + 1.001 + 0.02 * noise[::-1])),
    ]
    rows = rank(scores, [SQNR], mode="alone")
    assert [row.told_apart for row in rows] == [True, False, None]
    assert [row.rank for row in rows] == [1, 2, 3]


def test_rows_are_compared_on_the_samples_they_share() -> None:
    few = scored("few", [10.0, 20.0], samples=[2, 5])
    many = scored("many", [99.0, 11.0, 99.0, 21.0], samples=[0, 2, 3, 5])
    (first, _) = rank([few, many], [SQNR], mode="alone")
    assert first.differs_from_next == 0.0
    (first, _) = rank([few, scored("other", [1.0], samples=[7])], [SQNR], mode="alone")
    assert first.differs_from_next is None


def test_leaders_stay_ahead() -> None:
    scores = [scored("a", [30.0, 31.0]), scored("b", [20.0, 29.0]), scored("c", [25.0, 26.0])]
    rows = rank(scores, [SQNR], mode="alone", leaders=[scores[0].subject])
    assert [row.score.subject.name for row in rows] == ["a", "b", "c"]


def test_the_leading_ones_and_those_that_may_be() -> None:
    noise = 0.1 * np.random.default_rng(3).standard_normal((6, 16))
    means = [10, 12, 12.01, 12.02, 15, 16]
    scores = [scored(f"n{at}", list(mean + noise[at])) for at, mean in enumerate(means)]
    assert {subject.name for subject in leading(scores, [SQNR], mode="alone", top=2)} == {"n0", "n1", "n2", "n3"}
    assert len(leading(scores, [SQNR], mode="alone", top=6)) == 6
    assert len(leading(scores[:1], [SQNR], mode="alone", top=6)) == 1


def test_a_function_that_writes_into_what_it_compares_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    path.write_text(
        "HIGHER_IS_BETTER = True\ndef compare(reference, candidate):\n"
        "    found = abs(reference - candidate).max()\n    reference[...] = candidate[...] = 0\n    return found\n"
    )
    user, ours, theirs = load_sensitivity(path), np.arange(4.0), np.ones(4)
    assert user.mean([ours], [theirs]) == user.mean([ours], [theirs]) == 2.0
    np.testing.assert_array_equal(ours, np.arange(4.0))
