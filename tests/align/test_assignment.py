"""One partner for each, as strong as possible together."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from roundoff.align.evidence import MatchEvidence, assign

TABLES = st.integers(1, 4).flatmap(
    lambda size: st.lists(st.lists(st.floats(0, 20), min_size=size, max_size=size), min_size=1, max_size=4)
)


def items(table: list[list[float]]) -> tuple[list[MatchEvidence], dict[tuple[int, int], float]]:
    weights = {(row, column): value for row, line in enumerate(table) for column, value in enumerate(line)}
    evidence = [
        MatchEvidence(row, column, None, residual=0.1, difference=0.1, effective=100, trials=1)
        for row, column in weights
    ]
    return evidence, weights


@given(table=TABLES)
def test_each_has_one_partner_and_none_is_left_over(table: list[list[float]]) -> None:
    evidence, weights = items(table)
    chosen = assign(evidence, weights)
    assert len({item.candidate for item in chosen.values()}) == len(chosen) == min(len(table), len(table[0]))
    assert all(item.reference == row for row, item in chosen.items())


@given(table=TABLES)
def test_no_exchange_of_two_helps(table: list[list[float]]) -> None:
    evidence, weights = items(table)
    chosen = assign(evidence, weights)
    for one, other in permutations(chosen.values(), 2):
        now = weights[one.key] + weights[other.key]
        swapped = weights[one.reference, other.candidate] + weights[other.reference, one.candidate]
        assert now >= swapped - 1e-5


def test_the_strongest_pair_gives_way_to_the_better_whole() -> None:
    evidence, weights = items([[10.0, 9.9], [9.9, 1.0]])
    chosen = assign(evidence, weights)
    assert {row: item.candidate for row, item in chosen.items()} == {0: 1, 1: 0}


def test_the_order_of_evidence_decides_ties() -> None:
    evidence, weights = items([[1.0, 1.0]])
    assert assign(evidence, weights)[0].candidate == 0
    assert assign(evidence[::-1], weights)[0].candidate == 1


def test_nothing_in_nothing_out() -> None:
    assert assign([], {}) == {}
