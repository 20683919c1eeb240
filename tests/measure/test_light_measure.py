"""The lean sums must say what the full measurement says, only faster."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.measure.light_pairs import CodedValues, ErrorTotals, LightMeter, MeterJob, Range
from roundoff.measure.metrics import cosine, mse, score, sqnr_db, status_of, worst_channel, worst_channel_sqnr_db
from roundoff.measure.pairs import measure_pair

SHAPES = [(5,), (3, 7), (1, 4, 3, 3), (2, 5, 6, 6), (1, 3, 50, 50), (2, 70, 40), (1, 2, 150, 150), ()]


def measured(
    reference: Array, *candidates: Array | CodedValues, axis: int | None = None, limits: Range | None = None
) -> tuple[int, list[ErrorTotals]]:
    totals = [ErrorTotals() for _ in candidates]
    job = MeterJob(reference, candidates, totals, axis, limits)
    with np.errstate(all="ignore"):
        LightMeter().measure([job])
    return job.clipped, totals


def noisy(shape: tuple[int, ...], noise: float, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape).astype(np.float32)
    return values, (values + noise * rng.standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("noise", [1e-5, 0.05, 3.0])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_scores_equal_those_of_the_full_measurement(
    shape: tuple[int, ...], noise: float, axis: int | None
) -> None:
    x, y = noisy(shape, noise)
    axis = axis if axis is None or -len(shape) <= axis < len(shape) else None
    full, light = measure_pair(x, y, channel_axis=axis), measured(x, y, axis=axis)[1][0].sums()
    assert (light.count, light.excluded) == (full.count, full.excluded)
    assert mse(light) == pytest.approx(mse(full), rel=2e-6)
    assert sqnr_db(light) == pytest.approx(sqnr_db(full), abs=1e-5)
    # The distance from 1 is what counts.
    assert 1 - cosine(light) == pytest.approx(1 - cosine(full), rel=1e-5, abs=1e-13)
    assert light.max_abs_error == pytest.approx(full.max_abs_error, rel=1e-6)
    assert worst_channel(light) == worst_channel(full)
    assert worst_channel_sqnr_db(light) == pytest.approx(worst_channel_sqnr_db(full), abs=1e-5)


@settings(deadline=None)  # the first example imports and allocates
@given(
    st.data(),
    hnp.array_shapes(min_dims=0, max_dims=4, max_side=6),
    st.sampled_from([np.float32, np.float16, np.float64, np.int8, np.int64, np.bool_]),
)
def test_any_values_of_any_type_have_the_status_of_the_full_measurement(
    data: st.DataObject, shape: tuple[int, ...], dtype: Any
) -> None:
    elements = None
    if np.dtype(dtype).kind == "f":
        elements = st.floats(width=np.dtype(dtype).itemsize * 8)
    arrays = hnp.arrays(dtype, shape, elements=elements)
    x, y = data.draw(arrays), data.draw(arrays)
    axis = 1 if len(shape) > 1 else None
    with np.errstate(all="ignore"):
        full = measure_pair(x, y, channel_axis=axis)
    light = measured(x, y, axis=axis)[1][0].sums()
    assert status_of(light) == status_of(full)
    if full.count and math.isfinite(full.error_energy) and math.isfinite(full.reference.energy):
        assert sqnr_db(light) == pytest.approx(sqnr_db(full), abs=1e-4)
        assert mse(light) == pytest.approx(mse(full), rel=1e-5)


def test_codes_are_compared_as_the_values_they_stand_for() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 6, 9, 9)).astype(np.float32)
    codes = rng.integers(-128, 128, x.shape).astype(np.int8)
    scale, zero_point = np.float32(0.017), 11
    values = (codes.astype(np.float32) - zero_point) * scale
    coded = CodedValues(codes, float(scale), zero_point)
    other = CodedValues(codes, 0.5, 0)
    _, (of_codes, of_values, of_others) = measured(x, coded, values, other, axis=1)
    for name in ("reference", "candidate", "product", "error", "max_error", "count"):
        assert getattr(of_codes, name) == getattr(of_values, name)
    assert of_others.error == pytest.approx(float(np.square(x - codes * 0.5, dtype=np.float64).sum()), rel=1e-6)


def test_several_samples_add_up_like_one_tensor() -> None:
    parts = [noisy((1, 3, 8, 8), 0.1, seed) for seed in range(4)]
    total, meter = ErrorTotals(), LightMeter()
    for x, y in parts:
        meter.measure([MeterJob(x, [y], [total], 1)])
    whole = measured(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), axis=1)[1][0]
    assert total.count == whole.count
    assert total.error == pytest.approx(whole.error, rel=1e-6)
    channels, expected = total.channels, whole.channels
    assert channels is not None
    assert expected is not None
    np.testing.assert_allclose(channels.error, expected.error, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 3, 6, 6), (2, 4, 3, 3), (40,), (5, 8), (1, 3, 200, 200)], ids=str)
@pytest.mark.parametrize("coded", [True, False])
def test_jobs_done_together_give_what_each_gives_alone(shape: tuple[int, ...], coded: bool) -> None:
    rng = np.random.default_rng(5)
    axis = 1 if len(shape) > 1 else None
    together: list[MeterJob] = []
    alone: list[MeterJob] = []
    for index in range(7):
        x = (rng.standard_normal(shape) * (index + 1)).astype(np.float32)
        if index == 4:
            x.flat[3] = np.nan
        candidates: list[Array | CodedValues] = []
        for _ in range(2):
            codes = rng.integers(0, 255, shape).astype(np.uint8)
            meaning = CodedValues(codes, 0.01 * (index + 1), 128 - index)
            candidates.append(meaning if coded else meaning.values(slice(None)).reshape(shape))
        limits = Range(*(np.float32(limit) + np.zeros(()) for limit in (-2 * (index + 1), index, 1)))
        for jobs in (together, alone):
            jobs.append(MeterJob(x, candidates, [ErrorTotals(), ErrorTotals()], axis, limits))
    with np.errstate(all="ignore"):
        LightMeter().measure(together)
        for job in alone:
            LightMeter().measure([job])
    for one, other in zip(together, alone, strict=True):
        assert one.clipped == other.clipped > 0
        for ours, theirs in zip(one.totals, other.totals, strict=True):
            assert ours.sums().excluded == theirs.sums().excluded
            for name in ("count", "reference", "candidate", "product", "error", "max_error"):
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-6), name


def test_samples_with_other_channels_have_no_channels_together() -> None:
    total, meter = ErrorTotals(), LightMeter()
    for channels in (3, 4):
        x, y = noisy((1, channels, 5, 5), 0.1)
        meter.measure([MeterJob(x, [y], [total], 1)])
    assert total.channels is None
    assert total.count == 7 * 25


def test_the_tensor_itself_has_no_error() -> None:
    x, _ = noisy((2, 3, 20, 20), 0)
    _, (same, copy) = measured(x, x, x.copy(), axis=1)
    assert same.error == copy.error == 0
    assert same.candidate == copy.candidate == same.reference == same.product
    assert cosine(same.sums()) == 1


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1e18, 1e25])
def test_values_that_float32_cannot_square_are_measured_all_the_same(size: float) -> None:
    x, y = noisy((3, 40), 0.1)
    x, y = (x * np.float32(size)).astype(np.float32), (y * np.float32(size)).astype(np.float32)
    assert sqnr_db(measured(x, y)[1][0].sums()) == pytest.approx(sqnr_db(measure_pair(x, y)), abs=1e-5)


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    x, y = noisy((2, 3, 30, 30), 0.1)
    y[0, 1, 2, :5] = np.nan
    x[1, 2, 3, 0] = np.inf
    total = measured(x, y, axis=1)[1][0]
    assert (total.excluded, total.nonfinite) == (6, (1, 5))
    assert total.noise_ratio == math.inf
    assert status_of(total.sums()) == status_of(measure_pair(x, y))


def test_a_candidate_that_has_almost_vanished_keeps_its_direction() -> None:
    x, _ = noisy((1, 4, 30, 30), 0)
    total = measured(x, (x * np.float32(1e-6)).astype(np.float32), axis=1)[1][0]
    assert cosine(total.sums()) == pytest.approx(1, abs=1e-9)
    assert not total.zero_candidate
    zero = measured(x, np.zeros_like(x), axis=1)[1][0].sums()
    assert status_of(zero) == ("degenerate", "the candidate is all zero")
    assert cosine(zero) == 0


def test_an_empty_tensor_adds_nothing() -> None:
    clipped, (total,) = measured(np.empty((0, 3), np.float32), np.empty((0, 3), np.float32), axis=1)
    assert (clipped, total.count) == (0, 0)
    assert score(total.sums()).status == "degenerate"


def test_clipped_is_what_rounding_does_not_explain() -> None:
    limits = Range(np.float32(-0.5) + np.zeros(()), np.float32(10.5) + np.zeros(()), np.ones(()))
    x = np.array([-0.6, -0.4, 0.0, 10.4, 10.6, 50.0, np.nan], np.float32)
    assert measured(x, x, limits=limits)[0] == 3


def test_each_channel_has_its_own_limits_and_steps() -> None:
    step = np.array([1.0, 10.0], np.float32)
    limits = Range(-0.5 * step, 4.5 * step, step)
    x = np.array([[[3.0, 6.0], [3.0, 60.0]]], np.float32)  # (1, 2, 2)
    y = np.array([[[2.0, 4.0], [0.0, 40.0]]], np.float32)
    clipped, (total,) = measured(x, y, axis=1, limits=limits)
    assert clipped == 2
    assert total.max_error == 20
    assert total.max_steps == 2
