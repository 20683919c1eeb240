"""Class numbers, indices and truth values: equal or not."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.measure.classes import IndexCounts, class_places, class_predictions, index_pair, same_classes
from roundoff.measure.metrics import get_metric
from roundoff.measure.pairs import measure_pair
from roundoff.measure.verdicts import index_doubts, index_scores


def counts(wrong: int, total: int, classes: int = 10) -> IndexCounts:
    ours = np.arange(total) % classes
    return IndexCounts().add(ours, np.where(np.arange(total) < wrong, ours + 1, ours))


def _tail(wrong: int, total: int) -> Fraction:
    """How probable so many wrong ones are with one in twenty."""
    p = Fraction(1, 20)
    return sum((math.comb(total, k) * p**k * (1 - p) ** (total - k) for k in range(wrong, total + 1)), Fraction(0))


@pytest.mark.parametrize("total", [1, 2, 3, 8, 19, 20, 32, 64, 200])
def test_one_in_twenty_may_differ_and_chance_is_no_verdict(total: int) -> None:
    for wrong in range(total + 1):
        if wrong <= total / 20:
            expected = "equal"
        else:
            expected = "unclear" if _tail(wrong, total) > Fraction(1, 10) else "different"
        assert counts(wrong, total).state == expected, (wrong, total)


def test_one_of_eight_is_neither_fine_nor_lost() -> None:
    found = counts(1, 8)
    [doubt] = index_doubts({"best": found})
    assert (doubt.kind, doubt.count, doubt.of, doubt.name) == ("indices", 1, 8, "best")
    assert index_scores(found)["equal_share"] == 7 / 8
    assert not index_doubts({"best": counts(5, 8)})
    assert set(index_scores(counts(5, 8))) == {"equal_share"}


def test_a_mask_of_nothing_does_not_agree_with_a_rare_one() -> None:
    mask = np.zeros(8000, bool)
    mask[:8] = True
    found = IndexCounts().add(mask, np.zeros(8000, bool))
    assert (found.share, found.telling, found.state) == (0.999, 8, "different")
    assert IndexCounts().add(mask, mask).state == "equal"


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5), st.integers(0, 2**32)
)
def test_samples_add_up(samples: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(np.array(each), np.where(rng.random(len(each)) < 0.3, 9, each)) for each in samples]
    found = IndexCounts()
    for ours, theirs in pairs:
        found = found.add(ours, theirs)
    whole = IndexCounts().add(*(np.concatenate([pair[side] for pair in pairs]) for side in (0, 1)))
    assert found == whole


def test_the_measure_of_indices_is_the_share_that_differs() -> None:
    ours, theirs = np.array([3, 900, 5, 7]), np.array([3, 1, 5, 7])
    sums = measure_pair(*index_pair(ours, theirs))
    assert get_metric("sqnr_db").value(sums) == pytest.approx(10 * math.log10(4))
    assert get_metric("mse").value(sums) == pytest.approx(1 / 4)
    numbers = np.array([1.5, 2.5], np.float32)
    assert index_pair(numbers, numbers + 1)[1] is not None
    assert np.array_equal(index_pair(numbers, numbers + 1)[1], numbers + 1)


def test_which_output_says_the_class() -> None:
    scores, best = np.array([[0.1, 0.9, 0.3]], np.float32), np.array([1])
    top, places = np.array([[0.9, 0.3]], np.float32), np.array([[1, 2]])
    assert class_places([scores, best]) == [0, 1]
    # The scores of TopK are in order: their first is the highest whatever the class is.
    assert class_places([top, places]) == [1, 0]
    assert class_predictions(places) == [1]
    assert same_classes(places, np.array([[1, 0]])) == (1, 1)
    assert same_classes(best, np.array([2])) == (0, 1)
    assert same_classes(np.array([True]), np.array([False])) == (0, 0)
