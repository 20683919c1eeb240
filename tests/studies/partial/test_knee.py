"""Where a sweep has done enough."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.studies.partial.result import ScoreGoal, default_goal, drops, knee, levels_off, parse_goal, reaches

# Float 0.78788; the seed of this analysis found 14 weights to leave in float.
SWEEP = [0.71138, 0.7141, 0.7166, 0.7201, 0.7233, 0.7269, 0.7307, 0.7345, 0.7383, 0.7425, 0.7460, 0.7502, 0.7545,
         0.7589, 0.78004, 0.78252, 0.7827, 0.7829, 0.7831]  # fmt: skip


def goal_of(text: str, float_score: float = 0.78788, *, higher: bool = True) -> ScoreGoal:
    return parse_goal(text, score="accuracy", float_score=float_score, higher_is_better=higher)


def test_the_smallest_count_that_reaches_the_goal() -> None:
    assert knee(SWEEP, goal_of("99%"), higher_is_better=True) == 14
    assert knee(SWEEP, goal_of("0.7825"), higher_is_better=True) == 15
    assert knee(SWEEP, goal_of("100%"), higher_is_better=True) is None
    assert knee(SWEEP, goal_of("90%"), higher_is_better=True) == 0


def test_where_more_brings_little() -> None:
    assert levels_off(SWEEP, higher_is_better=True) == 14
    assert levels_off([1.0, 1.0, 1.0], higher_is_better=True) is None
    assert levels_off([1.0, 0.5], higher_is_better=True) is None
    assert levels_off([5.0, 4.0, 2.0, 1.99], higher_is_better=False) == 2
    # Without any noise there are endless decibels; they do not hide where it rises.
    assert levels_off([1.0, 7.0, 45.0, 46.0, math.inf], higher_is_better=True) == 2
    assert levels_off([1.0, math.inf], higher_is_better=True) == 1


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12), st.booleans())
def test_levelling_off_has_most_of_the_gain_and_no_smaller_count_has(scores: list[float], higher: bool) -> None:
    found = levels_off(scores, higher_is_better=higher)
    gains = [(score - scores[0]) * (1 if higher else -1) for score in scores]
    if found is None:
        assert max(gains) <= 0
        return
    assert gains[found] >= 0.95 * max(gains)
    assert all(gain < 0.95 * max(gains) for gain in gains[:found])


def test_steps_down_are_told() -> None:
    assert drops([1.0, 2.0, 1.5, 1.5, 1.0], higher_is_better=True) == (2, 4)
    assert drops([1.0, 2.0, 1.5], higher_is_better=False) == (1,)
    assert drops(SWEEP, higher_is_better=True) == ()


def test_goals_are_shares_or_scores() -> None:
    assert goal_of(" 99% ").value == pytest.approx(0.78788 * 0.99)
    assert goal_of("99.5 %").value == pytest.approx(0.78788 * 0.995)
    assert goal_of("0.7") == ScoreGoal("0.7", 0.7)
    # A loss may be as much higher.
    loss = goal_of("99%", 0.5, higher=False)
    assert loss.value == pytest.approx(0.5 / 0.99)
    assert reaches(0.505, loss, higher_is_better=False)
    assert not reaches(0.506, loss, higher_is_better=False)
    assert (default_goal(1.0), default_goal(math.inf)) == ("99%", "20")


@pytest.mark.parametrize(
    ("text", "float_score", "what"),
    [
        ("good", 1.0, "'good' is neither a share of the float score nor a score"),
        ("nan", 1.0, "'nan' is neither"),
        ("120%", 1.0, "'120%' is not a share"),
        ("0%", 1.0, "'0%' is not a share"),
        ("99%", math.inf, "a share of the float network's accuracy, which is inf"),
        ("99%", -1.0, "which is -1"),
        ("99%", 0.0, "which is 0"),
    ],
)
def test_goals_that_cannot_be(text: str, float_score: float, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        goal_of(text, float_score)
    assert what in caught.value.what
