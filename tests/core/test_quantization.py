"""Ranges to scales, values to codes and back, against exact fractions and against onnxruntime."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import (
    QuantParams,
    QuantSpec,
    Rounding,
    code_dtype,
    dequantize,
    fake_quantize,
    parameters_from_range,
    quantize,
    representable_range,
    round_values,
)
from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model

U8 = QuantSpec(8, signed=False, symmetric=False)
S8 = QuantSpec(8, signed=True, symmetric=True)

_SPECS = st.builds(
    QuantSpec,
    bits=st.sampled_from([4, 8, 16]),
    signed=st.booleans(),
    symmetric=st.booleans(),
    symmetric_scale=st.sampled_from(["max_code", "half_span", "larger_side"]),
    power_of_two=st.booleans(),
)
_ENDS = st.floats(-1e6, 1e6, width=32)


def _exact(value: float, rounding: Rounding) -> int:
    """Rounding by the schoolbook, in fractions."""
    exact = Fraction(value)
    low = math.floor(exact)
    above = exact - low
    if rounding == "floor":
        return low
    if above != Fraction(1, 2):
        return low + (above > Fraction(1, 2))
    up = {"half_even": low % 2 == 1, "half_up": True, "half_away": value > 0}[rounding]
    return low + up


@pytest.mark.parametrize("rounding", ["half_even", "half_up", "half_away", "floor"])
@given(values=st.lists(st.one_of(st.floats(-1e6, 1e6), st.integers(-9, 9).map(lambda n: n / 2)), min_size=1))
def test_rounding_is_the_schoolbook_rule(rounding: Rounding, values: list[float]) -> None:
    got = round_values(np.array(values), rounding)
    assert got.tolist() == [_exact(value, rounding) for value in values]


@pytest.mark.parametrize(
    ("low", "high", "spec", "scale", "zero_point"),
    [
        (-0.5, 1.0, QuantSpec(8, signed=True, symmetric=False), 1.5 / 255, -43),
        (-0.5, 1.0, S8, 1 / 127, 0),
        (-1.0, 0.5, QuantSpec(8, signed=True, symmetric=True, symmetric_scale="larger_side"), 1 / 128, 0),
        (-1.0, 0.5, QuantSpec(8, signed=True, symmetric=True, symmetric_scale="half_span"), 1 / 127.5, 0),
        (0.5, 2.0, QuantSpec(8, signed=True, symmetric=False), 2 / 255, -128),
        (-2.0, -0.5, QuantSpec(8, signed=True, symmetric=False), 2 / 255, 127),
        (-1.0, 3.0, QuantSpec(16, signed=True, symmetric=False), 4 / 65535, -16384),
        (-1.0, 1.0, QuantSpec(8, signed=False, symmetric=True), 1 / 127, 128),
        (0.0, 1.0, QuantSpec(8, signed=False, symmetric=False, power_of_two=True), 1 / 128, 0),
        (0.0, 0.0, U8, 1.0, 0),
        (0.0, 0.0, QuantSpec(8, signed=True, symmetric=False), 1.0, -128),
        (0.0, 1e-6, QuantSpec(8, signed=True, symmetric=False, smallest_scale=1.2e-7), 1.0, -128),
    ],
)
def test_known_scales(low: float, high: float, spec: QuantSpec, scale: float, zero_point: int) -> None:
    params = parameters_from_range(low, high, spec)
    assert params.scale == np.float32(scale)
    assert params.zero_point == zero_point


@given(ends=st.tuples(_ENDS, _ENDS), spec=_SPECS)
def test_a_range_is_covered_to_within_a_step(ends: tuple[float, float], spec: QuantSpec) -> None:
    low, high = min(ends), max(ends)
    params = parameters_from_range(low, high, spec)
    bottom, top = representable_range(params, spec)
    step = float(params.scale) * (1 + 1e-5)
    assert params.scale > 0
    assert spec.code_min <= params.zero_point <= spec.code_max
    assert bottom - step <= min(low, 0.0)
    assert top + step >= max(high, 0.0)


@given(ends=st.tuples(_ENDS, _ENDS), spec=_SPECS)
def test_zero_has_a_code_of_its_own(ends: tuple[float, float], spec: QuantSpec) -> None:
    params = parameters_from_range(min(ends), max(ends), spec)
    assert fake_quantize(np.zeros(3, dtype=np.float32), params, spec).tolist() == [0.0] * 3


@given(st.floats(1e-30, 1e30), st.integers(2, 16))
def test_a_power_of_two_is_the_next_one_up(top: float, bits: int) -> None:
    spec = QuantSpec(bits, signed=False, symmetric=False)
    plain = parameters_from_range(0.0, top, spec).scale
    rounded = parameters_from_range(0.0, top, replace(spec, power_of_two=True)).scale
    assert math.frexp(float(rounded))[0] == 0.5
    assert rounded / 2 < plain <= rounded


@given(st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=50), _SPECS, st.floats(0.125, 1.0, width=32))
def test_codes_survive_the_way_back(values: list[float], spec: QuantSpec, scale: float) -> None:
    zero = np.int64(0 if spec.signed else 7)
    params = QuantParams(np.asarray(scale, dtype=np.float32), np.asarray(zero))
    codes = quantize(np.array(values, dtype=np.float32), params, spec)
    again = quantize(dequantize(codes, params), params, spec)
    assert codes.dtype == code_dtype(spec)
    assert again.tolist() == codes.tolist()


def _run_onnx(values: Array, params: QuantParams, spec: QuantSpec) -> tuple[Array, Array]:
    axis = {} if spec.axis is None else {"axis": spec.axis}
    domain = "" if spec.bits == 8 else "com.microsoft"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain=domain, **axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], domain=domain, **axis),
    ]
    kind = helper.np_dtype_to_tensor_dtype(code_dtype(spec))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, values.shape)],
        [helper.make_tensor_value_info("q", kind, None), helper.make_tensor_value_info("y", 1, None)],
        [
            numpy_helper.from_array(params.scale, "s"),
            numpy_helper.from_array(params.zero_point.astype(code_dtype(spec)), "z"),
        ],
    )
    model = make_model(graph, domains={"com.microsoft": 1})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    codes, back = session.run(None, {"x": values})
    return codes, back


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(("bits", "signed"), [(8, False), (8, True), (16, False), (16, True)])
def test_codes_are_those_of_onnxruntime(bits: int, signed: bool, axis: int | None) -> None:
    generator = np.random.default_rng(bits + signed)
    values = (generator.normal(size=(5, 300)) * 3).astype(np.float32)
    values[0, :4] = np.inf, -np.inf, 3e38, -3e38
    spec = QuantSpec(bits, signed=signed, symmetric=False, axis=axis)
    reach = np.full(values.shape[axis], 1.7) if axis is not None else np.float64(1.7)
    params = parameters_from_range(-reach, reach * 0.9, spec)
    codes, back = _run_onnx(values, params, spec)
    np.testing.assert_array_equal(quantize(values, params, spec), codes)
    np.testing.assert_array_equal(fake_quantize(values, params, spec), back)


def test_narrow_codes_leave_out_the_lowest() -> None:
    spec = QuantSpec(8, signed=True, symmetric=True, narrow=True)
    params = parameters_from_range(-1.0, 1.0, spec)
    assert quantize(np.array([-5.0, 5.0], dtype=np.float32), params, spec).tolist() == [-127, 127]


def test_nan_becomes_zero() -> None:
    params = parameters_from_range(-1.0, 3.0, U8)
    assert fake_quantize(np.array([np.nan], dtype=np.float32), params, U8).tolist() == [0.0]


def test_extreme_ranges_give_usable_scales() -> None:
    largest = float(np.finfo(np.float32).max)
    for low, high in ((-largest, largest), (0.0, 1e-44), (-1e300, 1e300)):
        for spec in (U8, S8):
            scale = parameters_from_range(low, high, spec).scale
            assert np.isfinite(scale)
            assert np.isfinite(1 / scale)


@given(_SPECS, st.sampled_from(["half_even", "half_up", "floor"]), st.integers(0, 2**16))
def test_values_quantized_without_codes_are_those_of_the_codes_to_the_last_bit(
    spec: QuantSpec, rounding: Rounding, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((3, 16)) * 10 ** rng.uniform(-3, 3)).astype(np.float32)
    values[0, :4] = np.nan, np.inf, -np.inf, -0.0
    spec = replace(spec, rounding=rounding).along(0 if seed % 2 else None)
    ends = rng.uniform(-2, 2, (2, 3) if seed % 2 else (2,))
    params = parameters_from_range(ends.min(axis=0), ends.max(axis=0), spec)
    expected = dequantize(quantize(values, params, spec), params, spec.axis)
    assert fake_quantize(values, params, spec).tobytes() == expected.tobytes()
