"""Each metric: the contract, and its definition computed another way."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure.metrics import all_metrics, get_metric, score
from roundoff.measure.pairs import measure_pair
from tests.contracts.metric_contract import MetricContract


def _contract(metric_name: str, *, is_symmetric: bool = False, power: int | None = 0) -> type[MetricContract]:
    attributes = {"name": metric_name, "symmetric": is_symmetric, "scale_power": power}
    return type(f"Test_{metric_name}", (MetricContract,), attributes)


TestCosine = _contract("cosine", is_symmetric=True)
TestKl = _contract("kl_divergence")
TestSqnr = _contract("sqnr_db")
TestRelativeEuclidean = _contract("relative_euclidean")
TestNormError = _contract("norm_error")
TestMse = _contract("mse", is_symmetric=True, power=2)
TestRmse = _contract("rmse", is_symmetric=True, power=1)
TestMae = _contract("mae", is_symmetric=True, power=1)
TestMaxAbs = _contract("max_abs_error", is_symmetric=True, power=1)
TestChebyshev = _contract("chebyshev", is_symmetric=True, power=1)
TestMeanRelative = _contract("mean_relative_error")
TestMaxRelative = _contract("max_relative_error")
TestAccumulated = _contract("accumulated_relative_error")
TestWithin1 = _contract("within_1e3")
TestWithin5 = _contract("within_5e3")
TestSlope = _contract("fit_slope", power=None)
TestOffset = _contract("fit_offset", power=None)
TestSaturated = _contract("saturated")
TestReferenceSaturated = _contract("reference_saturated")
TestZeros = _contract("zeros")
TestReferenceZeros = _contract("reference_zeros")
TestWorstChannel = _contract("worst_channel", power=None)
TestWorstChannelSqnr = _contract("worst_channel_sqnr_db")


# A metric that is not listed is held to what all promise.
_LISTED = [getattr(case, "name", "") for case in list(globals().values()) if isinstance(case, type)]
for _name in (each.name for each in all_metrics() if each.name not in _LISTED):
    globals()[f"Test_{_name}"] = _contract(_name, power=None)


@given(st.integers(0, 10_000), st.integers(2, 500))
@settings(max_examples=60, deadline=None)
def test_values_equal_their_textbook_definitions(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size).astype(np.float32)
    y = (x + 0.1 * rng.standard_normal(size)).astype(np.float32)
    values = score(measure_pair(x, y)).values
    a, b = x.astype(np.longdouble), y.astype(np.longdouble)
    d = a - b
    relative = np.abs(d) / np.abs(a)
    slope, offset = np.polyfit(x.astype(float), y.astype(float), 1)
    expected = {
        "cosine": (a @ b) / np.sqrt((a @ a) * (b @ b)),
        "sqnr_db": 10 * np.log10((a @ a) / (d @ d)),
        "relative_euclidean": np.sqrt((d @ d) / (a @ a)),
        "norm_error": abs(np.sqrt(b @ b) / np.sqrt(a @ a) - 1),
        "mse": np.mean(d * d),
        "rmse": np.sqrt(np.mean(d * d)),
        "mae": np.mean(np.abs(d)),
        "max_abs_error": np.max(np.abs(d)),
        "mean_relative_error": np.mean(relative),
        "max_relative_error": np.max(relative),
        "accumulated_relative_error": np.sum(relative),
        "within_1e3": np.mean(relative < 1e-3),
        "within_5e3": np.mean(relative < 5e-3),
    }
    for name, value in expected.items():
        assert values[name] == pytest.approx(float(value), rel=1e-6, abs=1e-12), name
    assert values["fit_slope"] == pytest.approx(slope, rel=1e-5, abs=1e-6)
    assert values["fit_offset"] == pytest.approx(offset, rel=1e-4, abs=1e-5)


def test_cosine_is_right_to_twelve_digits_on_millions_of_values() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2_000_000).astype(np.float32) + 3
    y = x + np.float32(1e-3) * rng.standard_normal(x.size).astype(np.float32)
    a, b = x.astype(np.longdouble), y.astype(np.longdouble)
    truth = float((a @ b) / np.sqrt((a @ a) * (b @ b)))
    assert score(measure_pair(x, y)).values["cosine"] == pytest.approx(truth, abs=1e-12)


def test_kl_divergence_sees_distribution_and_not_order() -> None:
    x = np.random.default_rng(0).standard_normal(5000)
    kl = get_metric("kl_divergence").compute
    assert kl(measure_pair(x, x[::-1])) == 0
    assert 0 < kl(measure_pair(x, x * 1.05)) < kl(measure_pair(x, x * 2)) < kl(measure_pair(x, x * 2 + 5))


def test_worst_channel_is_the_one_that_was_hurt() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 6, 5, 5))
    y = x + 0.01 * rng.standard_normal(x.shape)
    y[:, 4] *= 1.7
    values = score(measure_pair(x, y, channel_axis=1)).values
    assert values["worst_channel"] == 4
    assert values["worst_channel_sqnr_db"] == pytest.approx(-20 * math.log10(0.7), abs=0.2)


def test_saturation_and_zeros_are_shares() -> None:
    x = np.linspace(-2, 2, 101)
    y = np.clip(x, -1, 1)
    values = score(measure_pair(x, y)).values
    assert values["saturated"] == pytest.approx(np.mean(np.abs(x) >= 1), abs=1e-9)
    assert values["reference_saturated"] == 0
    assert values["zeros"] == pytest.approx(1 / 101)
    # Zeros of a ReLU are zeros, not saturation.
    relu = np.maximum(x, 0)
    assert score(measure_pair(relu, relu)).values["saturated"] == 0


_ONE, _NONE = np.ones(4, np.float32), np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("reference", "candidate", "status", "detail", "cosine"),
    [
        (_NONE, _NONE, "degenerate", "both sides are all zero", 1.0),
        (_NONE, _ONE, "degenerate", "the reference is all zero", 0.0),
        (_ONE, _NONE, "degenerate", "the candidate is all zero", 0.0),
        (_NONE[:0], _NONE[:0], "degenerate", "the tensor is empty", 1.0),
        (_ONE, _ONE * 2, "ok", "", 1.0),
    ],
)
def test_degenerate_values_follow_one_policy(
    reference: Array, candidate: Array, status: str, detail: str, cosine: float
) -> None:
    result = score(measure_pair(reference, candidate))
    assert (result.status, result.detail) == (status, detail)
    assert result.values["cosine"] == pytest.approx(cosine)


def test_a_zero_reference_is_the_worst_for_everything_relative_to_it() -> None:
    values = score(measure_pair(_NONE, _ONE)).values
    assert values["sqnr_db"] == -math.inf
    for name in ("relative_euclidean", "mean_relative_error", "max_relative_error", "accumulated_relative_error"):
        assert values[name] == math.inf
    assert values["within_1e3"] == 0


def test_nonfinite_is_said_with_counts() -> None:
    result = score(measure_pair(np.array([1.0, math.nan, 3]), np.array([1.0, 2, math.inf])))
    assert result.status == "nonfinite"
    assert result.detail == "2 of 3 elements are NaN or infinite (1 in the reference, 1 in the candidate)"
    assert result.values["mse"] == 0
    assert score(measure_pair(np.array([math.nan]), np.array([math.nan]))).values == {}


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no metric 'cosin'[\s\S]*did you mean 'cosine'"):
        get_metric("cosin")
