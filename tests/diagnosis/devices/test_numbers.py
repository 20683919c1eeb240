"""What a device computes with, seen from its values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.diagnosis.devices.expectation import (
    coarsest_step,
    expect_rounded,
    grid_step,
    infer_arithmetic,
    kind_of,
)


@given(st.floats(1e-4, 1e3), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_dequantized_codes_lie_on_a_grid(scale: float, zero: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 256, 2000)
    step = grid_step(((codes - zero) * np.float32(scale)).astype(np.float32))
    assert step is not None
    assert abs(step / scale - 1) < 1e-3


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_float_values_lie_on_none(seed: int, size: float) -> None:
    values = np.random.default_rng(seed).standard_normal(500).astype(np.float32) * np.float32(size)
    assert grid_step(values) is None


@given(st.floats(1e-2, 50), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_codes_are_still_seen_in_half_precision(scale: float, zero: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 256, 2000)
    stored = ((codes - zero) * np.float32(scale)).astype(np.float16)
    step = grid_step(stored.astype(np.float32))
    assert step is not None
    assert abs(step / scale - 1) < 2e-3


@given(st.integers(0, 2**32 - 1), st.floats(1e-2, 1e3))
def test_half_precision_alone_is_no_grid(seed: int, size: float) -> None:
    values = np.random.default_rng(seed).standard_normal(500) * size
    assert grid_step(values.astype(np.float16).astype(np.float32)) is None


def test_too_few_values_tell_nothing() -> None:
    assert grid_step(np.array([0.0, 1.0, 2.0])) is None
    assert grid_step(np.zeros(100)) is None


@given(st.floats(1e-4, 10), st.lists(st.integers(-128, 127).filter(bool), min_size=1, max_size=5))
def test_few_codes_allow_no_coarser_step_than_their_common_divisor(scale: float, codes: list[int]) -> None:
    values = np.asarray(codes, np.float32) * np.float32(scale)
    assert coarsest_step(values) == pytest.approx(math.gcd(*codes) * scale, rel=1e-3)


def test_what_is_zero_may_have_any_step_and_what_has_many_values_none() -> None:
    assert coarsest_step(np.zeros(9, np.float32)) == np.inf
    assert coarsest_step(np.random.default_rng(0).normal(size=500)) is None


def test_kinds_of_float() -> None:
    values = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    assert kind_of(values) == "float32"
    assert kind_of(values.astype(np.float16)) == "float16"
    assert kind_of((values.view(np.uint32) & 0xFFFF0000).view(np.float32)) == "bfloat16"
    assert kind_of(np.array([np.nan], np.float32)) == "float32"


def test_a_device_is_of_integers_when_many_of_its_tensors_are() -> None:
    rng = np.random.default_rng(0)
    coded = {f"t{index}": (rng.integers(0, 256, 400) * 0.1).astype(np.float32) for index in range(3)}
    numbers = infer_arithmetic({**coded, "out": rng.standard_normal(400).astype(np.float32)})
    assert numbers.kind == "integer"
    assert set(numbers.steps) == set(coded)
    assert numbers.limits["t0"] == (coded["t0"].min(), coded["t0"].max())


def test_activations_of_16_bits_are_seen_beside_float() -> None:
    rng = np.random.default_rng(0)
    scale = 7.3e-5
    coded = {f"t{index}": (rng.integers(0, 65_536, 3000) * scale - 2.4).astype(np.float32) for index in range(3)}
    numbers = infer_arithmetic(coded)
    assert (numbers.kind, numbers.fine) == ("float32", True)
    assert numbers.steps == pytest.approx(dict.fromkeys(coded, scale), rel=1e-5)
    assert numbers.limits["t1"] == (coded["t1"].min(), coded["t1"].max())
    plain = {f"t{index}": rng.standard_normal(3000).astype(np.float32) for index in range(3)}
    assert not infer_arithmetic(plain).fine
    assert not infer_arithmetic({name: values.astype(np.float16) for name, values in plain.items()}).fine


def test_a_device_of_half_precision() -> None:
    rng = np.random.default_rng(0)
    tensors = {f"t{index}": rng.standard_normal(400).astype(np.float16).astype(np.float32) for index in range(3)}
    assert infer_arithmetic(tensors).kind == "float16"


def test_what_rounding_explains_of_a_tensor_by_what_it_holds() -> None:
    exact = np.array([0.0, 3.0, -4.0])
    rms = np.sqrt(25 / 3)
    np.testing.assert_allclose(expect_rounded(exact, "float16").tolerance, 8 * 2.0**-11 * (np.abs(exact) + rms))
    np.testing.assert_allclose(expect_rounded(exact, "bfloat16").tolerance, 8 * 2.0**-8 * (np.abs(exact) + rms))
    assert 1 < expect_rounded(exact, "codes").tolerance < 2
    assert 0.5 <= expect_rounded(exact, "sums").tolerance < 1
