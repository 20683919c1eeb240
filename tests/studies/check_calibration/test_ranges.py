"""What is kept of ranges says what all samples together would."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.studies.check_calibration.ranges import (
    HeldOutRecord,
    RangeRecord,
    chance_of_exceeding,
    sample_marks,
    width,
)

QUARTERS = st.integers(-400, 400).map(lambda steps: steps / 4)
ENDS = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3), st.just(2)), elements=QUARTERS)


def filled(ends: Array) -> tuple[RangeRecord, Array, Array]:
    low, high = ends.min(axis=2), ends.max(axis=2)
    record = RangeRecord(ends.shape[1], len(ends), seed=1)
    for index in range(len(ends)):
        record.add(index, low[index], high[index])
    return record, low, high


@given(ENDS)
def test_the_last_mark_has_all_samples(ends: Array) -> None:
    record, low, high = filled(ends)
    np.testing.assert_array_equal(record.low, low.min(axis=0))
    np.testing.assert_array_equal(record.high, high.max(axis=0))
    shares = record.shares()
    assert np.all(shares[:, -1] == 1)
    assert np.all(np.diff(shares, axis=1) >= 0)


@given(ENDS)
def test_leaving_a_sample_out_is_what_running_without_it_gives(ends: Array) -> None:
    record, low, high = filled(ends)
    _, factors = record.lone()
    whole = width(low.min(axis=0), high.max(axis=0))
    for tensor in range(ends.shape[1]):
        best = 1.0
        for index in range(len(ends)):
            others = np.arange(len(ends)) != index
            left = width(low[others, tensor].min(initial=np.inf), high[others, tensor].max(initial=-np.inf))
            if whole[tensor] > 0:
                best = max(best, whole[tensor] / left if left > 0 else np.inf)
        assert factors[tensor] == best


@given(st.integers(1, 5000))
def test_marks_double(samples: int) -> None:
    marks = sample_marks(samples)
    assert marks[0] == 1
    assert marks[-1] == samples
    assert all(small < large <= 2 * small for small, large in itertools.pairwise(marks))


@given(st.integers(1, 6), st.integers(0, 5))
def test_the_chance_is_what_counting_orders_gives(samples: int, others: int) -> None:
    everyone = list(range(samples + others))
    for exceeding in range(others + 1):
        outermost = list(itertools.combinations(everyone, exceeding))
        hits = sum(all(each >= samples for each in chosen) for chosen in outermost)
        assert abs(chance_of_exceeding(samples, others, exceeding) - hits / len(outermost)) < 1e-12


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-10, 10, width=32)))
def test_values_beyond_a_range_are_counted(values: Array) -> None:
    one = np.array([1.0])
    record = HeldOutRecord((-one, 2 * one), (-one, 2 * one))
    record.add([values], np.array([values.min()]), np.array([values.max()]))
    assert record.outside()[0] == np.mean((values < -1) | (values > 2))
    assert record.overshoot()[0] == max(-1 - float(values.min()), float(values.max()) - 2, 0.0) / 3
