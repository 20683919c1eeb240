"""The one-pass sums against an independent, straightforward computation."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure.metrics import cosine
from roundoff.measure.pairs import PairSums, channel_axis_of, measure_pair
from roundoff.measure.statistics import split_blocks

_SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)
_FLOATS = st.floats(-1e4, 1e4, width=32)


@st.composite
def pairs(draw: st.DrawFn, dtype: Any = np.float32) -> tuple[Array, Array]:
    shape = draw(_SHAPES)
    zeros_or_any = st.one_of(st.just(0.0), _FLOATS)
    make = hnp.arrays(dtype, shape, elements=zeros_or_any)
    return draw(make), draw(make)


def naive(reference: Array, candidate: Array) -> dict[str, float]:
    """The definitions, written down with whole float64 arrays."""
    x, y = reference.astype(np.float64).ravel(), candidate.astype(np.float64).ravel()
    d = np.abs(x - y)
    nonzero = x != 0
    relative = d[nonzero] / np.abs(x[nonzero])
    below = np.where(nonzero, d / np.where(nonzero, np.abs(x), 1), np.where(d == 0, 0, np.inf))
    return {
        "count": x.size,
        "product": float(np.sum(x * y)),
        "abs_error": float(d.sum()),
        "error_energy": float(np.square(d).sum()),
        "max_abs_error": float(d.max(initial=0)),
        "relative_count": int(nonzero.sum()),
        "relative_error": float(relative.sum()),
        "max_relative_error": float(relative.max(initial=0)),
        "near": int(np.count_nonzero(below < 1e-3)),
        "fair": int(np.count_nonzero(below < 5e-3)),
    }


def seen(moments: PairSums) -> dict[str, float]:
    names = list(naive(np.zeros(1), np.zeros(1)))
    renamed = {"near": "within_1e3", "fair": "within_5e3"}
    return {name: getattr(moments, renamed.get(name, name)) for name in names}


def assert_same(moments: PairSums, expected: dict[str, float], scale: float = 1.0) -> None:
    for name, value in seen(moments).items():
        assert value == pytest.approx(expected[name], rel=3e-6, abs=1e-9 * scale), name


@given(pairs(), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_blocks_of_any_size_give_the_definition(pair: tuple[Array, Array], block: int) -> None:
    reference, candidate = pair
    scale = float(np.square(reference.astype(np.float64)).sum() + np.square(candidate.astype(np.float64)).sum())
    moments = measure_pair(reference, candidate, block=block)
    assert_same(moments, naive(reference, candidate), scale)
    x = reference.ravel()
    assert moments.reference.zeros == np.count_nonzero(x == 0)
    if x.size:
        assert (moments.reference.low, moments.reference.high) == (x.min(), x.max())
        assert moments.reference.at_high == np.count_nonzero(x == x.max())
        assert moments.reference.at_low == np.count_nonzero(x == x.min())
        assert moments.candidate.total == pytest.approx(candidate.astype(np.float64).sum(), abs=1e-6)


@given(pairs(np.float64), st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_merging_parts_equals_one_pass(pair: tuple[Array, Array], cut: int) -> None:
    x, y = (side.ravel() for side in pair)
    parts = measure_pair(x[:cut], y[:cut]).merge(measure_pair(x[cut:], y[cut:]))
    whole = measure_pair(x, y)
    assert_same(parts, seen(whole), whole.reference.energy + whole.candidate.energy)
    for left, right in ((parts.reference, whole.reference), (parts.candidate, whole.candidate)):
        assert (left.low, left.high, left.at_low, left.at_high) == (
            right.low,
            right.high,
            right.at_low,
            right.at_high,
        )
        assert left.zeros == right.zeros
        assert left.histogram.exponent == right.histogram.exponent
        assert np.array_equal(left.histogram.counts, right.histogram.counts)


@given(pairs(), st.data())
@settings(max_examples=60, deadline=None)
def test_nonfinite_elements_are_left_out_and_counted(pair: tuple[Array, Array], data: st.DataObject) -> None:
    reference, candidate = (side.copy() for side in pair)
    bad = data.draw(hnp.arrays(np.bool_, reference.shape))
    worse = data.draw(hnp.arrays(np.bool_, reference.shape))
    reference[bad], candidate[worse] = np.nan, np.inf
    keep = ~(bad | worse)
    moments = measure_pair(reference, candidate, block=5)
    assert moments.excluded == np.count_nonzero(~keep)
    assert moments.reference.nonfinite == np.count_nonzero(bad)
    assert moments.candidate.nonfinite == np.count_nonzero(worse)
    clean = measure_pair(reference[keep], candidate[keep])
    assert_same(moments, seen(clean), clean.reference.energy + clean.candidate.energy)
    assert moments.reference.zeros == clean.reference.zeros
    assert moments.reference.histogram.total == clean.reference.histogram.total


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float64"])
def test_any_number_dtype_is_compared_exactly(dtype: str) -> None:
    rng = np.random.default_rng(3)
    reference = rng.integers(0, 2, 500).astype(dtype)
    candidate = rng.integers(0, 2, 500).astype(np.float32)
    assert_same(measure_pair(reference, candidate), naive(reference, candidate))


def test_complex_counts_as_two_reals() -> None:
    reference = np.array([1 + 2j, 3 - 1j])
    moments = measure_pair(reference, reference + 1j)
    assert (moments.count, moments.error_energy) == (4, 2.0)


def test_text_is_refused() -> None:
    with pytest.raises(BadInput, match="are not numbers"):
        measure_pair(np.array(["a"]), np.array(["b"]))


def test_a_difference_that_overflows_float32_is_still_measured() -> None:
    reference, candidate = np.array([3e38, 1], np.float32), np.array([-3e38, 1], np.float32)
    moments = measure_pair(reference, candidate)
    assert moments.max_abs_error == pytest.approx(6e38, rel=1e-6)
    assert moments.error_energy == pytest.approx(3.6e77, rel=1e-6)
    assert moments.excluded == 0


def test_a_relative_error_that_overflows_float32_is_still_measured() -> None:
    moments = measure_pair(np.array([1e-40, 0], np.float32), np.array([1, 1], np.float32))
    assert moments.max_relative_error == pytest.approx(1e40, rel=1e-3)
    assert moments.relative_count == 1


def test_nearly_equal_large_tensors_keep_their_small_error() -> None:
    rng = np.random.default_rng(0)
    reference = (1000 + rng.standard_normal(300_000)).astype(np.float32)
    candidate = np.nextafter(reference, np.float32(np.inf))
    expected = naive(reference, candidate)
    assert measure_pair(reference, candidate).error_energy == pytest.approx(expected["error_energy"], rel=1e-9)


@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [
        ((2, 3, 4, 5), 1, 7),
        ((2, 3, 4, 5), 1, 1000),
        ((6, 5), 1, 12),
        ((2, 4, 6), 2, 9),
        ((3, 40), 1, 16),
        ((5, 2), 0, 3),
    ],
)
def test_channel_energies_follow_the_axis(shape: tuple[int, ...], axis: int, block: int) -> None:
    rng = np.random.default_rng(1)
    reference, candidate = rng.standard_normal(shape), rng.standard_normal(shape)
    channels = measure_pair(reference, candidate, channel_axis=axis, block=block).channels
    others = tuple(i for i in range(len(shape)) if i != axis % len(shape))
    assert channels is not None
    np.testing.assert_allclose(channels.reference, np.square(reference).sum(axis=others))
    np.testing.assert_allclose(channels.error, np.square(reference - candidate).sum(axis=others))


def test_transposed_views_are_read_in_the_order_of_their_shape() -> None:
    rng = np.random.default_rng(2)
    reference = rng.standard_normal((2, 3, 8, 9)).astype(np.float32)
    stored = np.ascontiguousarray(reference.transpose(0, 2, 3, 1))
    assert measure_pair(reference, stored.transpose(0, 3, 1, 2), block=50).error_energy == 0


@st.composite
def large_pairs(draw: st.DrawFn) -> tuple[Array, Array, int | None]:
    """More elements than a block has, of ordinary and of odd values."""
    shape, axis = draw(
        st.sampled_from(
            [
                ((40_000,), None),
                ((1, 5, 90, 91), 1),
                ((700, 3, 4, 5), 1),
                ((3, 200, 64), 2),
                ((9001,), None),
                ((2, 10, 2039), 1),
            ]
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = rng.standard_normal(shape) * 10.0 ** draw(st.sampled_from([-20, -3, 0, 4, 18, 21]))
    x += draw(st.sampled_from([0.0, 0.5])) * np.abs(x).max()
    y = x * draw(st.sampled_from([1.0, 1.001, 0.02, 0.0, -1.0]))
    y = y + rng.standard_normal(shape) * np.abs(x).max() * draw(st.sampled_from([0.0, 1e-7, 1e-2]))
    odd = draw(st.sampled_from(["none", "relu", "nan", "silent"]))
    if odd == "relu":
        x, y = np.maximum(x, 0), np.maximum(y, 0)
    x, y = x.astype(np.float32), y.astype(np.float32)
    if odd == "nan":
        x.flat[rng.integers(x.size)], y.flat[rng.integers(x.size)] = np.nan, np.inf
    if odd == "silent":
        x[:1] = 0
    return x, y, axis


@given(large_pairs())
@settings(max_examples=60, deadline=None)
def test_sums_of_large_blocks_agree_with_float64(pair: tuple[Array, Array, int | None]) -> None:
    x, y, axis = pair
    with np.errstate(all="ignore"):
        fast = measure_pair(x, y, channel_axis=axis)
        exact = measure_pair(x, y, channel_axis=axis, block=4096)  # all in float64
    for name in ("count", "excluded", "relative_count", "within_1e3", "within_5e3"):
        assert getattr(fast, name) == getattr(exact, name), name
    for name in ("error_energy", "abs_error", "max_abs_error", "relative_error", "max_relative_error"):
        assert getattr(fast, name) == pytest.approx(getattr(exact, name), rel=2e-6), name
    energy = math.sqrt(exact.reference.energy * exact.candidate.energy)
    assert fast.product == pytest.approx(exact.product, rel=2e-6, abs=2e-7 * energy)
    for ours, theirs in ((fast.reference, exact.reference), (fast.candidate, exact.candidate)):
        for name in ("low", "high", "at_low", "at_high", "zeros", "nonfinite"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.energy == pytest.approx(theirs.energy, rel=2e-6)
        # A sum that cancels is as sure as the values are large.
        assert ours.total == pytest.approx(theirs.total, abs=2e-6 * math.sqrt(theirs.energy * max(1, exact.count)))
    if fast.channels is not None and exact.channels is not None:
        np.testing.assert_allclose(fast.channels.error, exact.channels.error, rtol=1e-5)
        np.testing.assert_allclose(fast.channels.reference, exact.channels.reference, rtol=1e-5)
    if 0 < exact.error_energy < exact.reference.energy:
        # The distance of a cosine from 1 is that of the error, not of the energies.
        slack = 1e-6 * exact.error_energy / exact.reference.energy + 1e-14
        assert 1 - cosine(fast) == pytest.approx(1 - cosine(exact), rel=1e-4, abs=slack)


def test_unequal_shapes_are_a_programming_error() -> None:
    with pytest.raises(BadInput, match="shapes differ"):
        measure_pair(np.zeros(3), np.zeros(4))


@given(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6), st.integers(1, 30))
def test_blocks_cover_every_element_once_in_order(shape: tuple[int, ...], limit: int) -> None:
    numbers = np.arange(math.prod(shape)).reshape(shape)
    position = 0
    for block in split_blocks(shape, limit):
        part = numbers[block.index]
        assert part.shape == block.shape
        assert part.size == block.size <= limit
        assert np.array_equal(part.ravel(), np.arange(position, position + part.size))
        assert block.start == position
        position += part.size
    assert position == numbers.size


def test_channels_are_second_except_in_sequences() -> None:
    assert [channel_axis_of((1,) * rank) for rank in range(5)] == [None, None, 1, 2, 1]
