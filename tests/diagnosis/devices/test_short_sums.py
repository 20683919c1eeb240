"""Layers with short operands or sums compute what a plain loop over the same numbers does."""

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import rounded_to
from roundoff.diagnosis.devices.kernels.layers import ShortSum
from roundoff.graph.nodes import make_model

HALF = st.floats(-60000, 60000, width=32)


@given(value=st.floats(-(2.0**120), 2.0**120, width=32))
def test_bfloat16_is_the_nearest_number_of_8_bits(value: float) -> None:
    short = float(rounded_to(np.array([value], np.float32), "bfloat16")[0])
    fraction, exponent = np.frexp(value)
    if abs(value) > 1e-37:
        assert short == float(np.ldexp(np.round(np.ldexp(fraction, 8)), exponent - 8))
    assert rounded_to(np.array([short], np.float32), "bfloat16")[0] == np.float32(short)


@given(value=HALF)
def test_float16_is_that_of_numpy(value: float) -> None:
    assert rounded_to(np.array([value], np.float32), "float16")[0] == np.float32(np.float16(value))


def by_runtime(x: Array, weight: Array, bias: Array, attributes: dict[str, object]) -> Array:
    given_to = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "w", "b")]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    data = make_model(helper.make_graph([node], "conv", given_to, made)).SerializeToString()
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x, "w": weight, "b": bias})
    return np.asarray(found)


@settings(max_examples=25, deadline=None)
@given(
    group=st.sampled_from([1, 2]),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    kernel=st.sampled_from([(3, 3), (1, 3), (1, 1)]),
    seed=st.integers(0, 1000),
)
def test_a_convolution_of_short_operands_is_that_of_the_runtime(
    group: int, stride: int, dilation: int, pads: tuple[int, ...], kernel: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, 4, 9, 8)).astype(np.float32)
    weight = rng.standard_normal((6, 4 // group, *kernel)).astype(np.float32)
    bias = rng.standard_normal(6).astype(np.float32)
    named = {"group": group, "strides": [stride] * 2, "dilations": [dilation] * 2, "pads": list(pads)}
    made = ShortSum("Conv", named, "bfloat16")(x, weight, bias)
    wanted = by_runtime(rounded_to(x, "bfloat16"), rounded_to(weight, "bfloat16"), bias, dict(named))
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_product_of_matrices_is_rounded_on_the_way(at_once: int) -> None:
    rng = np.random.default_rng(3)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 16), (16, 5)))
    made = ShortSum("MatMul", {}, "float16", channels_outside=True, at_once=at_once)(x, weight, None)
    for row in range(3):
        for column in range(5):
            total = np.float16(0)
            for first in range(0, 16, at_once):
                left = x[0, row, first : first + at_once].astype(np.float16).astype(np.float64)
                right = weight[first : first + at_once, column].astype(np.float16).astype(np.float64)
                total = np.float16(np.float32(float(total) + float(left @ right)))
            assert made[0, row, column] == pytest.approx(float(total), abs=2e-3)


@pytest.mark.parametrize("channels_outside", [True, False])
def test_a_convolution_is_rounded_in_its_order(channels_outside: bool) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 3, 4)).astype(np.float32)
    weight = rng.standard_normal((2, 3, 3)).astype(np.float32)
    made = ShortSum("Conv", {"pads": [0, 0]}, "bfloat16", channels_outside, 1)(x, weight, None)
    pairs = [(c, t) for c in range(3) for t in range(3)]
    if not channels_outside:
        pairs = [(c, t) for t in range(3) for c in range(3)]
    for out in range(2):
        for place in range(2):
            total = np.float32(0)
            for channel, tap in pairs:
                left, right = (
                    rounded_to(np.array([each], np.float32), "bfloat16")[0]
                    for each in (x[0, channel, place + tap], weight[out, channel, tap])
                )
                total = rounded_to(np.array([total + left * right], np.float32), "bfloat16")[0]
            assert made[0, out, place] == total


def test_a_layer_that_is_short_all_over_and_one_that_rounds_its_products() -> None:
    rng = np.random.default_rng(3)
    x, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 9), (9, 5), (5,)))
    short = [rounded_to(each, "bfloat16") for each in (x, weight, bias)]
    stored = ShortSum("Gemm", {}, "bfloat16", stored=True)(x, weight, bias)
    assert np.array_equal(stored, rounded_to(rounded_to(stored, "bfloat16"), "bfloat16"))
    np.testing.assert_allclose(stored, short[0] @ short[1] + short[2], rtol=2.0**-8, atol=1e-3)
    total = np.zeros((4, 5), np.float16)
    for at in range(9):
        product = x[:, at, None].astype(np.float16) * weight[None, at].astype(np.float16)
        total = (total + product).astype(np.float16)
    made = ShortSum("MatMul", {}, "float16", True, 1, products=True)(x, weight, None)
    assert np.array_equal(made, total.astype(np.float32))
