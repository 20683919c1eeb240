"""Which samples are held out."""

import numpy as np

from roundoff.run.evaluators import FEWEST_HELD_OUT, split_samples


def test_both_parts_are_all_samples_and_the_same_each_time() -> None:
    for total in (8, 12, 31, 100, 1000):
        split = split_samples(total)
        assert sorted((*split.used, *split.held_out)) == list(range(total))
        assert split == split_samples(total)
    assert [len(split_samples(total).held_out) for total in (8, 12, 32, 48, 300)] == [4, 6, 16, 16, 100]


def test_too_few_samples_are_not_split() -> None:
    split = split_samples(2 * FEWEST_HELD_OUT - 1)
    assert (split.used, split.held_out) == (tuple(range(7)), ())
    assert split_samples(30, fewest=16).held_out == ()
    assert len(split_samples(40, share=0.25).held_out) == 10


def test_every_class_is_on_both_sides_in_its_share() -> None:
    labels = np.repeat(np.arange(10), 30)
    for order in (labels, labels.reshape(10, 30).T.ravel(), np.random.default_rng(3).permutation(labels)):
        counts = np.bincount(order[list(split_samples(300, labels=order).held_out)], minlength=10)
        assert counts.min() >= 8
        assert counts.max() <= 12


def test_samples_that_take_turns_are_on_both_sides_without_labels() -> None:
    for classes in (2, 3, 4, 10):
        turns = np.arange(96) % classes
        counts = np.bincount(turns[list(split_samples(96).held_out)], minlength=classes)
        assert counts.min() >= 1
        assert counts.max() <= 0.8 * counts.sum()
    # Spread: no long stretch is on one side only.
    held = np.array(split_samples(300).held_out)
    assert np.diff(held).max() <= 6
