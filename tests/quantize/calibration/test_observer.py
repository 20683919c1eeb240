"""What is remembered depends on the elements alone, and takes no more memory for more samples."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.quantize.calibration import observer as module
from roundoff.quantize.calibration.observer import (
    MOST_ELEMENTS,
    ChannelMismatch,
    Observation,
    Observer,
    merge_observations,
)
from tests.quantize.calibration.observing import observed

FLOATS = st.floats(width=32)
BATCHES = st.lists(hnp.arrays(np.float32, st.tuples(st.integers(0, 6), st.just(3)), elements=FLOATS), min_size=1)


def assert_equal(left: Observation, right: Observation) -> None:
    assert (left.axis, left.rank, left.count) == (right.axis, right.rank, right.count)
    assert (left.nans, left.infs) == (right.nans, right.infs)
    np.testing.assert_array_equal(left.low, right.low)
    np.testing.assert_array_equal(left.high, right.high)
    assert (left.elements is None) == (right.elements is None)
    if left.elements is not None and right.elements is not None:
        np.testing.assert_array_equal(left.elements, right.elements)
    assert (left.histogram is None) == (right.histogram is None)
    if left.histogram is not None and right.histogram is not None:
        np.testing.assert_array_equal(left.histogram.exponent, right.histogram.exponent)
        np.testing.assert_array_equal(left.histogram.counts, right.histogram.counts)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("most", [MOST_ELEMENTS, 20])
@given(batches=BATCHES, seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_order_batches_and_merging_do_not_matter(
    batches: list[Array], seed: int, most: int, axis: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_ELEMENTS", most)
        patch.setattr("roundoff.quantize.calibration.observer.MOST_ELEMENTS", most)
        whole = np.concatenate(batches)
        once = observed(whole, axis=axis)
        assert_equal(once, observed(*batches, axis=axis))
        shuffled = whole[np.random.default_rng(seed).permutation(len(whole))]
        parts = [observed(part, axis=axis) for part in np.array_split(shuffled, 3)]
        assert_equal(once, parts[2].merge(parts[0].merge(parts[1])))
        assert (once.elements is not None) == (whole.size <= most)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("most", [MOST_ELEMENTS, 20])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_limits_give_what_limited_elements_would(data: st.DataObject, most: int, dtype: type) -> None:
    low, high = sorted(data.draw(hnp.arrays(dtype, 2, elements={"allow_nan": False} if dtype != np.int32 else {})))
    assume(-np.inf < high and low < np.inf)
    finite = {} if dtype is np.int32 else {"allow_nan": False, "allow_infinity": False}
    batches = data.draw(st.lists(hnp.arrays(dtype, st.integers(0, 12), elements=finite), max_size=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roundoff.quantize.calibration.observer.MOST_ELEMENTS", most)
        observer, ranges = Observer(), Observer(ranges_only=True)
        for batch in batches:
            observer.add(batch)
            ranges.add(batch)
        expected = observed(*(np.clip(batch, low, high) for batch in batches))
        assert_equal(observer.limited(float(low), float(high)), expected)
        alone = ranges.limited(float(low), float(high))
        assert (alone.low, alone.high) == (expected.low, expected.high)


def test_limits_beyond_32_bits_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundoff.quantize.calibration.observer.MOST_ELEMENTS", 0)
    monkeypatch.setattr("roundoff.quantize.calibration.histogram._MOST_COUNTED", 300)
    values = np.random.default_rng(0).standard_normal((7, 100)).astype(np.float32)
    observer = Observer()
    for part in values:
        observer.add(part)
    assert_equal(observer.limited(-0.5, 1), observed(*np.clip(values, -0.5, 1)))


@given(hnp.arrays(np.float32, st.integers(0, 30), elements=FLOATS))
def test_numbers_of_a_tensor(values: Array) -> None:
    seen = observed(values)
    finite = values[np.isfinite(values)]
    assert seen.count == values.size
    assert seen.nans == np.count_nonzero(np.isnan(values))
    assert seen.infs == np.count_nonzero(np.isinf(values))
    assert seen.finite == finite.size
    assert seen.low.tolist() == [finite.min(initial=np.inf)]
    assert seen.high.tolist() == [finite.max(initial=-np.inf)]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_])
def test_ranges_of_channels(axis: int, dtype: type) -> None:
    values: Array = (np.random.default_rng(0).standard_normal((2, 3, 4)) * 3).astype(dtype)
    others = tuple(other for other in range(3) if other != axis % 3)
    for ranges_only in (False, True):
        observer = Observer(axis, ranges_only=ranges_only)
        observer.add(values)
        seen = observer.observation()
        assert (seen.axis, seen.rank, seen.rows) == (axis % 3, 3, values.shape[axis])
        assert seen.low.tolist() == values.min(axis=others).astype(float).tolist()
        assert seen.high.tolist() == values.max(axis=others).astype(float).tolist()
        assert seen.has_distribution != ranges_only


def test_values_too_large_for_float32_keep_their_range() -> None:
    seen = observed(np.array([1e300, -2.0, np.inf]))
    assert (seen.high.tolist(), seen.infs) == ([1e300], 1)
    assert seen.elements is not None
    assert np.isfinite(seen.elements[0, :2]).all()


def test_a_kept_element_does_not_hold_the_tensor() -> None:
    array = np.arange(6, dtype=np.float32)
    observer = Observer()
    observer.add(array)
    array[:] = 100
    assert observer.observation().high.tolist() == [5]
    elements = observer.observation().elements
    assert elements is not None
    assert elements.max() == 5


def test_it_can_be_asked_in_between() -> None:
    observer = Observer()
    observer.add(np.array([1.0], np.float32))
    first = observer.observation()
    observer.add(np.array([2.0], np.float32))
    assert (first.high.tolist(), observer.observation().high.tolist()) == ([1], [2])


def test_nothing_seen_yet() -> None:
    seen = Observer().observation()
    assert (seen.count, seen.rows, seen.finite) == (0, 1, 0)


@pytest.mark.parametrize(("shape", "axis"), [((), 0), ((3,), 1), ((2, 2), -3)])
def test_an_axis_that_is_not_there(shape: tuple[int, ...], axis: int) -> None:
    with pytest.raises(ChannelMismatch, match=f"no axis {axis}"):
        observed(np.zeros(shape, np.float32), axis=axis)


def test_channels_that_change() -> None:
    with pytest.raises(ChannelMismatch, match="2 channels in one sample and 3 in another"):
        observed(np.zeros((1, 2)), np.zeros((1, 3)), axis=1)
    with pytest.raises(ChannelMismatch, match="2 channels on axis 1 and 3 channels on axis 1"):
        observed(np.zeros((1, 2)), axis=1).merge(observed(np.zeros((1, 3)), axis=1))


@pytest.mark.parametrize("sizes", [(10, 10), (70_000, 10), (10, 70_000), (70_000, 70_000)])
def test_channels_join_a_tensor_without_them(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((size, 2)).astype(np.float32) for size in sizes)
    merged = merge_observations([observed(left, axis=1), observed(right)])
    assert (merged.axis, merged.count) == (None, left.size + right.size)
    assert merged.low.tolist() == [min(left.min(), right.min())]
    if merged.histogram is not None:
        assert merged.histogram.counts.sum() == merged.count
