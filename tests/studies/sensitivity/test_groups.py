"""What places cost, from groups of them where there are many."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.studies.sensitivity.ranking import place_costs, worst_names


class Adding:
    """Costs that add up, as those of independent errors do; counts how often it is asked."""

    def __init__(self, costs: dict[str, float]) -> None:
        self.costs, self.asked = costs, 0

    def __call__(self, places: Sequence[str]) -> float:
        self.asked += 1
        return sum(self.costs[place] for place in places)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=64))
def test_few_places_are_measured_one_by_one(costs: list[int]) -> None:
    known = {f"p{at}": float(cost) for at, cost in enumerate(costs)}
    found = place_costs(tuple(known), Adding(known), name=str)
    assert found is not None
    assert found.exact
    assert found.costs == known
    assert found.total == sum(costs)
    assert [known[place] for place in found.places] == sorted((cost for cost in costs if cost), reverse=True)


@given(st.integers(65, 500), st.data())
def test_of_many_places_the_costliest_are_singled_out(count: int, data: st.DataObject) -> None:
    names = [f"p{at}" for at in range(count)]
    heavy = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    known = {name: 1000.0 * 2 ** heavy.index(name) if name in heavy else 0.01 for name in names}
    cost = Adding(known)
    found = place_costs(names, cost, name=str)
    assert found is not None
    assert not found.exact
    assert found.total == pytest.approx(sum(known.values()))
    assert found.places[0] == max(known, key=lambda name: known[name])
    assert sum(found.costs.values()) == pytest.approx(found.total)
    # Groups first, then two halves for each step down to a place.
    assert cost.asked <= 16 + 4 * 2 * count.bit_length()


def test_out_of_time() -> None:
    assert place_costs(["a", "b"], Adding({"a": 1.0, "b": 1.0}), name=str, out_of_time=lambda: True) is None


def test_which_way_a_score_is_better_decides_who_is_first() -> None:
    scores = {"a": 0.5, "b": 0.1, "c": 0.5}
    assert worst_names(scores, higher_is_better=True) == ("b", "a", "c")
    assert worst_names(scores, higher_is_better=False) == ("a", "c", "b")
