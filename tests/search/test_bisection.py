"""Bisection finds the smallest count that meets the goal, in few steps."""

from math import floor, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.search.recipe_text import next_count


def proposals(nodes: int, needed: int) -> list[int]:
    asked: list[int] = []
    while (count := next_count(nodes, [each >= needed for each in asked])) is not None:
        asked.append(count)
    return asked


@given(st.integers(1, 300), st.data())
def test_the_smallest_count_that_passes_is_among_the_proposals_or_nothing_passes(
    nodes: int, data: st.DataObject
) -> None:
    needed = data.draw(st.integers(1, nodes + 1))
    asked = proposals(nodes, needed)
    passed = [count for count in asked if count >= needed]
    assert (min(passed) == needed) if needed <= nodes else not passed
    assert len(asked) == len(set(asked)) <= floor(log2(nodes)) + 1
    assert needed - 1 in asked or needed == 1


def test_the_first_proposal_is_the_middle_and_half_remains_each_time() -> None:
    assert proposals(8, 3) == [4, 2, 3]
    assert proposals(8, 4) == [4, 2, 3]
    assert proposals(8, 8) == [4, 6, 7, 8]


def test_nothing_to_search_proposes_nothing() -> None:
    assert next_count(0, []) is None


def test_outcomes_of_nothing_proposed_are_refused() -> None:
    with pytest.raises(ValueError, match="had ended"):
        next_count(1, [True, True])
