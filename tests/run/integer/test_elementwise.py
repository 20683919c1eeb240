from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.quantizers import QuantParams, QuantSpec, Rounding
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from tests.run.integer import brute_force
from tests.run.integer.support import FIXED, S8, U8, Codes, params, random_codes, run_node

ROUNDINGS: tuple[Rounding, ...] = ("half_even", "half_up", "half_away", "floor")
OUT = (params(0.31, 117), U8)


def exact(codes: Codes) -> Array:
    """Values as fractions."""
    return np.asarray(codes.centred.astype(object) * Fraction(float(codes.params.scale)), dtype=object)


@st.composite
def operands(draw: st.DrawFn) -> tuple[Codes, Codes]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shapes = draw(
        st.sampled_from([((3, 4), (3, 4)), ((3, 4), (4,)), ((1, 4), (3, 1)), ((2, 3, 4), ()), ((), (5,))])
    )
    scales = draw(st.lists(st.floats(2**-7, 1.0, width=32), min_size=2, max_size=2))
    zeros = [draw(st.integers(0, 255)) for _ in range(2)]
    first, second = (
        random_codes(rng, shape, params(scale, zero))
        for shape, scale, zero in zip(shapes, scales, zeros, strict=True)
    )
    return first, second


@settings(deadline=None)
@given(operands(), st.sampled_from(["Add", "Sub", "Mul"]), st.sampled_from(ROUNDINGS))
def test_sums_and_products_are_rounded_once(pair: tuple[Codes, Codes], op_type: str, rounding: Rounding) -> None:
    a, b = pair
    ran = run_node(op_type, {"a": a, "b": b}, {"y": OUT}, arithmetic=Arithmetic(rounding=rounding))

    left, right = exact(a), exact(b)
    real = {"Add": left + right, "Sub": left - right, "Mul": left * right}[op_type]
    assert ran.is_integer
    assert np.array_equal(ran.codes, brute_force.requantized(np.asarray(real), 1, *OUT, rounding))


@settings(max_examples=40, deadline=None)
@given(operands(), st.sampled_from([1, -1]))
def test_fixed_point_sums_follow_the_reference_kernel(pair: tuple[Codes, Codes], sign: int) -> None:
    a, b = pair
    ran = run_node("Add" if sign > 0 else "Sub", {"a": a, "b": b}, {"y": OUT}, arithmetic=FIXED)

    left, right = np.broadcast_arrays(a.centred, sign * b.centred)
    scales = float(a.params.scale), float(b.params.scale), float(OUT[0].scale)
    steps = [brute_force.fixed_sum(int(x), int(y), scales) for x, y in zip(left.flat, right.flat, strict=True)]
    assert np.array_equal(ran.codes.ravel(), np.clip(np.array(steps) + 117, 0, 255))


def test_fixed_point_sums_have_the_precision_of_the_reference_kernel() -> None:
    # Halves, which a shift of another length than 20 places would round the other way.
    a, b = Codes(np.array([184]), params(6 / 16, 128)), Codes(np.array([44]), params(11 / 16, 128))

    ran = run_node("Add", {"a": a, "b": b}, {"y": (params(0.5), S8)}, arithmetic=FIXED)

    assert brute_force.fixed_sum(56, -84, (6 / 16, 11 / 16, 0.5)) == -73
    assert ran.codes.tolist() == [-73]


def test_fixed_point_products_follow_the_reference_kernel() -> None:
    rng = np.random.default_rng(0)
    a, b = (random_codes(rng, (200,), params(scale, zero)) for scale, zero in ((0.07, 3), (0.011, 200)))

    ran = run_node("Mul", {"a": a, "b": b}, {"y": OUT}, arithmetic=FIXED)

    factor = float(a.params.scale) * float(b.params.scale) / float(OUT[0].scale)
    steps = [brute_force.scaled_twice(int(value), factor) for value in a.centred * b.centred]
    assert np.array_equal(ran.codes, np.clip(np.array(steps) + 117, 0, 255))


def test_constants_that_are_not_quantized_are_parameters() -> None:
    rng = np.random.default_rng(1)
    x = random_codes(rng, (2, 6), params(0.125, 100))
    c = np.array([0.5, -1.5, 2.0, 4.0, -0.25, 1.0], np.float32)
    real = x.centred * 0.125
    for op_type, expected in (("Add", real + c), ("Sub", real - c), ("Mul", real * c), ("Div", real / c)):
        ran = run_node(op_type, {"x": x, "c": c}, {"y": (params(0.25, 128), U8)})
        assert ran.is_integer, op_type
        assert np.array_equal(ran.codes, np.clip(np.rint(expected / 0.25) + 128, 0, 255)), op_type


def test_division_by_what_is_not_constant_or_by_zero_runs_in_float() -> None:
    rng = np.random.default_rng(2)
    x = random_codes(rng, (4,), params(0.125, 100))
    for divisor, why in (
        (x, "it divides by a tensor that is not constant"),
        (np.zeros(4, np.float32), "it divides by zero"),
    ):
        ran = run_node("Div", {"x": x, "d": divisor}, {"y": OUT})
        assert [entry.why for entry in ran.report.float_nodes] == [why]


SIGNED = (params(0.25, 0), S8)


@pytest.mark.parametrize("arithmetic", [Arithmetic(), FIXED])
@pytest.mark.parametrize(
    ("op_type", "attributes", "function"),
    [
        ("Relu", {}, lambda x: np.maximum(x, 0)),
        ("LeakyRelu", {"alpha": 0.5}, lambda x: np.where(x < 0, x * 0.5, x)),
        ("LeakyRelu", {"alpha": -1.0}, lambda x: np.where(x < 0, -x, x)),
        ("Neg", {}, lambda x: -x),
        ("Abs", {}, np.abs),
        ("Identity", {}, lambda x: x),
    ],
)
def test_simple_activations(
    op_type: str, attributes: dict[str, Any], function: Any, arithmetic: Arithmetic
) -> None:
    # Powers of two: nothing is rounded, so every arithmetic agrees.
    x = Codes(np.arange(0, 256, 2), params(0.5, 128))

    ran = run_node(op_type, {"x": x}, {"y": SIGNED}, arithmetic=arithmetic, **attributes)

    assert ran.is_integer
    assert np.array_equal(ran.codes, np.clip(function(x.centred * 0.5) / 0.25, -128, 127))


def test_an_activation_with_the_scale_of_its_input_moves_codes() -> None:
    x = Codes(np.arange(256), params(0.37, 100))

    ran = run_node("Relu", {"x": x}, {"y": (x.params, U8)})

    assert np.array_equal(ran.codes, np.maximum(np.arange(256), 100))
    wider = run_node("Identity", {"x": x}, {"y": (x.params, QuantSpec(16, signed=True, symmetric=False))})
    assert (wider.codes.dtype.name, wider.codes.tolist()) == ("int16", x.codes.tolist())
    narrower = run_node("Identity", {"x": x}, {"y": (x.params, S8)})
    assert (narrower.codes.dtype.name, narrower.codes.tolist()) == ("int8", np.minimum(x.codes, 127).tolist())


@pytest.mark.parametrize("opset", [6, 13])
def test_clip_bounds_become_codes(opset: int) -> None:
    x = Codes(np.arange(256), params(0.1, 100))
    out = params(0.03, 20), U8
    bounds: dict[str, Any] = {"low": np.array(-0.5, np.float32), "high": np.array(6, np.float32)}
    if opset == 6:
        ran = run_node("Clip", {"x": x}, {"y": out}, opset=6, min=-0.5, max=6.0)
    else:
        ran = run_node("Clip", {"x": x, **bounds}, {"y": out}, opset=13)

    assert ran.is_integer
    steps = brute_force.requantized(x.centred, Fraction(float(x.params.scale)), *out)
    assert np.array_equal(ran.codes, np.clip(steps, 20 + round(-0.5 / 0.03), 20 + round(6 / 0.03)))
    assert ran.codes.max() == 220


def test_clip_without_a_bound_or_with_crossed_ones() -> None:
    x = Codes(np.arange(0, 256, 5), params(1, 100))
    same = {"y": (x.params, U8)}
    crossed = {"low": np.array(9, np.float32), "high": np.array(3, np.float32)}

    assert np.array_equal(run_node("Clip", {"x": x}, same).codes, x.codes)
    open_below = run_node("Clip", {"x": x, "low": None, "high": crossed["high"]}, same)
    assert np.array_equal(open_below.codes, np.minimum(x.codes, 103))
    assert set(run_node("Clip", {"x": x, **crossed}, same).codes.tolist()) == {103}


def test_each_channel_has_its_slope() -> None:
    rng = np.random.default_rng(3)
    x = random_codes(rng, (2, 3, 4), params(0.5, 128))
    slope = np.array([[0.5], [0.25], [-2.0]], np.float32)

    ran = run_node("PRelu", {"x": x, "slope": slope}, {"y": (params(0.125, 0), QuantSpec(16, True, True))})

    real = x.centred * 0.5
    assert ran.is_integer
    assert np.array_equal(ran.codes, np.where(real < 0, real * slope, real) / 0.125)


@pytest.mark.parametrize(("op_type", "choose"), [("Max", np.maximum), ("Min", np.minimum)])
def test_the_larger_or_smaller_of_several(op_type: str, choose: Any) -> None:
    rng = np.random.default_rng(4)
    a, b = (random_codes(rng, (50,), params(0.5, 128)) for _ in range(2))
    other = random_codes(rng, (50,), params(0.25, 7))

    same = run_node(op_type, {"a": a, "b": b}, {"y": (a.params, U8)})
    mixed = run_node(op_type, {"a": a, "b": b, "c": other}, {"y": (params(0.25, 0), QuantSpec(16, True, True))})

    assert np.array_equal(same.codes, choose(a.codes, b.codes))
    expected = choose(choose(a.centred * 0.5, b.centred * 0.5), other.centred * 0.25) / 0.25
    assert np.array_equal(mixed.codes, expected)


def test_sums_of_several_and_choices_by_a_condition() -> None:
    rng = np.random.default_rng(5)
    a, b, c = (random_codes(rng, (40,), params(scale, 128)) for scale in (0.5, 0.25, 1.0))
    out = {"y": (params(0.25, 0), QuantSpec(16, True, True))}
    chosen = rng.integers(0, 2, 40).astype(bool)

    total = run_node("Sum", {"a": a, "b": b, "c": c}, out)
    where = run_node("Where", {"condition": chosen, "a": a, "b": b}, out)

    assert np.array_equal(total.codes, (a.centred * 2 + b.centred + c.centred * 4))
    assert np.array_equal(where.codes, np.where(chosen, a.centred * 2, b.centred))


def test_batch_normalization_is_a_factor_and_an_offset() -> None:
    rng = np.random.default_rng(6)
    x = random_codes(rng, (2, 3, 5, 5), params(0.1, 90))
    gain, offset, mean, variance = (rng.uniform(0.5, 2, 3).astype(np.float32) for _ in range(4))

    ran = run_node(
        "BatchNormalization",
        {"x": x, "gain": gain, "offset": offset, "mean": mean, "variance": variance},
        {"y": OUT},
        epsilon=0.01,
    )

    by_channel = [each.astype(np.float64).reshape(3, 1, 1) for each in (gain, offset, mean, variance)]
    real = (
        (x.centred * float(x.params.scale) - by_channel[2])
        / np.sqrt(by_channel[3] + np.float32(0.01))
        * by_channel[0]
    )
    steps = (real + by_channel[1]) / float(OUT[0].scale)
    assert ran.is_integer
    assert np.array_equal(ran.codes, np.clip(np.rint(steps) + 117, 0, 255))


def test_an_input_with_a_scale_for_each_channel() -> None:
    rng = np.random.default_rng(7)
    each = QuantParams(np.array([0.5, 0.25], np.float32), np.array([100, 30]))
    x = random_codes(rng, (3, 2), each, U8.along(1))

    ran = run_node("Relu", {"x": x}, {"y": (params(0.25, 0), QuantSpec(16, True, True))})

    assert ran.is_integer
    assert np.array_equal(ran.codes, np.maximum(x.centred * np.array([2, 1]), 0))


def test_what_is_not_quantized_at_all_runs_in_float() -> None:
    x = Codes(np.arange(4), params(1))
    live = run_node("Add", {"x": x, "c": np.ones(4, np.float32)})

    assert live.is_integer
    assert live.values.tolist() == [1, 2, 3, 4]
