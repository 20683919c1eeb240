"""Planted differences are called by their names, and plain noise by none of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.measure.pairs import channel_axis_of, measure_pair
from roundoff.studies.compare.difference import Difference, describe


def kind_of(reference: Array, candidate: Array) -> Difference:
    moments = measure_pair(reference, candidate, channel_axis=channel_axis_of(reference.shape))
    return describe(moments, reference, candidate)


def tensor(seed: int = 0, shape: tuple[int, ...] = (2, 8, 16, 16)) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def noise(like: Array, level: float, seed: int = 12345) -> Array:
    return (level * np.random.default_rng(seed).standard_normal(like.shape)).astype(np.float32)


@given(st.sampled_from([0.25, 0.5, 2.0, -1.0, 1.5]), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_gain_is_named_with_its_size(factor: float, seed: int) -> None:
    x = tensor(seed)
    found = kind_of(x, x * np.float32(factor) + noise(x, 0.01))
    assert found.kind == "gain"
    assert float(str(found.text).removeprefix("gain ")) == pytest.approx(factor, abs=0.01)


def test_offset_is_named_with_its_size() -> None:
    x = tensor()
    found = kind_of(x, x + np.float32(0.5) + noise(x, 0.01))
    assert found.kind == "offset"
    assert float(str(found.text).removeprefix("offset ")) == pytest.approx(0.5, abs=0.01)


def test_gain_and_offset_together() -> None:
    x = tensor()
    found = kind_of(x, x * np.float32(1.5) + np.float32(0.6))
    assert (found.kind, str(found.text)) == ("gain and offset", "gain 1.5 and offset +0.6")


def test_few_outliers_are_counted() -> None:
    x = tensor()
    y = x + noise(x, 0.001)
    y.reshape(-1)[[5, 100, 2000]] += 50
    found = kind_of(x, y)
    assert found.kind == "few outliers"
    assert str(found.text) == "about 3 of 4096 elements carry the error"
    # With more noise around them the sums alone do not tell; the second look does.
    assert str(kind_of(x, y + noise(x, 0.2)).text) == "3 of 4096 elements carry 90 % of the error"


def test_saturation_names_the_range() -> None:
    x = tensor()
    found = kind_of(x, np.clip(x, -1, 1))
    assert found.kind == "saturation"
    assert str(found.text).endswith("are cut off at [-1, 1]")


def test_one_channel_is_named() -> None:
    x = tensor()
    y = x + noise(x, 0.001)
    y[:, 3] += noise(x[:, 3], 1.0, seed=7)
    found = kind_of(x, y)
    assert (found.kind, str(found.text)) == ("one channel", "channel 3 carries 100 % of the error")


@pytest.mark.parametrize("level", [0.0, 0.02])
def test_permutation_is_told_from_noise(level: float) -> None:
    x = tensor()
    shuffled = np.random.default_rng(5).permutation(x.reshape(-1)).reshape(x.shape)
    assert kind_of(x, shuffled + noise(x, level)).kind == "permutation"


def relu(values: Array) -> Array:
    return np.maximum(values, np.float32(0))


@pytest.mark.parametrize("level", [0.0, 0.01])
def test_permutations_of_rectified_values_and_of_some_channels(level: float) -> None:
    x = relu(tensor(shape=(2, 16, 16, 16)) - np.float32(0.5))
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)
    swapped = x[:, [1, 0, 3, 2, *range(4, 16)]]
    for y in (turned, swapped):
        assert kind_of(x, y + noise(x, level)).kind == "permutation"


def test_a_smooth_picture_that_was_turned() -> None:
    """Neighbours are alike, so that what is out of place is related to what belongs there."""
    ramp = np.linspace(0, 1, 64, dtype=np.float32)
    picture = np.broadcast_to(ramp[:, None] + np.float32(0.6) * ramp, (1, 3, 64, 64))
    assert kind_of(picture, np.ascontiguousarray(picture.transpose(0, 1, 3, 2))).kind == "permutation"


@given(st.floats(0.1, 3.0), st.integers(0, 999), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_quantized_activation_is_not_in_another_order(coarseness: float, seed: int, shrinks: bool) -> None:
    """Rounded weights far upstream: every value is a little off, and the distribution is the same."""
    before, error = tensor(seed), tensor(seed + 7000)
    part = 1 - 0.1 * coarseness if shrinks else 1.0
    mixed = part * before + np.float32(np.sqrt(max(0.0, 1 - part**2)) if shrinks else 0.3 * coarseness) * error
    y = relu((mixed - np.float32(0.3)).astype(np.float32))
    step = np.float32(y.max() / 255)
    assert kind_of(relu(before - np.float32(0.3)), np.rint(y / step) * step).kind != "permutation"


def test_nan_comes_before_everything_else() -> None:
    x = tensor()
    y = x * 3
    y[0, 0, 0, :5] = np.nan
    found = kind_of(x, y)
    assert (found.kind, str(found.text)) == (
        "nonfinite",
        "5 of 4096 elements are NaN or infinite in the candidate only",
    )


def test_zeroed() -> None:
    x = tensor()
    assert kind_of(x, np.zeros_like(x)).kind == "zeroed"


@given(st.floats(0.02, 1.0), st.integers(0, 999))
@settings(max_examples=50, deadline=None)
def test_noise_is_only_noise(level: float, seed: int) -> None:
    x = tensor(seed)
    assert kind_of(x, x + noise(x, level, seed + 20000)).kind == "noise"


@given(st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_unrelated_tensors_are_noise(seed: int) -> None:
    x = tensor(seed)
    assert kind_of(x, 3 * tensor(seed + 5000)).kind == "noise"


def test_rounding_to_a_coarse_grid_is_noise() -> None:
    x = tensor()
    assert kind_of(x, np.round(x * 2) / 2).kind == "noise"
