"""Values that take the place of others have their statistics, and are not theirs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.case.disguise import jittered, like, sample_like, shuffled
from roundoff.core.tensors import Array

SHAPES = st.tuples(st.integers(2, 5), st.integers(2, 6), st.integers(3, 5))
FLOATS = hnp.arrays(np.float32, SHAPES, elements=st.integers(-1000, 1000).map(lambda each: each / 64))


def random() -> np.random.Generator:
    return np.random.default_rng(3)


@given(FLOATS)
def test_each_slice_keeps_its_extremes_and_about_its_mean(values: Array) -> None:
    found = like(values, 0, random())
    assert found.dtype == values.dtype
    assert found.shape == values.shape
    if values[0].size < 8:
        return
    for old, new in zip(values, found, strict=True):
        np.testing.assert_allclose([new.min(), new.max()], [old.min(), old.max()], rtol=6e-3, atol=1e-6)
        assert abs(new.mean() - old.mean()) <= 0.5 * (old.max() - old.min()) + 1e-6


@given(FLOATS)
def test_a_shuffled_slice_has_the_same_values(values: Array) -> None:
    found = shuffled(values, 0, random())
    if values[0].size >= 8:
        for old, new in zip(values, found, strict=True):
            np.testing.assert_array_equal(np.sort(old.ravel()), np.sort(new.ravel()))


def test_sizes_of_both_kinds_of_channels_stay() -> None:
    sizes = np.outer([1, 100, 1], [1, 1, 50, 1, 1, 1]).reshape(3, 6, 1, 1)
    values = (random().standard_normal((3, 6, 5, 5)) * sizes).astype(np.float32)
    for replace in (like, shuffled):
        found = replace(values, 0, np.random.default_rng(1), other=1)
        rows = found.std(axis=(1, 2, 3)) / values.std(axis=(1, 2, 3))
        columns = found.std(axis=(0, 2, 3)) / values.std(axis=(0, 2, 3))
        assert np.all((rows > 0.7) & (rows < 1.4)), rows
        assert np.all((columns > 0.6) & (columns < 1.6)), columns


@given(FLOATS)
def test_jitter_changes_every_value_a_little(values: Array) -> None:
    found = jittered(values, random())
    assert np.array_equal(found == 0, values == 0)
    live = values != 0
    change = np.abs(found[live] / values[live] - 1)
    assert np.all(change > 0.005)
    assert np.all(change < 0.051)


def test_a_picture_keeps_its_distribution_and_not_its_content() -> None:
    grid = np.linspace(0, 1, 16)
    picture = (np.outer(grid, grid**2)[None, None] + np.array([0.0, 1.0, 2.0])[:, None, None]).astype(np.float32)
    found = sample_like(picture, random())
    assert found.shape == picture.shape
    for old, new in zip(picture[0], found[0], strict=True):
        np.testing.assert_allclose(np.sort(new.ravel()), np.sort(old.ravel()), atol=0.06)
        assert abs(np.corrcoef(old.ravel(), new.ravel())[0, 1]) < 0.9
        # Neighbours are as much alike as they were.
        assert np.abs(np.diff(new, axis=1)).mean() < 0.5 * np.abs(new[:, 3:] - new[:, :-3]).mean() + 0.05


def test_masks_stay_and_whole_numbers_are_drawn_anew() -> None:
    mask = np.array([[1, 1, 0, 0]], np.int64)
    assert np.array_equal(sample_like(mask, random()), mask)
    words = np.arange(100, 140)[None]
    found = sample_like(words, random())
    assert found.dtype == words.dtype
    assert found.min() >= 100
    assert found.max() <= 139
    assert not np.array_equal(found, words)
