"""Positions, and what stands there in another layout."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.align.layout import layouts_between, layouts_within, positions, seen_through, take
from tests.align.shapes import arrays_in_other_layouts, shapes


@given(size=st.integers(0, 10**7), count=st.integers(1, 3000))
def test_positions_are_ascending_distinct_and_repeatable(size: int, count: int) -> None:
    at = positions(size, count)
    assert len(at) == min(size, count)
    assert np.all(np.diff(at) > 0)
    assert not len(at) or (at[0] >= 0 and at[-1] < size)
    positions.cache_clear()
    assert np.array_equal(at, positions(size, count))


@settings(deadline=None)
@given(shape=shapes(), other=arrays_in_other_layouts(), count=st.integers(1, 200))
def test_looking_through_a_layout_is_applying_it(
    shape: tuple[int, ...], other: tuple[tuple[int, ...], tuple[int, ...]], count: int
) -> None:
    """Whatever layout is proposed, applying it gives the reference's shape, and sampling sees the same."""
    reference_shape, candidate_shape = other
    proposals = [(reference_shape, candidate_shape, layouts_between(reference_shape, candidate_shape))]
    proposals.append((shape, shape, layouts_within(shape)))
    for wanted, given_shape, layouts in proposals:
        candidate = np.arange(math.prod(given_shape)).reshape(given_shape)
        for layout in layouts:
            applied = layout.apply(candidate)
            assert applied.shape == wanted
            at = positions(math.prod(wanted), count)
            seen = take(candidate, seen_through(layout, wanted, given_shape, count=count))
            assert seen is not None
            assert np.array_equal(seen, applied.reshape(-1)[at])


def test_take_reads_any_memory_order_and_type() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    at = np.array([0, 5, 23])
    for same in (array, np.asfortranarray(array), array.astype(np.float16), array[::-1][::-1]):
        assert np.array_equal(take(same, at), [0, 5, 23])  # type: ignore[arg-type]
    assert np.array_equal(take(np.array([True, False]), np.array([0, 1])), [1, 0])  # type: ignore[arg-type]


def test_take_reads_the_small_floats_of_accelerators() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = take(np.array([1.5, -2.0]).astype(ml_dtypes.bfloat16), np.array([1, 0]))
    assert values is not None
    assert values.tolist() == [-2.0, 1.5]


def test_take_refuses_what_are_no_real_numbers() -> None:
    at = np.array([0])
    for odd in ("V2", "M8[s]", "m8[s]", object):
        assert take(np.zeros(3, odd), at) is None
    assert take(np.array([1j]), at) is None
    assert take(np.array(["a"]), at) is None
    assert take(np.zeros(0), np.zeros(0, np.int64)) is None


def test_take_puts_the_mean_where_values_are_not_finite() -> None:
    values = take(np.array([1.0, 3.0, np.nan, np.inf]), np.arange(4))
    assert values is not None
    assert values.tolist() == [1, 3, 2, 2]
    assert take(np.array([1.0, np.nan, np.nan]), np.arange(3)) is None
