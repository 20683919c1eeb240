"""The loop of a search, and bisection: the smallest count that meets the goal, in few steps."""

from collections.abc import Generator
from math import floor, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.messages.message import NOTHING, verbatim
from roundoff.search.strategies.ranked import next_count
from roundoff.search.strategies.strategy import BudgetSpent, run_trials


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


def halving(start: int) -> Generator[int, bool, str]:
    """Asks for halves until one is enough; tells of the last where it is refused."""
    asked = start
    try:
        while not (yield asked):
            asked //= 2
    except BudgetSpent as spent:
        return f"{asked} not tried, {spent}"
    return f"{asked} is enough"


def test_a_strategy_is_sent_what_came_of_what_it_proposed() -> None:
    assert run_trials(halving(16), lambda number: number <= 3) == ("2 is enough", NOTHING)


def test_a_refused_strategy_may_still_answer() -> None:
    answer = run_trials(
        halving(16), lambda number: False, refusal=lambda number: verbatim("over") if number < 8 else NOTHING
    )
    assert answer == ("4 not tried, over", verbatim("over"))


def test_a_strategy_that_has_no_answer_without_more_trials() -> None:
    def stubborn() -> Generator[int, int, int]:
        return (yield (yield 1))

    assert run_trials(stubborn(), lambda number: number + 1) == (3, NOTHING)
    assert run_trials(
        stubborn(), lambda number: 7, refusal=lambda number: verbatim("late") if number == 7 else NOTHING
    ) == (
        None,
        verbatim("late"),
    )


def test_a_strategy_with_nothing_to_try() -> None:
    def silent() -> Generator[int, int, str]:
        return "nothing"
        yield 0

    assert run_trials(silent(), lambda number: number) == ("nothing", NOTHING)
