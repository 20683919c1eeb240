from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.quantizers import QuantParams, QuantSpec, Rounding
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from tests.models import single_node, value
from tests.run.integer import brute_force
from tests.run.integer.support import FIXED, S8, S32, U8, U16, Codes, params, random_codes, run_node

ROUNDINGS: tuple[Rounding, ...] = ("half_even", "half_up", "half_away", "floor")
OUT = (params(0.31, 117), U8)


def fractions(scale: Array) -> Array:
    """Exact values of float32 scales."""
    return np.array([Fraction(float(each)) for each in scale.reshape(-1)], dtype=object).reshape(scale.shape)


def products(values: QuantParams, weights: QuantParams) -> Array:
    """Exact scales of sums of products, one for each channel."""
    return np.asarray(fractions(values.scale) * fractions(weights.scale), dtype=object)


def channel_params(rng: np.random.Generator, count: int) -> QuantParams:
    return params(rng.uniform(0.001, 0.02, count).astype(np.float32))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_conv_equals_loops_over_integers(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inner, multiple = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3 if rank < 3 else 2)) for _ in range(rank))
    size = tuple(draw(st.integers(5, 7 if rank < 3 else 5)) for _ in range(rank))
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 2 if rank < 3 else 1)) for _ in range(2 * rank)]
    rounding = draw(st.sampled_from(ROUNDINGS))
    x = random_codes(
        rng, (draw(st.integers(1, 2)), inner * groups, *size), params(0.05, draw(st.integers(0, 255)))
    )
    channels = multiple * groups
    per_channel = params(0.004) if draw(st.booleans()) else channel_params(rng, channels)
    axis = 0 if per_channel.scale.ndim else None
    w = random_codes(rng, (channels, inner, *kernel), per_channel, S8.along(axis), constant=True, kind="weight")

    ran = run_node(
        "Conv",
        {"x": x, "w": w},
        {"y": OUT},
        arithmetic=Arithmetic(rounding=rounding),
        group=groups,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )

    total = brute_force.conv(x.centred, w.centred, strides, dilations, pads, groups)
    scale = products(x.params, w.params).reshape(-1, *[1] * rank)
    assert ran.is_integer
    assert np.array_equal(ran.codes, brute_force.requantized(total, scale, *OUT, rounding))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_automatic_padding_is_that_of_onnxruntime(op_type: str, auto_pad: str) -> None:
    rng = np.random.default_rng(1)
    x = random_codes(rng, (1, 2, 8, 5), params(1, 9))
    w = random_codes(rng, (2, 2, 3, 4), params(1), S8, constant=True, kind="weight")

    ran = run_node(op_type, {"x": x, "w": w}, auto_pad=auto_pad, strides=[2, 2])

    assert ran.is_integer
    assert np.array_equal(ran.values, in_onnxruntime(op_type, x, w, auto_pad=auto_pad, strides=[2, 2]))


def in_onnxruntime(op_type: str, x: Codes, w: Codes, **attributes: Any) -> Array:
    """The same in float32, which is exact for small integers."""
    from onnx import helper

    node = helper.make_node(op_type, ["x", "w"], ["y"], "node", **attributes)
    model = single_node(node, [value("x"), value("w")])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"x": x.real, "w": w.real})[0]
    return result


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_transposed_conv_equals_loops_over_integers(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rank, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    inner, per_group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    size = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    strides, dilations = ([draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 1)) if side > 1 else 0 for side in (*kernel, *kernel)]
    extra = [
        draw(st.integers(0, max(stride, dilation) - 1))
        for stride, dilation in zip(strides, dilations, strict=True)
    ]
    x = random_codes(
        rng, (1, inner * groups, *(each + 2 for each in size)), params(0.05, draw(st.integers(0, 255)))
    )
    per_channel = draw(st.booleans())
    scales = channel_params(rng, per_group) if per_channel else params(0.004)
    spec = S8.along(1 if per_channel else None)
    w = random_codes(rng, (inner * groups, per_group, *kernel), scales, spec, constant=True, kind="weight")

    ran = run_node(
        "ConvTranspose",
        {"x": x, "w": w},
        {"y": OUT},
        group=groups,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=extra,
    )

    total = brute_force.conv_transpose(
        x.centred, w.centred, strides, dilations, pads, output_padding=extra, groups=groups
    )
    scale = products(x.params, w.params)
    scale = np.tile(scale, groups).reshape(-1, *[1] * rank) if per_channel else scale
    assert ran.is_integer
    assert np.array_equal(ran.codes, brute_force.requantized(total, scale, *OUT))


def test_transposed_conv_with_sums_that_no_float32_holds() -> None:
    rng = np.random.default_rng(11)
    x = random_codes(rng, (1, 300, 3), params(1.0, 0))
    w = Codes(np.full((300, 1, 3), 127), params(1.0), S8, constant=True, kind="weight")

    ran = run_node("ConvTranspose", {"x": x, "w": w}, {"y": (params(1.0), S32)})

    total = brute_force.conv_transpose(x.centred, w.centred, [1], [1], [0, 0], output_padding=[0], groups=1)
    assert ran.is_integer
    assert np.array_equal(ran.codes, total.astype(np.int64))


def test_transposed_conv_of_a_wanted_size() -> None:
    rng = np.random.default_rng(2)
    x = random_codes(rng, (1, 2, 5, 4), params(1, 100))
    w = random_codes(rng, (2, 1, 3, 3), params(1), S8, constant=True, kind="weight")

    ran = run_node("ConvTranspose", {"x": x, "w": w}, strides=[2, 2], output_shape=[10, 8])

    assert np.array_equal(ran.values, in_onnxruntime("ConvTranspose", x, w, strides=[2, 2], output_shape=[10, 8]))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_gemm_equals_loops_over_integers(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, inner, columns = (draw(st.integers(1, 6)) for _ in range(3))
    turned = [draw(st.booleans()) for _ in range(2)]
    alpha = draw(st.sampled_from([1.0, 0.5, -2.0]))
    x = random_codes(rng, (inner, rows) if turned[0] else (rows, inner), params(0.02, draw(st.integers(0, 255))))
    axis = 0 if turned[1] else 1
    shape = (columns, inner) if turned[1] else (inner, columns)
    w = random_codes(
        rng, shape, channel_params(rng, columns), S8.along(axis), constant=draw(st.booleans()), kind="weight"
    )

    ran = run_node("Gemm", {"x": x, "w": w}, {"y": OUT}, transA=int(turned[0]), transB=int(turned[1]), alpha=alpha)

    left, right = (array.T if turn else array for array, turn in ((x.centred, turned[0]), (w.centred, turned[1])))
    scale = products(x.params, w.params) * Fraction(alpha)
    assert ran.is_integer
    assert np.array_equal(ran.codes, brute_force.requantized(brute_force.matmul(left, right), scale, *OUT))


SHAPES = [
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 1, 4, 3), (3, 3, 5)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((2, 0), (0, 3)),
]


@pytest.mark.parametrize("constant", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_of_any_shapes(left: tuple[int, ...], right: tuple[int, ...], constant: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(3)
    a = random_codes(rng, left, params(0.03, 7), constant=constant[0])
    b = random_codes(rng, right, params(0.01, 201), constant=constant[1])

    ran = run_node("MatMul", {"a": a, "b": b}, {"y": OUT})

    total = brute_force.matmul(a.centred, b.centred)
    assert ran.is_integer
    assert np.array_equal(
        ran.codes, brute_force.requantized(np.asarray(total), products(a.params, b.params), *OUT)
    )


def test_matmul_with_scales_along_the_rows_of_a_weight_on_the_left() -> None:
    rng = np.random.default_rng(4)
    a = random_codes(rng, (4, 3), channel_params(rng, 4), S8.along(0), constant=True, kind="weight")
    b = random_codes(rng, (2, 3, 5), params(0.02, 30))

    ran = run_node("MatMul", {"a": a, "b": b}, {"y": OUT})

    scale = products(b.params, a.params).reshape(4, 1)
    assert np.array_equal(
        ran.codes, brute_force.requantized(brute_force.matmul(a.centred, b.centred), scale, *OUT)
    )


@pytest.mark.parametrize("op_type", ["Conv", "MatMul"])
@pytest.mark.parametrize(
    "arithmetic",
    [
        Arithmetic(accumulator_bits=64),
        Arithmetic(accumulator_bits=64, rounding="half_up", requantization="fixed_point"),
    ],
)
def test_sums_that_no_float32_holds(op_type: str, arithmetic: Arithmetic) -> None:
    rng = np.random.default_rng(5)
    wide = QuantSpec(16, signed=True, symmetric=True)
    x = random_codes(rng, (1, 3000, 1) if op_type == "Conv" else (2, 3000), params(0.5, 12345), U16)
    w = random_codes(
        rng, (2, 3000, 1) if op_type == "Conv" else (3000, 2), params(0.25), wide, constant=True, kind="weight"
    )
    out = params(2.0**17), wide

    ran = run_node(op_type, {"x": x, "w": w}, {"y": out}, arithmetic=arithmetic)

    pads = ([1], [1], [0, 0], 1)
    total = (
        brute_force.conv(x.centred, w.centred, *pads)
        if op_type == "Conv"
        else brute_force.matmul(x.centred, w.centred)
    )
    assert max(abs(int(each)) for each in total.flat) > 2**33
    expected = brute_force.requantized(np.asarray(total), Fraction(1, 8), *out, arithmetic.rounding)
    assert np.array_equal(ran.codes, expected)
    assert not ran.report.overflows


def test_a_quantized_bias_joins_the_accumulator() -> None:
    rng = np.random.default_rng(6)
    x = random_codes(rng, (1, 3, 5, 5), params(0.05, 80))
    w = random_codes(rng, (4, 3, 3, 3), channel_params(rng, 4), S8.along(0), constant=True, kind="weight")
    scale = params((x.params.scale * w.params.scale).astype(np.float32))
    b = Codes(rng.integers(-50_000, 50_000, 4), scale, S32.along(0), constant=True, kind="bias")

    ran = run_node("Conv", {"x": x, "w": w, "b": b}, {"y": OUT})

    total = brute_force.conv(x.centred, w.centred, [1, 1], [1, 1], [0] * 4, 1) + b.codes.reshape(-1, 1, 1)
    expected = brute_force.requantized(total, products(x.params, w.params).reshape(-1, 1, 1), *OUT)
    assert np.array_equal(ran.codes, expected)


def test_a_bias_of_another_scale_and_a_float_bias_are_added_as_real_numbers() -> None:
    rng = np.random.default_rng(7)
    x = random_codes(rng, (2, 6), params(0.05, 80))
    w = random_codes(rng, (6, 4), params(0.01), S8, constant=True, kind="weight")
    coarse = Codes(rng.integers(-100, 100, 4), params(0.125), S32, constant=True, kind="bias")

    ran = run_node("Gemm", {"x": x, "w": w, "b": coarse}, {"y": OUT}, beta=0.5)
    plain = run_node("Gemm", {"x": x, "w": w, "b": coarse.real}, {"y": OUT}, beta=0.5)

    unit = products(x.params, w.params)
    total = brute_force.matmul(x.centred, w.centred) + coarse.codes * Fraction(1, 16) / unit
    assert np.array_equal(ran.codes, brute_force.requantized(total, unit, *OUT))
    assert np.array_equal(plain.codes, ran.codes)


def test_fixed_point_rounds_twice() -> None:
    rng = np.random.default_rng(8)
    x = random_codes(rng, (4, 30), params(0.05, 80))
    w = random_codes(rng, (30, 20), channel_params(rng, 20), S8.along(1), constant=True, kind="weight")

    ran = run_node("MatMul", {"x": x, "w": w}, {"y": OUT}, arithmetic=FIXED)

    factors = x.params.scale.astype(np.float64) * w.params.scale / OUT[0].scale.astype(np.float64)
    total = brute_force.matmul(x.centred, w.centred)
    steps = [
        [brute_force.scaled_twice(value, factor) for value, factor in zip(row, factors, strict=True)]
        for row in total
    ]
    assert np.array_equal(ran.codes, np.clip(np.array(steps) + 117, 0, 255))


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_an_accumulator_that_is_too_narrow_is_reported(overflow: Any) -> None:
    x = Codes(np.array([[255, 255], [10, 10]]), params(1.0))
    w = Codes(np.array([[127], [127]]), params(1.0), S8, constant=True, kind="weight")
    narrow = Arithmetic(accumulator_bits=16, overflow=overflow)
    wide = params(1.0), QuantSpec(32, signed=True, symmetric=True)

    ran = run_node("MatMul", {"x": x, "w": w}, {"y": wide}, arithmetic=narrow)

    sums = [64770, 2540]
    assert ran.codes.ravel().tolist() == [sums[0] - 65536 if overflow == "wrap" else 32767, sums[1]]
    [event] = ran.report.overflows
    assert (event.node, event.kind, event.count, event.elements) == ("node", "accumulator", 1, 2)
    assert event.worst_ratio == pytest.approx(64770 / 32768)


def test_a_bias_without_a_code_is_reported() -> None:
    x = Codes(np.array([[0, 0]]), params(1e-4))
    w = Codes(np.array([[1], [1]]), params(1e-6), S8, constant=True, kind="weight")
    bias = Codes(np.zeros(1), params(1e-10), S32, constant=True, kind="bias", floats=np.ones(1, np.float32))

    ran = run_node("Gemm", {"x": x, "w": w, "b": bias})

    assert ran.values.ravel() == pytest.approx((2**31 - 1) * 1e-10)
    [event] = ran.report.overflows
    assert (event.node, event.kind, event.count, event.elements) == ("node", "bias", 1, 1)
    assert event.worst_ratio == pytest.approx(1e10 / (2**31 - 1), rel=1e-5)


@pytest.mark.parametrize(
    ("op_type", "shape", "axis", "why"),
    [
        ("Conv", (2, 2, 1, 1), 1, "the scales of its weight run along axis 1, which sums run over"),
        ("ConvTranspose", (2, 2, 1, 1), 0, "the scales of its weight run along axis 0, which sums run over"),
    ],
)
def test_scales_along_an_axis_of_the_sum_need_float(
    op_type: str, shape: tuple[int, ...], axis: int, why: str
) -> None:
    rng = np.random.default_rng(9)
    x = random_codes(rng, (1, 2, 3, 3), params(0.1, 3))
    w = random_codes(rng, shape, channel_params(rng, 2), S8.along(axis), constant=True, kind="weight")

    ran = run_node(op_type, {"x": x, "w": w}, {"y": OUT})

    [entry] = ran.report.float_nodes
    assert (entry.node, entry.op_type, entry.why) == ("node", op_type, why)
    total = np.einsum("nchw,cd->ndhw", x.real, w.real[..., 0, 0]) if op_type == "ConvTranspose" else None
    if total is not None:
        assert np.abs(ran.codes - (total / OUT[0].scale + 117).clip(0, 255)).max() <= 0.51


def test_a_weight_that_is_not_quantized_needs_float() -> None:
    rng = np.random.default_rng(10)
    x = random_codes(rng, (1, 3), params(0.1, 3))

    ran = run_node("MatMul", {"x": x, "w": rng.standard_normal((3, 2)).astype(np.float32)}, {"y": OUT})

    assert [entry.why for entry in ran.report.float_nodes] == ["its input 'w' is not quantized"]
