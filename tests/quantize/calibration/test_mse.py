from dataclasses import replace

import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import observed_range, range_error
from tests.contracts.calibration import SPEC_NAMES, SPECS, CalibrationContract, skewed
from tests.quantize.calibration.observing import counted, observed

SYMMETRIC = QuantSpec(8, True, True)


class TestMse(CalibrationContract):
    name = "mse"


def measured(values: Array, low: Array | float, high: Array | float, spec: QuantSpec) -> float:
    """The error of really quantizing."""
    exact = values.astype(np.float64)
    return float(np.mean((fake_quantize(exact, parameters_from_range(low, high, spec), spec) - exact) ** 2))


def best_of_all(values: Array, spec: QuantSpec) -> float:
    """The smallest error over a dense grid of ranges."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    shrunk = np.linspace(0.05, 1, 60)
    if spec.symmetric:
        pairs = [(low * factor, high * factor) for factor in shrunk]
    else:
        coarse = np.linspace(0.1, 1, 13)
        pairs = [(low * left, high * right) for left in coarse for right in coarse]
    return min(measured(values, *pair, spec) for pair in pairs)


DATA = {
    "skewed": skewed(1, 2000),
    "Relu": np.maximum(skewed(2, 2000), 0),
    "negative": -np.abs(skewed(3, 2000)),
    "uniform": np.random.default_rng(0).uniform(-1, 3, 2000).astype(np.float32),
    "far outlier": np.append(np.random.default_rng(1).standard_normal(2000), 40).astype(np.float32),
}


@pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
@pytest.mark.parametrize("kind", DATA)
def test_no_range_of_a_dense_grid_is_better(kind: str, spec: QuantSpec) -> None:
    values = DATA[kind]
    best = best_of_all(values, spec)
    for known in (observed(values), counted(observed(values))):
        ours = measured(values, *observed_range(known, spec, "mse"), spec)
        assert ours <= best * 1.03


@pytest.mark.parametrize(
    "change",
    [
        {"symmetric_scale": "half_span"},
        {"symmetric_scale": "larger_side"},
        {"power_of_two": True},
        {"rounding": "floor"},
        {"rounding": "half_away"},
    ],
    ids=str,
)
@pytest.mark.parametrize("bits", [4, 8])
def test_other_scale_rules(change: dict[str, object], bits: int) -> None:
    spec = replace(SYMMETRIC, bits=bits, **change)  # type: ignore[arg-type]
    values = DATA["skewed"]
    ours = measured(values, *observed_range(observed(values), spec, "mse"), spec)
    assert ours <= best_of_all(values, spec) * 1.03


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [11, 12, 13, 14, 15, 16])
def test_more_levels_than_bins_stay_levels(bits: int, symmetric: bool) -> None:
    """A histogram must not limit the step: 16 bits are not 11 bits."""
    values = np.concatenate([skewed(seed, 40_000) for seed in range(3)])
    spec = QuantSpec(bits, True, symmetric)
    params = parameters_from_range(*observed_range(observed(values), spec, "mse"), spec)
    whole = parameters_from_range(values.min(), values.max(), spec)
    assert whole.scale / 2 < params.scale <= whole.scale


def test_a_symmetric_step_is_not_half_of_what_it_should_be() -> None:
    """Both signs share the codes: 127 of them cover the magnitudes, not 255."""
    values = np.random.default_rng(0).uniform(-1, 1, 100_000).astype(np.float32)
    params = parameters_from_range(*observed_range(observed(values), SYMMETRIC, "mse"), SYMMETRIC)
    assert params.scale == pytest.approx(1 / 127, rel=0.01)


@pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
def test_the_error_is_known_without_quantizing(spec: QuantSpec) -> None:
    values = DATA["skewed"]
    low, high = np.array(-1.7), np.array(2.9)
    truth = measured(values, low, high, spec)
    assert range_error(observed(values), spec, low, high).mse == pytest.approx(truth, rel=1e-4)
    assert range_error(counted(observed(values)), spec, low, high).mse == pytest.approx(truth, rel=2e-2)


def test_a_valley_far_below_a_single_huge_value_is_found() -> None:
    """Between the bulk and the outlier nothing improves over a factor of a hundred."""
    bulk = np.random.default_rng(0).standard_normal(2_000_000).astype(np.float32)
    values = np.append(bulk, np.float32(400))
    spec = QuantSpec(4, True, True)
    low, high = observed_range(observed(values), spec, "mse")
    assert max(-low, high) < 5
