"""How long a search may still take."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.messages.numbers import TimeLeft, duration_text

UNITS = {"s": 1, "min": 60, "h": 3600}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.4, "0 s"), (45, "45 s"), (59.7, "1 min"), (150, "2 min"), (3600, "1 h"), (4800, "1 h 20 min")],
)
def test_times_are_told_in_their_largest_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(0, 1e6))
def test_a_time_in_words_is_nearly_the_time(seconds: float) -> None:
    told = sum(
        int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+) (s|min|h)", duration_text(seconds))
    )
    assert abs(told - seconds) <= (0.5 if seconds < 59.5 else 30)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.integers(0, 5), st.integers(1, 20))
def test_steps_that_are_left_take_as_long_as_those_before(lengths: list[float], earlier: int, most: int) -> None:
    now = 0.0
    left = TimeLeft(most, None, clock=lambda: now)
    for number, length in enumerate(lengths, start=1):
        now += length
        found = left.step(earlier + number)
        assert found is not None
        assert math.isclose(found, now / number * max(most - earlier - number, 0), abs_tol=1e-9)


def test_the_nearer_bound_counts_and_without_any_nothing_is_told() -> None:
    now = 0.0
    both, time_alone, none = (
        TimeLeft(most, time_s, clock=lambda: now) for most, time_s in ((100, 60.0), (None, 60.0), (None, None))
    )
    now = 10.0
    assert both.step(1) == time_alone.step(1) == 50.0
    assert none.step(1) is None
    now = 70.0
    assert time_alone.step(2) == 0.0
