"""Scales from plans and ranges: groups, biases that do not fit, dead channels, fixed ranges."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.core.plan import PlannedQuantizer, QuantPlan
from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, quantize
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.quantize.parameters import find_parameters, levels_left, weight_parameters
from tests.models import value, wrapped

U8 = QuantSpec(8, signed=False, symmetric=False)
S8 = QuantSpec(8, signed=True, symmetric=True)
S32 = QuantSpec(32, signed=True, symmetric=True)


class _Seen:
    """Ranges as if observed, the union when several tensors share."""

    def __init__(self, **ends: tuple[float, float]) -> None:
        self.ends = ends

    def range(self, tensors: Sequence[str], spec: QuantSpec, method: str) -> tuple[Array, Array]:
        assert method == "minmax"
        low = min(self.ends[name][0] for name in tensors)
        return np.asarray(low), np.asarray(max(self.ends[name][1] for name in tensors))


def _gemm(weight: Array, bias: Array) -> Model:
    rows, columns = weight.shape
    proto = wrapped(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="fc", transB=1)],
        [value("x", [1, columns])],
        [value("y", [1, rows])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    return Model(proto, Path("gemm.onnx"), 0)


def _plan(*, per_channel: bool) -> QuantPlan:
    axis = 0 if per_channel else None
    quantizers = (
        PlannedQuantizer("x", "x", "activation", U8, (Consumer("fc", 0),), method="minmax"),
        PlannedQuantizer("w", "w", "weight", S8.along(axis), (Consumer("fc", 1),), method="minmax"),
        PlannedQuantizer("b", "b", "bias", S32.along(axis), (Consumer("fc", 2),), scale_of=("x", "w")),
        PlannedQuantizer("y", "y", "activation", U8, (), output=True, method="minmax"),
    )
    return QuantPlan("t", quantizers, ())


def _found(model: Model, plan: QuantPlan, seen: _Seen) -> tuple[dict[str, Quantizer], tuple[str, ...]]:
    numbers = find_parameters(plan, model, seen, weights=weight_parameters(plan, model))
    return {each.name: each for each in numbers.quantizers}, tuple(map(str, numbers.notes))


WEIGHT = np.array([[1.0, -2.0], [0.5, 0.25], [-4.0, 3.0]], dtype=np.float32)
BIAS = np.array([0.1, -0.2, 0.3], dtype=np.float32)
SEEN = _Seen(x=(-1.0, 3.0), y=(-6.0, 6.0))


@pytest.mark.parametrize("per_channel", [False, True])
def test_scales_follow_range_and_weight(per_channel: bool) -> None:
    found, notes = _found(_gemm(WEIGHT, BIAS), _plan(per_channel=per_channel), SEEN)
    largest = np.abs(WEIGHT).max(axis=1) if per_channel else np.abs(WEIGHT).max()
    np.testing.assert_allclose(found["x"].params.scale, 4 / 255, rtol=1e-6)
    np.testing.assert_allclose(found["w"].params.scale, largest / 127, rtol=1e-6)
    np.testing.assert_array_equal(found["b"].params.scale, found["x"].params.scale * found["w"].params.scale)
    assert not np.any(found["b"].params.zero_point)
    assert found["x"].params.zero_point == 64
    assert notes == ()


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_bias_too_large_for_32_bits_widens_the_weight_scale(per_channel: bool) -> None:
    weight = WEIGHT * np.array([[1e-7], [1], [1]], dtype=np.float32) if per_channel else WEIGHT * np.float32(1e-7)
    bias = np.array([5e3, 1.0, 1.0], dtype=np.float32)
    found, notes = _found(_gemm(weight, bias), _plan(per_channel=per_channel), SEEN)
    quantizer = found["b"]
    codes = quantize(bias.astype(np.float64), quantizer.params, quantizer.spec)
    value = codes[0] * quantizer.params.scale.reshape(-1)[0].astype(np.float64)
    assert abs(value - 5e3) < 5e3 * 1e-6
    assert 2**29 < codes[0] <= 2**30 * (1 + 1e-6)
    assert len(notes) == 1
    assert notes[0].endswith("scale of weights widened so that integer biases fit into 32 bits: 'b'")
    if per_channel:
        np.testing.assert_allclose(found["w"].params.scale[1:], np.abs(WEIGHT).max(axis=1)[1:] / 127, rtol=1e-6)


def test_a_dead_channel_keeps_its_bias() -> None:
    weight = WEIGHT.copy()
    weight[1] = 0
    found, _ = _found(_gemm(weight, BIAS), _plan(per_channel=True), SEEN)
    quantizer = found["b"]
    codes = quantize(BIAS, quantizer.params, quantizer.spec)
    np.testing.assert_allclose(codes * quantizer.params.scale, BIAS, atol=1e-3)


def test_steps_whose_product_is_no_number_leave_a_bias_its_step() -> None:
    """Tensors that underflow, as in networks with random weights, are quantized like others."""
    model = _gemm(np.array([[1e-9, 2e-9], [3e-9, -1e-9]], np.float32), np.array([0.0, 1e-32], np.float32))
    found, _ = _found(model, _plan(per_channel=True), _Seen(x=(0.0, 1e-33), y=(0.0, 1e-32)))
    assert (found["b"].params.scale >= np.finfo(np.float32).tiny).all()
    codes = quantize(np.array([0.0, 1e-32], np.float32), found["b"].params, S32.along(0))
    np.testing.assert_allclose(codes * found["b"].params.scale.astype(np.float64), [0.0, 1e-32], rtol=1e-5)


def test_weights_of_zeros_only_are_left_at_scale_one() -> None:
    found, _ = _found(_gemm(np.zeros_like(WEIGHT), np.zeros_like(BIAS)), _plan(per_channel=True), SEEN)
    assert found["w"].params.scale.tolist() == [1.0, 1.0, 1.0]


def test_a_group_shares_one_scale_over_the_union() -> None:
    quantizers = (
        PlannedQuantizer("x", "x", "activation", U8, (Consumer("fc", 0),), group="g", method="minmax"),
        PlannedQuantizer("y", "y", "activation", U8, (), output=True, group="g", method="minmax"),
    )
    found, _ = _found(_gemm(WEIGHT, BIAS), QuantPlan("t", quantizers, ()), SEEN)
    assert found["x"].params is found["y"].params
    np.testing.assert_allclose(found["x"].params.scale, 12 / 255, rtol=1e-6)


def test_a_constant_in_a_group_widens_it() -> None:
    quantizers = (
        PlannedQuantizer("x", "x", "activation", U8, (Consumer("fc", 0),), group="g", method="minmax"),
        PlannedQuantizer("w", "w", "weight", U8, (Consumer("fc", 1),), group="g", method="minmax"),
    )
    found, _ = _found(_gemm(WEIGHT, BIAS), QuantPlan("t", quantizers, ()), SEEN)
    np.testing.assert_allclose(found["w"].params.scale, 7 / 255, rtol=1e-6)


def test_a_fixed_range_is_not_calibrated() -> None:
    quantizers = (PlannedQuantizer("y", "y", "activation", U8, (), output=True, fixed_range=(0.0, 1.0)),)
    found, _ = _found(_gemm(WEIGHT, BIAS), QuantPlan("t", quantizers, ()), _Seen())
    np.testing.assert_allclose(found["y"].params.scale, 1 / 255, rtol=1e-6)


@pytest.mark.parametrize(("weight", "bias", "name"), [(np.nan, 0.0, "w"), (1.0, -np.inf, "b")])
def test_constants_that_are_not_finite_are_named(weight: float, bias: float, name: str) -> None:
    weights, biases = WEIGHT.copy(), BIAS.copy()
    weights[0, 0], biases[1] = weight, bias
    with pytest.raises(BadInput, match=f"'{name}' holds 1 value that is NaN or infinite") as caught:
        weight_parameters(_plan(per_channel=True), _gemm(weights, biases))
    assert "--set 'fc=float'" in caught.value.fix


def test_levels_left_for_the_rest_of_a_tensor() -> None:
    """One value of 255 among normal ones sets a step of 1: the middle of them gets the codes from -3 to 3."""
    values = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    values[7] = 255.0

    def with_step(scale: float) -> Quantizer:
        params = QuantParams(np.asarray(scale, np.float32), np.asarray(0, np.int64))
        return Quantizer("q", "x", "activation", U8, params, ())

    quantizer = with_step(1.0)
    expected = len(set(np.rint(np.sort(values)[100:-100]).tolist()))
    assert levels_left(values, quantizer) == expected == 7
    assert levels_left(values, with_step(3.0)) == 3
    assert levels_left(np.zeros(100, np.float32), quantizer) is None
