"""Errors against what arithmetic explains."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.quantizers import Consumer, Quantizer, QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import Expected, expect_coded
from roundoff.diagnosis.devices.suspects import LocalError, compare_local

SPEC = QuantSpec(bits=8, signed=False, symmetric=False)
SEEDS = st.integers(0, 2**32 - 1)


def on_grid(seed: int, largest: float, quantizer: Quantizer) -> Array:
    values = np.random.default_rng(seed).uniform(-largest, largest, 300).astype(np.float32)
    return fake_quantize(values, quantizer.params, SPEC)


def coded(low: float = -1.0, high: float = 1.0) -> Quantizer:
    return Quantizer("q", "t", "activation", SPEC, parameters_from_range(low, high, SPEC), (Consumer("n", 0),))


@given(SEEDS, st.integers(-1, 1))
def test_one_step_is_never_suspect(seed: int, steps: int) -> None:
    quantizer = coded()
    exact = on_grid(seed, 0.9, quantizer)
    found = exact + np.float32(steps) * quantizer.params.scale
    assert not compare_local(exact, found, expect_coded(exact, quantizer, loose=False)).is_suspect()


@given(SEEDS, st.integers(4, 100))
def test_many_steps_are(seed: int, steps: int) -> None:
    quantizer = coded()
    exact = on_grid(seed, 0.5, quantizer)
    error = compare_local(
        exact, exact + steps * quantizer.params.scale, expect_coded(exact, quantizer, loose=False)
    )
    assert error.is_suspect()
    assert abs(error.mean_shift - steps) < 0.01
    assert error.share_beyond() == 1


def test_one_element_in_many_is_suspect_when_it_is_far_off() -> None:
    quantizer = coded()
    exact = np.zeros(10000, np.float32)
    found = exact.copy()
    found[7] = 60 * quantizer.params.scale
    expected = expect_coded(exact, quantizer, loose=False)
    assert compare_local(exact, found, expected).is_suspect()
    found[7] = 2 * quantizer.params.scale
    assert not compare_local(exact, found, expected).is_suspect()


def test_a_floor_raises_the_limit() -> None:
    exact, expected = np.zeros(100, np.float32), Expected(np.asarray(0.1), 0.01)
    error = compare_local(exact, exact + 0.5, expected)
    assert error.is_suspect()
    assert not error.is_suspect(8.0)


def test_values_that_are_not_finite() -> None:
    expected = Expected(np.asarray(0.1), 0.01)
    exact = np.array([1.0, np.inf, np.nan, 2.0], np.float32)
    assert not compare_local(exact, exact.copy(), expected).is_suspect()
    error = compare_local(exact, np.array([1.0, np.inf, np.nan, np.nan], np.float32), expected)
    assert error.nonfinite == 1
    assert error.is_suspect()
    assert error.sqnr_db == -math.inf


def test_decibels_are_those_of_all_elements() -> None:
    exact = np.array([3.0, -4.0, 1.0], np.float32)
    error = compare_local(exact, np.array([3.0, -4.5, 1.0], np.float32), Expected(np.asarray(0.1), 0.01))
    # 26 of signal over 0.25 of error.
    assert math.isclose(error.sqnr_db, 20.170333, abs_tol=1e-5)


@given(SEEDS)
def test_samples_add_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    exact, found = rng.standard_normal((2, 60)).astype(np.float32)
    expected = Expected(np.asarray(0.2), 0.01)
    whole, parts = compare_local(exact, found, expected), LocalError()
    for part in (slice(0, 20), slice(20, 60)):
        parts.add(exact[part], found[part], expected)
    assert math.isclose(whole.error, parts.error)
    assert np.allclose(whole.beyond, parts.beyond)
    assert whole.count == parts.count


def test_tensors_that_were_not_dumped_widen_the_tolerance() -> None:
    exact = np.linspace(-1, 1, 50, dtype=np.float32)
    alone = expect_coded(exact, coded(), loose=False)
    hidden = expect_coded(exact, coded(), loose=False, without_hidden=exact + 0.05)
    assert float(hidden.tolerance) > float(alone.tolerance) + 0.2


def test_many_errors_that_are_each_small_enough_are_loud() -> None:
    exact, expected = np.zeros(100), Expected(np.asarray(1.0), 0.01)
    error = compare_local(exact, np.full(100, 0.9), expected)
    assert not error.is_suspect(guessed=True)
    assert error.excess == pytest.approx(9.0)
    assert error.is_loud()
    assert not error.is_loud(floor=4.0)
    assert not compare_local(exact, np.full(100, 0.2), expected).is_loud()
