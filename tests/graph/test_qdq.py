"""The operators of one quantizer give the codes of `roundoff.core.quantizers`, ties and ends included."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper

from roundoff.core.quantizers import QuantSpec, fake_quantize
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.qdq import MICROSOFT, code_element, operator_domain
from tests.graph.quantized_nets import S8, U8, make_quantizer, run_model
from tests.models import single_node, value

_JUST_BELOW_HALF = float(np.nextafter(np.float32(0.5), np.float32(0)))
_SPECS = st.builds(
    QuantSpec,
    bits=st.sampled_from([2, 4, 5, 8, 12, 16]),
    signed=st.booleans(),
    symmetric=st.just(False),
    narrow=st.booleans(),
    rounding=st.sampled_from(["half_even", "half_up", "half_away", "floor"]),
)
_STEPS = st.one_of(
    st.integers(-70000, 70000).map(lambda half: half / 2),
    st.floats(-300, 300, width=32),
    st.sampled_from(
        [_JUST_BELOW_HALF, -_JUST_BELOW_HALF, 1e-30, -1e-30, 1e30, -1e30, float("inf"), -float("inf")]
    ),
)


def _through(spec: QuantSpec, x: Array, scale: Any, zero_point: Any, opset: int, rank: int | None = 1) -> Array:
    """What a node behind the quantizer of x sees."""
    shape = x.shape if rank else None
    proto = single_node(
        helper.make_node("Identity", ["x"], ["y"], name="n"), [value("x", shape)], opset=opset, ir_version=10
    )
    quantizer = make_quantizer("x", spec, scale, ("n", 0), zero_point=zero_point)
    return run_model(insert_quantizers(Model(proto, Path("net.onnx"), 0), [quantizer]), {"x": x})[0]


@settings(max_examples=150, deadline=None)
@given(
    spec=_SPECS,
    steps=st.lists(_STEPS, min_size=1, max_size=9),
    scale=st.sampled_from([1.0, 0.25, 0.1, 3e-5, 7.3, 1e-36]),
    zero=st.floats(0, 1),
    opset=st.sampled_from([9, 10, 13, 21]),
)
@example(replace(S8, rounding="half_away"), [-_JUST_BELOW_HALF, -0.5, 0.5], 1.0, 0.5, 13)
@example(replace(S8, rounding="half_up"), [-_JUST_BELOW_HALF, _JUST_BELOW_HALF, -1e-30, -1.5], 1.0, 0.5, 13)
def test_values_become_those_of_their_codes(
    spec: QuantSpec, steps: list[float], scale: float, zero: float, opset: int
) -> None:
    with np.errstate(over="ignore"):
        x = (np.array(steps, np.float64) * scale).astype(np.float32)
    zero_point = spec.code_min + round(zero * (spec.code_max - spec.code_min))
    quantizer = make_quantizer("x", spec, scale, zero_point=zero_point)
    expected = fake_quantize(x, quantizer.params, spec)
    np.testing.assert_array_equal(_through(spec, x, scale, zero_point, opset), expected)


@pytest.mark.parametrize("rounding", ["half_even", "half_up", "half_away", "floor"])
@pytest.mark.parametrize("bits", [4, 6, 8, 16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_scale_per_slice(bits: int, rounding: Any, axis: int) -> None:
    spec = QuantSpec(bits, signed=True, symmetric=False, axis=axis, narrow=True, rounding=rounding)
    x = np.random.default_rng(bits).standard_normal((3, 3, 3)).astype(np.float32) * 2 ** (bits - 2)
    scale, zero_point = np.array([0.5, 0.3, 1.7]), np.array([0, -3, 2])
    quantizer = make_quantizer("x", spec, scale, zero_point=zero_point)
    for opset in (9, 12, 13, 21):
        got = _through(spec, x, scale, zero_point, opset)
        np.testing.assert_array_equal(got, fake_quantize(x, quantizer.params, spec))


def test_which_operators_are_used() -> None:
    s16, s4 = QuantSpec(16, signed=True, symmetric=True), QuantSpec(4, signed=True, symmetric=True)
    s32 = QuantSpec(32, signed=True, symmetric=True)
    standard = [
        (spec.dtype, per_axis, [operator_domain(spec, opset, per_axis=per_axis) for opset in range(30)].index(""))
        for spec in (U8, s16, s4, s32)
        for per_axis in (False, True)
    ]
    assert standard == [
        ("u8", False, 10), ("u8", True, 13), ("s16", False, 21), ("s16", True, 21),
        ("s4", False, 21), ("s4", True, 21), ("s32", False, 10), ("s32", True, 13),
    ]  # fmt: skip
    assert operator_domain(s16, 17, per_axis=False) == MICROSOFT


def test_codes_are_stored_in_the_smallest_type() -> None:
    kinds = {
        bits: code_element(QuantSpec(bits, signed=True, symmetric=True)).dtype for bits in (2, 4, 5, 8, 9, 32)
    }
    assert kinds == {2: "int4", 4: "int4", 5: "int8", 8: "int8", 9: "int16", 32: "int32"}


def test_the_domain_is_declared_once() -> None:
    proto = single_node(helper.make_node("Identity", ["x"], ["y"], name="n"), [value("x", (2,))])
    spec = QuantSpec(16, signed=False, symmetric=False)
    quantizers = [
        make_quantizer("x", spec, 1.0, ("n", 0), name="a"),
        make_quantizer("y", spec, 1.0, output=True, name="b"),
    ]
    inserted = insert_quantizers(Model(proto, Path("net.onnx"), 0), quantizers).proto
    assert [(each.domain, each.version) for each in inserted.opset_import] == [("", 17), (MICROSOFT, 1)]


def test_what_an_old_opset_lacks_is_said() -> None:
    away = replace(S8, rounding="half_away")
    with pytest.raises(BadInput, match="needs Sign of opset 9; the model has opset 8"):
        _through(away, np.zeros(2, np.float32), 1.0, 0, opset=8)
    per_slice = replace(S8, narrow=True, axis=0)
    with pytest.raises(BadInput, match="needs Max of opset 8"):
        _through(per_slice, np.zeros(2, np.float32), [1.0, 2.0], [0, 0], opset=7)
    with pytest.raises(BadInput, match="slice of 'x', whose rank is unknown"):
        _through(per_slice, np.zeros(2, np.float32), [1.0, 2.0], [0, 0], opset=17, rank=None)


def test_names_that_are_taken_are_not_used_again() -> None:
    nodes = helper.make_node("Identity", ["x"], ["x_q_dequantized"], name="x_q_QuantizeLinear")
    model = Model(single_node(nodes, [value("x", (2,))]), Path("net.onnx"), 0)
    inserted = insert_quantizers(model, [make_quantizer("x", U8, 1.0, ("x_q_QuantizeLinear", 0))])
    graph = inserted.proto.graph
    assert [node.name for node in graph.node] == [
        "x_q_QuantizeLinear_2",
        "x_q_DequantizeLinear",
        "x_q_QuantizeLinear",
    ]
    assert graph.node[1].output[0] == "x_q_dequantized_2"
    np.testing.assert_array_equal(run_model(inserted, {"x": np.array([0.4, 1.6], np.float32)})[0], [0, 2])
