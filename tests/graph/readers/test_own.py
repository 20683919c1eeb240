"""Reading is the inverse of inserting."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from roundoff.core.quantizers import Quantizer, QuantSpec
from roundoff.graph.insertion import bake_quantizers, insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import S8, make_quantizer, mixed_net, mixed_quantizers
from tests.models import loaded, two_outputs, value, weight, wrapped


def facts(quantizer: Quantizer, spec: QuantSpec | None = None) -> tuple[Any, ...]:
    """Everything about a quantizer that can be compared."""
    return (
        quantizer.name,
        quantizer.tensor,
        quantizer.kind,
        quantizer.spec if spec is None else spec,
        quantizer.params.scale.tolist(),
        quantizer.params.zero_point.tolist(),
        quantizer.consumers,
        quantizer.output,
        quantizer.after,
    )


def graph_of(model: Model) -> list[tuple[Any, ...]]:
    return [(node.op_type, node.name, list(node.input), list(node.output)) for node in model.proto.graph.node]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return loaded(mixed_net(opset=21, ir_version=10), tmp_path_factory.mktemp("net"))


@st.composite
def specs(draw: st.DrawFn) -> QuantSpec:
    signed = draw(st.booleans())
    return QuantSpec(
        bits=draw(st.sampled_from([4, 6, 8, 12, 16])),
        signed=signed,
        symmetric=False,
        narrow=signed and draw(st.booleans()),
        rounding=draw(st.sampled_from(["half_even", "half_up", "half_away", "floor"])),
    )


def read_spec(spec: QuantSpec, zero_point: int) -> QuantSpec:
    """What a spec is read as: symmetric is what has its zero point in the middle."""
    neutral = 0 if spec.signed else 1 << (spec.bits - 1)
    return replace(spec, symmetric=zero_point == neutral)


@settings(max_examples=40, deadline=None)
@given(spec=specs(), exponent=st.integers(-12, 4), fraction=st.integers(1024, 2047), share=st.floats(0, 1))
def test_activation_quantizers_come_back(
    net: Model, spec: QuantSpec, exponent: int, fraction: int, share: float
) -> None:
    zero = round(spec.code_min + share * (spec.code_max - spec.code_min))
    scale = np.float32(fraction * 2.0**exponent / 1024)
    quantizers = [
        make_quantizer("image", spec, scale, ("first", 0), zero_point=zero, name="image"),
        make_quantizer("act", spec, scale, ("depthwise", 0), ("concat", 1), zero_point=zero, name="act"),
        make_quantizer("act", spec, scale * 2, ("add", 0), zero_point=zero, name="act for add", after="act"),
        make_quantizer("logits", spec, scale, zero_point=zero, name="logits", output=True),
    ]
    for put in (insert_quantizers, bake_quantizers):
        read = read_quantized(put(net, quantizers))
        # Bits that no element type has are told by the Clip in front.
        expected = [facts(each, read_spec(spec, zero)) for each in quantizers]
        assert sorted(facts(each) for each in read.quantizers) == sorted(expected)
        assert graph_of(read.float_model) == graph_of(net)


@settings(deadline=None)
@given(codes=st.sampled_from(["u8", "s8", "u16", "s16", "u4", "s4"]), sliced=st.booleans())
def test_a_whole_model_comes_back(net: Model, codes: str, sliced: bool) -> None:
    activation = QuantSpec(int(codes[1:]), codes[0] == "s", symmetric=False)
    quantizers = mixed_quantizers(activation=activation)
    if not sliced:
        quantizers = tuple(each for each in quantizers if each.spec.axis is None)
    read = read_quantized(insert_quantizers(net, quantizers))

    found = {each.name: each for each in read.quantizers}
    assert set(found) == {each.name for each in quantizers}
    for quantizer in quantizers:
        same = replace(found[quantizer.name], tensor=quantizer.tensor) if quantizer.kind == "bias" else None
        spec = replace(quantizer.spec, symmetric=found[quantizer.name].spec.symmetric)
        assert facts(same or found[quantizer.name]) == facts(quantizer, spec)
    kept = {tensor.name: tensor.raw_data for tensor in net.proto.graph.initializer}
    weights = {tensor.name: tensor.raw_data for tensor in read.float_model.proto.graph.initializer}
    assert {name: kept[name] for name in ("w1", "w2", "w3")} == {
        name: weights[name] for name in ("w1", "w2", "w3")
    }


def test_codes_of_a_learned_rounding_come_back(net: Model) -> None:
    codes = np.full((4, 3, 3, 3), 5, np.int8)
    learned = make_quantizer("w1", S8, 0.25, ("first", 1), kind="weight", codes=codes, name="w1")
    read = read_quantized(insert_quantizers(net, [learned]))
    (found,) = read.quantizers
    assert (found.name, found.kind, found.consumers) == ("w1", "weight", learned.consumers)
    again = read_quantized(insert_quantizers(net, [learned]), float_model=net)
    (moved,) = again.quantizers
    assert moved.codes is not None
    np.testing.assert_array_equal(moved.codes, codes)
    assert moved.tensor == "w1"


def test_a_tensor_that_is_never_negative_gets_no_relu(net: Model) -> None:
    starts_at_zero = make_quantizer("deep", QuantSpec(8, signed=False, symmetric=False), 0.1, ("add", 1))
    read = read_quantized(insert_quantizers(net, [starts_at_zero]))
    assert graph_of(read.float_model) == graph_of(net)


def test_a_model_without_quantizers_comes_back(tmp_path: Path) -> None:
    model = loaded(two_outputs(), tmp_path)
    read = read_quantized(insert_quantizers(model, []))
    assert (read.quantizers, graph_of(read.float_model)) == ((), graph_of(model))


def test_a_constant_that_is_handed_on_as_an_output_is_written_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="relu"),
        helper.make_node("Identity", ["held"], ["z"], name="copy"),
    ]
    model = loaded(wrapped(nodes, [value("x", (2, 3))], [value("y"), value("z")], [weight("held", 3)]), tmp_path)
    read = read_quantized(insert_quantizers(model, [make_quantizer("x", S8, 0.1, ("relu", 0))]))
    assert graph_of(read.float_model) == graph_of(model)
