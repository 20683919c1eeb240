"""Counting peaks: those that must be found, those that must not, and what can never change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.studies.distribution.values import certain_peaks, tube_radius

RNG = np.random.default_rng(7)
MANY = 100_000
COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=40).filter(any)
GAPS = st.floats(0.01, 10)


def peaks_of(values: Array, bins: int = 150) -> tuple[float, ...]:
    counts, edges = np.histogram(values, bins)
    return certain_peaks(edges.tolist(), counts.tolist())


ONE_PEAK = {
    "normal": RNG.standard_normal(MANY),
    "laplace": RNG.laplace(size=MANY),
    "heavy tails": np.clip(RNG.standard_t(2, size=MANY), -20, 20),
    "relu": np.maximum(RNG.standard_normal(MANY), 0),
    "flat": RNG.uniform(size=MANY),
    "slope": RNG.triangular(0, 0, 1, size=MANY),
    "skewed": RNG.exponential(size=MANY),
    "few values": RNG.standard_normal(40),
    "rounded": np.round(RNG.standard_normal(MANY) * 60),
}


@pytest.mark.parametrize("name", ONE_PEAK)
def test_one_peak(name: str) -> None:
    assert len(peaks_of(ONE_PEAK[name])) == 1


def test_the_peak_is_where_it_is() -> None:
    (peak,) = peaks_of(RNG.normal(3, 1, MANY))
    assert peak == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([(-2, 1, MANY), (2, 1, MANY)], (-2, 2)),
        ([(0, 1, MANY), (9, 1, MANY // 10)], (0, 9)),
        ([(-8, 1, MANY), (0, 1, MANY), (8, 1, MANY)], (-8, 0, 8)),
        ([(-5, 1, 60), (5, 1, 60)], (-5, 5)),
    ],
)
def test_several_peaks(parts: list[tuple[float, float, int]], found: tuple[float, ...]) -> None:
    values = np.concatenate([RNG.normal(*part) for part in parts])
    assert peaks_of(values) == pytest.approx(found, abs=0.6 if len(values) > 1000 else 1.5)


def test_a_saturated_activation_has_a_peak_at_each_end() -> None:
    values = np.clip(RNG.normal(3, 4, MANY), 0, 6)
    found = peaks_of(values)
    assert (found[0], found[-1]) == pytest.approx((0, 6), abs=0.1)


def test_a_handful_of_values_far_away_is_no_peak() -> None:
    values = np.concatenate([RNG.standard_normal(MANY), np.full(MANY // 100, 12.0)])
    assert len(peaks_of(values)) == 1


def test_a_narrow_gap_is_no_valley() -> None:
    edges = list(range(101))
    counts = [1000] * 100
    counts[50] = 0
    assert len(certain_peaks(edges, counts)) == 1
    assert len(certain_peaks(edges, counts, radius=0.0001)) == 2


@given(COUNTS, st.data())
def test_moving_stretching_and_mirroring_changes_nothing(counts: list[int], data: st.DataObject) -> None:
    gaps = data.draw(st.lists(GAPS, min_size=len(counts), max_size=len(counts)))
    edges = np.concatenate([[0.0], np.cumsum(gaps)])
    found = certain_peaks(edges.tolist(), counts, radius=0.05)
    moved = certain_peaks((3 * edges + 5).tolist(), counts, radius=0.05)
    assert moved == pytest.approx([3 * peak + 5 for peak in found], rel=1e-6, abs=1e-6)
    mirrored = certain_peaks((-edges[::-1]).tolist(), counts[::-1], radius=0.05)
    assert mirrored == pytest.approx([-peak for peak in found[::-1]], rel=1e-6, abs=1e-6)


@given(COUNTS, st.floats(0.001, 0.3), st.floats(1, 5))
def test_a_wider_tube_never_has_more_peaks(counts: list[int], radius: float, factor: float) -> None:
    edges = list(range(len(counts) + 1))
    narrow = certain_peaks(edges, counts, radius=radius)
    wide = certain_peaks(edges, counts, radius=radius * factor)
    assert 1 <= len(wide) <= len(narrow)


@given(COUNTS)
def test_without_tolerance_every_bump_is_a_peak(counts: list[int]) -> None:
    steps = [count for index, count in enumerate(counts) if index == 0 or count != counts[index - 1]]
    padded = [-1, *steps, -1]
    bumps = sum(padded[place - 1] < padded[place] > padded[place + 1] for place in range(1, len(padded) - 1))
    assert len(certain_peaks(list(range(len(counts) + 1)), counts, radius=0.0)) == bumps


def test_nothing_has_no_peak() -> None:
    assert certain_peaks([0, 1, 2], [0, 0]) == ()


def test_few_values_prove_less() -> None:
    assert tube_radius(100) == pytest.approx(0.1358)
    assert tube_radius(10**9) == 0.01
