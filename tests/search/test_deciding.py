"""Trials are decided early only when that is safe."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.search.goal import ERROR_PROBABILITY, decide, look_sizes


@given(st.integers(1, 5000))
def test_looks_grow_up_to_all_samples(total: int) -> None:
    sizes = look_sizes(total)
    assert sizes[-1] == total
    assert sizes[0] == min(32, total)
    assert list(sizes) == sorted(set(sizes))
    assert len(sizes) <= 4 + 2 * np.log2(max(2, total / 32))


@given(
    st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=1, max_size=60), st.sampled_from((-0.5, -0.01, 0.0, 0.3))
)
def test_all_samples_have_the_last_word(gains: list[float], needed: float) -> None:
    truth = bool(np.mean(gains) >= needed)
    assert decide(np.array(gains), needed=needed, total=len(gains), limits=(-1, 1), looks=3) == truth
    assert decide(np.array(gains), needed=needed, total=len(gains), limits=None, looks=3) == truth


@given(st.integers(40, 300), st.integers(1, 39))
def test_what_the_rest_cannot_change_is_decided(total: int, lost: int) -> None:
    gains = -np.ones(lost)
    best_possible = -lost / total
    assert decide(gains, needed=best_possible + 1e-6, total=total, limits=(-1, 0), looks=3) is False


_SETS = 80


def rates(loss: float, needed: float, *, limits: tuple[float, float] | None) -> tuple[float, float]:
    """How often sets that meet the goal are given up, and the mean share of samples run."""
    rng = np.random.default_rng(5)
    wrong, run = 0, []
    for _ in range(_SETS):
        gains = rng.choice([-1.0, 0.0, 1.0], p=[loss + 0.02, 0.96 - loss, 0.02], size=600)
        looks = look_sizes(gains.size)
        for size in looks:
            decided = decide(gains[:size], needed=needed, total=gains.size, limits=limits, looks=len(looks))
            if decided is not None:
                break
        wrong += decided is False and gains.mean() >= needed
        run.append(size / gains.size)
    return wrong / _SETS, float(np.mean(run))


@pytest.mark.parametrize("limits", [(-1.0, 1.0), None])
def test_hopeless_trials_are_short_and_good_ones_are_not_given_up(limits: tuple[float, float] | None) -> None:
    assert rates(0.3, -0.01, limits=limits)[1] < 0.15
    for loss in (0.0, 0.01, 0.02):
        assert rates(loss, -0.01, limits=limits)[0] <= ERROR_PROBABILITY


def test_values_without_limits_or_spread_are_not_decided() -> None:
    assert decide(np.zeros(64), needed=-1.0, total=100, limits=None, looks=2) is None
    assert decide(np.array([np.inf] * 64), needed=0.0, total=100, limits=(-1, 1), looks=2) is None
    assert decide(np.zeros(40), needed=0.0, total=100, limits=(1.0, 1.0), looks=2) is None
