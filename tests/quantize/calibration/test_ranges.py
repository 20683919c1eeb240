import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.quantize.calibration.calibration import observed_range, range_error, weight_range
from roundoff.quantize.calibration.observer import Observer
from tests.contracts.calibration import skewed
from tests.quantize.calibration.observing import observed

SYMMETRIC = QuantSpec(8, True, True)
RNG = np.random.default_rng(0)


def weight(*shape: int) -> Array:
    return (
        RNG.standard_normal(shape) * RNG.uniform(0.1, 3, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    ).astype(np.float32)


@pytest.mark.parametrize("method", ["minmax", "mse", "percentile", "entropy", "ifmr", "hfmg"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_each_slice_of_a_weight_is_calibrated_alone(method: str, axis: int | None) -> None:
    values = weight(6, 5, 3, 3)
    low, high = weight_range(values, SYMMETRIC.along(axis), method)
    if axis is None:
        assert low.shape == ()
        return
    assert low.shape == (values.shape[axis],)
    for index in range(values.shape[axis]):
        alone = weight_range(values.take(index, axis=axis), SYMMETRIC, method)
        assert (low[index], high[index]) == pytest.approx((float(alone[0]), float(alone[1])))


@pytest.mark.parametrize("shape", [(3, 70_000), (1000, 90), (5, 0), (0, 5)], ids=str)
def test_large_and_empty_weights(shape: tuple[int, int]) -> None:
    values = RNG.standard_normal(shape).astype(np.float32)
    low, high = weight_range(values, SYMMETRIC.along(0), "mse")
    assert low.shape == high.shape == shape[:1]
    if values.size:
        assert (low >= values.min(axis=1)).all()
        assert (high > 0.3 * values.max(axis=1)).all()


def test_less_error_than_the_whole_range() -> None:
    values = weight(8, 40)
    spec = QuantSpec(4, True, True, axis=0)
    errors = [
        np.mean(
            (
                fake_quantize(values, parameters_from_range(*weight_range(values, spec, method), spec), spec)
                - values
            )
            ** 2
        )
        for method in ("mse", "minmax")
    ]
    assert errors[0] < 0.9 * errors[1]


def test_nan_in_a_weight_is_left_out() -> None:
    values = np.array([[1.0, np.nan, -2.0], [np.inf, 0.5, 0.25]], np.float32)
    for method in ("minmax", "mse"):
        low, high = weight_range(values, SYMMETRIC.along(0), method)
        assert np.isfinite(low).all()
        assert (high <= [1, 0.5]).all()


def test_ranges_alone_are_not_enough_for_other_methods() -> None:
    observer = Observer(ranges_only=True)
    observer.add(skewed(0))
    with pytest.raises(BadInput, match="'mse' needs the distribution of values, but only their range") as caught:
        observed_range(observer.observation(), SYMMETRIC, "mse")
    assert "calibrate again" in caught.value.fix


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_channels_of_another_axis(axis: int) -> None:
    seen = observed(np.zeros((2, 3, 4), np.float32), axis=1)
    with pytest.raises(BadInput, match=f"channel of axis {axis} .* observed by channels of axis 1"):
        observed_range(seen, SYMMETRIC.along(axis), "minmax")
    assert observed_range(seen, SYMMETRIC.along(-2), "minmax")[0].shape == (3,)


def test_channels_of_a_tensor_observed_as_a_whole() -> None:
    with pytest.raises(BadInput, match="observed as a whole"):
        observed_range(observed(np.zeros((2, 3), np.float32)), SYMMETRIC.along(1), "minmax")


def test_one_scale_for_a_tensor_observed_by_channels() -> None:
    values = np.stack([skewed(seed, 500) * (seed + 1) for seed in range(3)])
    by_channel = observed_range(observed(values, axis=0), SYMMETRIC, "mse")
    assert by_channel == observed_range(observed(values), SYMMETRIC, "mse")


def test_error_of_a_range() -> None:
    values = skewed(1, 3000)
    spec = QuantSpec(8, False, False)
    low, high = np.array(-1.0), np.array(2.0)
    params = parameters_from_range(low, high, spec)
    wrong = fake_quantize(values.astype(np.float64), params, spec) - values.astype(np.float64)
    error = range_error(observed(values), spec, low, high)
    assert error.mse == pytest.approx(float(np.mean(wrong**2)), rel=1e-5)
    assert error.sqnr_db == pytest.approx(10 * np.log10(np.mean(values.astype(float) ** 2) / np.mean(wrong**2)))
    assert error.clipped == pytest.approx(np.mean(np.abs(wrong) > params.scale / 2 * (1 + 1e-4)), abs=1e-3)


def test_error_of_a_range_for_each_channel() -> None:
    values = np.stack([skewed(seed, 300) * (seed + 1) for seed in range(4)], axis=1)
    spec = SYMMETRIC.along(1)
    low, high = observed_range(observed(values, axis=1), spec, "mse")
    wrong = fake_quantize(values, parameters_from_range(low, high, spec), spec) - values.astype(np.float64)
    error = range_error(observed(values, axis=1), spec, low, high)
    assert error.mse == pytest.approx(float(np.mean(wrong**2)), rel=1e-4)


def test_no_error_and_no_signal() -> None:
    zeros = observed(np.zeros(4, np.float32))
    error = range_error(zeros, SYMMETRIC, np.array(0.0), np.array(0.0))
    assert (error.mse, error.sqnr_db, error.clipped) == (0, np.inf, 0)
