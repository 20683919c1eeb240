from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from roundoff.core.quantizers import QuantSpec, Rounding
from roundoff.core.target import Arithmetic
from tests.models import value, wrapped
from tests.run.integer import brute_force
from tests.run.integer.support import FIXED, U8, Codes, params, random_codes, run_node

S16 = QuantSpec(16, signed=True, symmetric=True)
OUT = (params(0.31, 117), U8)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_average_pooling_is_the_exact_mean_rounded_once(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rank = draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 2)) for _ in range(rank)]
    pads = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
    counted = draw(st.booleans())
    rounding: Rounding = draw(st.sampled_from(["half_even", "half_away"]))
    x = random_codes(rng, (1, 2, *[5] * rank), params(0.07, draw(st.integers(0, 255))))

    ran = run_node(
        "AveragePool",
        {"x": x},
        {"y": OUT},
        arithmetic=Arithmetic(rounding=rounding),
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        count_include_pad=int(counted),
    )

    means = brute_force.window_means(x.centred, kernel, strides, pads, count_padding=counted)
    assert ran.is_integer
    assert np.array_equal(
        ran.codes, brute_force.requantized(means, Fraction(float(x.params.scale)), *OUT, rounding)
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"ceil_mode": 1, "strides": [2, 2]},
        {"ceil_mode": 1, "strides": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
        {"auto_pad": "VALID", "strides": [2, 2]},
    ],
)
def test_pooling_windows_are_those_of_onnxruntime(attributes: dict[str, Any]) -> None:
    x = random_codes(np.random.default_rng(0), (2, 3, 8, 7), params(0.5, 50))

    ran = run_node("AveragePool", {"x": x}, kernel_shape=[3, 2], **attributes)

    node = helper.make_node("AveragePool", ["x"], ["y"], "node", kernel_shape=[3, 2], **attributes)
    model = wrapped([node], [value("x")], [value("y")])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert ran.is_integer
    np.testing.assert_allclose(ran.values, session.run(None, {"x": x.real})[0], rtol=2e-6, atol=1e-6)


def test_fixed_point_kernels_divide_the_sum_of_the_codes() -> None:
    signed = QuantSpec(8, signed=True, symmetric=False)
    x = Codes(np.array([[[-128, -127], [5, 6], [-3, -4], [126, 127]]]), params(0.4, -128), signed)

    ran = run_node("AveragePool", {"x": x}, {"y": (x.params, signed)}, arithmetic=FIXED, kernel_shape=[2])

    # Halves are rounded away from code 0, not from the zero point.
    assert ran.codes.ravel().tolist() == [-128, 6, -4, 127]


@pytest.mark.parametrize(
    ("op_type", "attributes", "opset", "axes"),
    [
        ("GlobalAveragePool", {}, 17, (2, 3)),
        ("ReduceMean", {"axes": [-1, 1], "keepdims": 1}, 13, (1, 3)),
        ("ReduceMean", {"axes": [1], "keepdims": 0}, 13, (1,)),
        ("ReduceMean", {}, 13, (0, 1, 2, 3)),
        ("ReduceSum", {"axes": [2], "keepdims": 0}, 11, (2,)),
    ],
)
def test_means_and_sums_over_axes(
    op_type: str, attributes: dict[str, Any], opset: int, axes: tuple[int, ...]
) -> None:
    x = random_codes(np.random.default_rng(1), (2, 3, 4, 5), params(0.03, 44))

    ran = run_node(op_type, {"x": x}, {"y": OUT}, opset=opset, **attributes)

    keep = bool(attributes.get("keepdims", 1))
    total = x.centred.sum(axis=axes, keepdims=keep)
    count = 1 if op_type == "ReduceSum" else int(np.prod([x.codes.shape[axis] for axis in axes]))
    scale = Fraction(float(x.params.scale)) / count
    assert ran.is_integer
    assert np.array_equal(ran.codes, brute_force.requantized(total, scale, *OUT))


@pytest.mark.parametrize("axes", [np.array([1, 2]), np.zeros(0, np.int64)])
def test_axes_may_be_an_input(axes: np.ndarray[Any, Any]) -> None:
    x = random_codes(np.random.default_rng(2), (2, 3, 4), params(0.5, 44))

    ran = run_node("ReduceMean", {"x": x, "axes": axes}, {"y": OUT}, opset=18, keepdims=0, noop_with_empty_axes=1)

    over = tuple(axes.tolist())
    total = x.centred.sum(axis=over) if over else x.centred
    count = 12 if over else 1
    assert np.array_equal(ran.codes, brute_force.requantized(total, Fraction(1, 2 * count), *OUT))


def test_linear_resizing_weighs_codes() -> None:
    x = Codes(np.array([[[[0, 4], [8, 100]]]]), params(0.5, 2))
    sizes = {"roi": None, "scales": np.array([1, 1, 2, 2], np.float32)}

    ran = run_node("Resize", {"x": x, **sizes}, {"y": (params(0.125, 0), S16)}, mode="linear")

    row = np.array([[1, 0.75, 0.25, 0], [0, 0.25, 0.75, 1]])
    assert ran.is_integer
    assert np.array_equal(ran.codes[0, 0], row.T @ (x.centred[0, 0] * 4) @ row)


def test_a_sum_over_slices_with_scales_of_their_own() -> None:
    each = params(np.array([0.5, 0.25], np.float32), np.array([100, 30]))
    x = random_codes(np.random.default_rng(3), (3, 2), each, U8.along(1))
    out = {"y": (params(0.25, 0), S16)}

    over_slices = run_node("ReduceSum", {"x": x}, out, opset=11, axes=[1], keepdims=0)
    within_slices = run_node("ReduceSum", {"x": x}, out, opset=11, axes=[0], keepdims=0)

    assert np.array_equal(over_slices.codes, (x.centred * np.array([2, 1])).sum(axis=1))
    assert np.array_equal(within_slices.codes, (x.centred * np.array([2, 1])).sum(axis=0))
