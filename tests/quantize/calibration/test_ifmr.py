import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.quantize.calibration.calibration import observed_range, range_error
from tests.contracts.calibration import CalibrationContract, skewed
from tests.quantize.calibration.observing import counted, observed


class TestIfmr(CalibrationContract):
    name = "ifmr"
    widest = 1.3
    # Its error does not know that codes are limited, so two ranges that are equal to it may differ a little.
    close_to_exact = 0.2


def by_definition(
    values: Array, bits: int, *, symmetric: bool, percentile: float = 0.999999
) -> tuple[float, float]:
    """Scale of the best candidate and the smallest value, in plain loops."""
    ordered = sorted(map(float, values))
    dropped = max(len(ordered) - int(percentile * len(ordered)), 1)
    high, low = max(ordered[-dropped], 0.0), min(ordered[dropped - 1], 0.0)
    best, chosen = float("inf"), 1.0
    for ratio in np.arange(0.7, 1.3, 0.01):
        if symmetric:
            reach = ratio * max(high, -low)
            scale = reach / (2 ** (bits - 1) if -low > high else 2 ** (bits - 1) - 1)
            inside = np.clip(values.astype(np.float64), -reach, reach)
        else:
            scale = (ratio * high - low) / (2**bits - 1)
            inside = np.clip(values.astype(np.float64), low, ratio * high)
        loss = np.mean((np.rint(inside / scale) * scale - values) ** 2)
        if loss < best:
            best, chosen = loss, scale
    return chosen, low


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("sign", [1, -1])
def test_by_definition(sign: int, bits: int, symmetric: bool) -> None:
    values = sign * skewed(6, 2000)
    spec = QuantSpec(bits, True, symmetric, symmetric_scale="larger_side")
    params = parameters_from_range(*observed_range(observed(values), spec, "ifmr"), spec)
    scale, low = by_definition(values, bits, symmetric=symmetric)
    assert params.scale == pytest.approx(scale, rel=1e-5)
    assert params.zero_point == (0 if symmetric else round(-(2 ** (bits - 1)) - low / scale))


def test_percentiles_cut_before_the_search() -> None:
    values = np.append(skewed(7, 999), np.float32(1e4))
    spec = QuantSpec(8, True, True, symmetric_scale="larger_side")
    options = {"max_percentile": 0.99, "min_percentile": 0.99}
    params = parameters_from_range(*observed_range(observed(values), spec, "ifmr", options), spec)
    assert params.scale == pytest.approx(by_definition(values, 8, symmetric=True, percentile=0.99)[0], rel=1e-5)
    assert params.scale < 1


@pytest.mark.parametrize(("include_end", "expected"), [(0, 7.0), (1, 8.75)])
def test_the_end_of_the_search_range(include_end: float, expected: float) -> None:
    """A value between the levels of the first candidate, and on one of the last, tells whether that was tried."""
    step = 8.75 / 127
    values = np.array([7.0, 3 * step, -5 * step, 101 * step, 47 * step, -20 * step], np.float32)
    options = {
        "search_range_start": 1.0,
        "search_range_end": 1.25,
        "search_step": 0.25,
        "include_end": include_end,
    }
    _, high = observed_range(observed(values), QuantSpec(8, True, True), "ifmr", options)
    assert high == expected


def test_a_range_of_negative_values_has_no_negative_scale() -> None:
    """Candidates of data below zero must not turn the range over and win with a loss of nothing."""
    values = -np.abs(skewed(8, 500)) - 1
    for symmetric in (False, True):
        spec = QuantSpec(8, True, symmetric)
        low, high = observed_range(observed(values), spec, "ifmr")
        assert low < 0 <= high
        assert parameters_from_range(low, high, spec).scale > 0


def test_a_search_without_room() -> None:
    options = {"search_range_start": 1.2, "search_range_end": 0.8}
    with pytest.raises(BadInput, match=r"from 1\.2 to 0\.8 has no room"):
        observed_range(observed(skewed(0)), QuantSpec(8, True, True), "ifmr", options)


def test_of_many_elements_it_is_nearly_the_same() -> None:
    values = skewed(9, 60_000)
    spec = QuantSpec(8, True, False)
    exact = range_error(observed(values), spec, *observed_range(observed(values), spec, "ifmr"))
    estimated = range_error(observed(values), spec, *observed_range(counted(observed(values)), spec, "ifmr"))
    assert estimated.mse == pytest.approx(exact.mse, rel=0.02)
