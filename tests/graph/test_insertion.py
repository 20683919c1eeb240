"""Models with quantizers, as float weights or as codes, against numpy and against each other."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import (
    Consumer,
    Quantizer,
    QuantSpec,
    dequantize,
    fake_quantize,
    parameters_from_range,
)
from roundoff.errors import BadInput
from roundoff.graph.insertion import bake_quantizers, insert_quantizers, switch_on
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.weights import Weights
from tests.graph.quantized_nets import (
    S8,
    U8,
    evaluate,
    make_quantizer,
    mixed_net,
    mixed_quantizers,
    run_model,
    weight_values,
)
from tests.models import single_node, value, weight, with_if, wrapped
from tests.real_models import real_models

_IMAGES = np.random.default_rng(0).standard_normal((8, 1, 3, 4, 4)).astype(np.float32) * 3


def _in_memory(proto: Any) -> Model:
    for index, node in enumerate(proto.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    return Model(proto, Path("net.onnx"), 0)


def _both(model: Model, quantizers: Sequence[Quantizer]) -> tuple[Model, Model]:
    return insert_quantizers(model, quantizers), bake_quantizers(model, quantizers)


_ACTIVATIONS = st.sampled_from(
    [
        U8,
        S8,
        QuantSpec(8, signed=True, symmetric=False),
        QuantSpec(4, signed=False, symmetric=False),
        QuantSpec(8, signed=True, symmetric=True, narrow=True),
        QuantSpec(6, signed=True, symmetric=False),
    ]
)
_WEIGHTS = st.sampled_from([S8, QuantSpec(4, signed=True, symmetric=True), replace(S8, narrow=True)])


_OPSETS = st.sampled_from([11, 13, 17, 21])


@settings(max_examples=40, deadline=None)
@given(activation=_ACTIVATIONS, weights=_WEIGHTS, image=st.integers(0, 7), opset=_OPSETS)
def test_outputs_are_those_of_numpy(activation: QuantSpec, weights: QuantSpec, image: int, opset: int) -> None:
    model = _in_memory(mixed_net(opset, 10))
    quantizers = mixed_quantizers(activation, weights)
    expected = evaluate(weight_values(model.proto), _IMAGES[image], quantizers).astype(np.float32)
    for quantized in _both(model, quantizers):
        np.testing.assert_array_equal(run_model(quantized, {"image": _IMAGES[image]})[0], expected)


@settings(max_examples=40, deadline=None)
@given(weights=_WEIGHTS, on=st.sets(st.integers(0, 12)), image=st.integers(0, 7), opset=_OPSETS)
def test_codes_and_float_weights_give_the_same_bits(
    weights: QuantSpec, on: set[int], image: int, opset: int
) -> None:
    model = _in_memory(mixed_net(opset, 10))
    every = mixed_quantizers(weights=weights)
    chosen = [every[index] for index in sorted(on)]
    inserted, baked = (run_model(each, {"image": _IMAGES[image]})[0] for each in _both(model, chosen))
    np.testing.assert_array_equal(inserted, baked)


def test_scales_as_calibration_finds_them() -> None:
    """No longer powers of two: sums round, so outputs may be off where a value falls between two codes."""
    model = _in_memory(mixed_net())
    rng = np.random.default_rng(1)
    quantizers = tuple(
        replace(each, params=replace(each.params, scale=each.params.scale * np.float32(rng.uniform(0.8, 1.2))))
        for each in mixed_quantizers()
    )
    step = float(quantizers[-1].params.scale)
    for image in _IMAGES:
        expected = evaluate(weight_values(model.proto), image, quantizers)
        for quantized in _both(model, quantizers):
            difference = run_model(quantized, {"image": image})[0] - expected
            np.testing.assert_allclose(difference, 0, atol=2.1 * step)
            assert np.median(np.abs(difference)) < step / 100


def test_no_quantizers_is_the_float_model() -> None:
    model = _in_memory(mixed_net())
    before = model.proto.SerializeToString()
    for same in _both(model, ()):
        np.testing.assert_array_equal(
            run_model(same, {"image": _IMAGES[0]})[0], run_model(model, {"image": _IMAGES[0]})[0]
        )
    assert model.proto.SerializeToString() == before


def test_the_result_is_the_same_every_time_and_valid() -> None:
    model = _in_memory(mixed_net())
    before = model.proto.SerializeToString()
    for build in (insert_quantizers, bake_quantizers):
        first, second = build(model, mixed_quantizers()).proto, build(model, mixed_quantizers()).proto
        assert first.SerializeToString() == second.SerializeToString()
        onnx.checker.check_model(first, full_check=True)
        assert [each.name for each in first.graph.input] == ["image"]
        assert [each.name for each in first.graph.output] == ["logits"]
    assert model.proto.SerializeToString() == before


def test_nodes_are_named_after_their_quantizer() -> None:
    nodes = insert_quantizers(_in_memory(mixed_net()), mixed_quantizers()).proto.graph.node
    around = [node.name for node in nodes]
    first = around.index("first")
    assert around[:2] == ["image_q_QuantizeLinear", "image_q_DequantizeLinear"]
    assert around[2:first] == ["w1_q_QuantizeLinear", "w1_q_DequantizeLinear", "b1_q_DequantizeLinear"]
    assert around[around.index("relu") + 1] == "act_q_QuantizeLinear"


def test_a_baked_model_holds_integers_only() -> None:
    model = _in_memory(mixed_net())
    held = {tensor.name: tensor for tensor in bake_quantizers(model, mixed_quantizers()).proto.graph.initializer}
    kinds = {name: tensor.data_type for name, tensor in held.items() if name.endswith("_codes")}
    assert kinds == {
        f"{kind}{index}_codes": TensorProto.INT8 if kind == "w" else TensorProto.INT32
        for index in (1, 2, 3)
        for kind in "wb"
    }
    assert not {"w1", "w2", "w3", "b1", "b2", "b3"} & set(held)
    kept = insert_quantizers(model, mixed_quantizers()).proto.graph.initializer
    originals = weight_values(model.proto)
    floats = {tensor.name: numpy_helper.to_array(tensor) for tensor in kept if tensor.name in originals}
    assert set(floats) == {"w1", "w2", "w3"}
    for name, array in floats.items():
        np.testing.assert_array_equal(array, originals[name])


def test_only_the_consumers_of_a_quantizer_see_it() -> None:
    """A tensor with two quantizers for two of its three readers, one of them on top of the other."""
    nodes = [helper.make_node("Neg", ["x"], [name], name=name) for name in ("a", "b", "c")]
    model = _in_memory(wrapped(nodes, [value("x", (3,))], [value(name, (3,)) for name in "abc"]))
    coarse = make_quantizer("x", U8, 0.5, ("a", 0), name="coarse")
    coarser = make_quantizer("x", S8, 0.75, ("b", 0), name="coarser", after="coarse")
    x = np.array([0.3, 0.8, 1.1], np.float32)
    once = fake_quantize(x, coarse.params, coarse.spec)
    twice = fake_quantize(once, coarser.params, coarser.spec)
    got = run_model(insert_quantizers(model, [coarser, coarse]), {"x": x})
    np.testing.assert_array_equal(got, [-once, -twice, -x])
    # The first one switched off: the second one then sees the float values.
    alone = run_model(insert_quantizers(model, [coarser]), {"x": x})
    np.testing.assert_array_equal(alone, [-x, -fake_quantize(x, coarser.params, coarser.spec), -x])


def test_the_last_of_several_in_a_row_counts() -> None:
    model = _in_memory(single_node(helper.make_node("Neg", ["x"], ["y"], name="n"), [value("x", (2,))]))
    first = make_quantizer("x", U8, 0.5, ("n", 0), name="first")
    second = make_quantizer("x", U8, 1.0, ("n", 0), name="second", after="first")
    x = np.array([0.8, 2.3], np.float32)
    for order in ([first, second], [second, first]):
        np.testing.assert_array_equal(run_model(insert_quantizers(model, order), {"x": x})[0], [-1, -2])


def _shared_weight() -> Model:
    nodes = [helper.make_node("MatMul", ["x", "w"], [name], name=name) for name in ("a", "b", "c")]
    return _in_memory(wrapped(nodes, [value("x", (1, 3))], [value(name) for name in "abc"], [weight("w", 3, 2)]))


def test_one_weight_with_a_quantizer_for_each_consumer() -> None:
    model = _shared_weight()
    fine = make_quantizer("w", S8, 0.01, ("a", 1), kind="weight", name="fine")
    coarse = make_quantizer("w", S8, 0.2, ("b", 1), kind="weight", name="coarse")
    again = make_quantizer("w", S8, 0.3, ("c", 1), kind="weight", name="again", after="coarse")
    values, x = weight_values(model.proto)["w"], np.eye(3, dtype=np.float32)[:1]
    expected = [x @ fake_quantize(values, each.params, each.spec) for each in (fine, coarse)]
    twice = fake_quantize(fake_quantize(values, coarse.params, coarse.spec), again.params, again.spec)
    for quantized in _both(model, [fine, coarse, again]):
        np.testing.assert_array_equal(run_model(quantized, {"x": x}), [*expected, x @ twice])
    partly = bake_quantizers(model, [fine])
    np.testing.assert_array_equal(run_model(partly, {"x": x}), [expected[0], x @ values, x @ values])


@pytest.mark.parametrize("rounding", ["half_up", "half_away", "floor"])
def test_weights_that_operators_cannot_round_are_kept_as_codes(rounding: Any) -> None:
    model = _shared_weight()
    spec = replace(S8, rounding=rounding)
    quantizer = make_quantizer("w", spec, 0.07, ("a", 1), kind="weight")
    expected = fake_quantize(weight_values(model.proto)["w"], quantizer.params, spec)
    inserted, baked = _both(model, [quantizer])
    x = np.array([[0, 1, 0]], np.float32)
    np.testing.assert_array_equal(run_model(inserted, {"x": x})[0], expected[1:2])
    np.testing.assert_array_equal(run_model(baked, {"x": x})[0], expected[1:2])
    assert "QuantizeLinear" not in {node.op_type for node in inserted.proto.graph.node}


def test_codes_that_were_learned_are_used_as_they_are() -> None:
    model = _shared_weight()
    codes = np.array([[1, 2], [-3, 4], [5, -128]], np.int8)
    quantizer = make_quantizer("w", S8, 0.5, ("a", 1), kind="weight", codes=codes)
    x = np.array([[1, 10, 100]], np.float32)
    for quantized in _both(model, [quantizer]):
        np.testing.assert_array_equal(run_model(quantized, {"x": x})[0], x @ dequantize(codes, quantizer.params))
    with pytest.raises(BadInput, match=r"shape \(2, 3\), its tensor has \(3, 2\)"):
        bake_quantizers(model, [replace(quantizer, codes=codes.T)])
    with pytest.raises(BadInput, match="has codes of its own, but 'x' is computed"):
        bake_quantizers(model, [make_quantizer("x", S8, 0.5, ("a", 0), codes=codes)])


def test_unused_codes_are_only_cut_off_where_there_are_some() -> None:
    """A weight that never reaches the lowest code needs no nodes that keep it from there."""
    narrow = replace(S8, narrow=True)
    model = _shared_weight()
    wide = np.abs(weight_values(model.proto)["w"]).max() / 127
    needless = make_quantizer("w", narrow, wide, ("a", 1), kind="weight")
    assert [node.op_type for node in insert_quantizers(model, [needless]).proto.graph.node[:2]] == [
        "QuantizeLinear",
        "DequantizeLinear",
    ]
    needed = make_quantizer(
        "w", narrow.along(1), [wide / 9, wide / 2], ("a", 1), kind="weight", zero_point=[-3, 4]
    )
    x = np.array([[0, 0, 1]], np.float32)
    expected = fake_quantize(weight_values(model.proto)["w"], needed.params, needed.spec)[2:]
    for quantized in _both(model, [needed]):
        np.testing.assert_array_equal(run_model(quantized, {"x": x})[0], expected)


def test_an_output_that_is_also_read_inside() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["y"], name="n"),
        helper.make_node("Abs", ["y"], ["z"], name="abs"),
        helper.make_node("Exp", ["y"], ["e"], name="exp"),
    ]
    model = _in_memory(wrapped(nodes, [value("x", (2,))], [value(name, (2,)) for name in ("y", "z", "e")]))
    quantizer = make_quantizer("y", S8, 0.5, ("abs", 0), output=True)
    x = np.array([0.7, -1.2], np.float32)
    seen = fake_quantize(-x, quantizer.params, S8)
    y, z, e = run_model(insert_quantizers(model, [quantizer]), {"x": x})
    np.testing.assert_array_equal(y, seen)
    np.testing.assert_array_equal(z, np.abs(seen))
    np.testing.assert_allclose(e, np.exp(-x), rtol=1e-6)


def test_branches_keep_seeing_float_values() -> None:
    """What a subgraph reads from outside stays what it was, also where the outside renames it."""
    proto = with_if()
    proto.graph.output.append(value("scaled"))
    model = _in_memory(proto)
    x = np.array([[0.3, 0.4, 0.55]], np.float32)
    quantized = insert_quantizers(model, [make_quantizer("scaled", S8, 0.5, output=True)])
    y, scaled = run_model(quantized, {"x": x})
    np.testing.assert_array_equal(y, run_model(model, {"x": x})[0])
    np.testing.assert_array_equal(scaled, [[0.5, 1, 1]])
    with pytest.raises(BadInput, match="'scaled' only in a subgraph"):
        insert_quantizers(model, [make_quantizer("scaled", S8, 0.5, ("choose", 1))])


def test_constant_nodes_constant_outputs_and_scalars() -> None:
    held = numpy_helper.from_array(np.array([0.4, -0.9], np.float32), "")
    nodes = [
        helper.make_node("Constant", [], ["c"], name="constant", value=held),
        helper.make_node("Mul", ["x", "c"], ["scaled"], name="mul"),
        helper.make_node("Add", ["scaled", "s"], ["y"], name="add"),
    ]
    scalar = numpy_helper.from_array(np.float32(0.3), "s")
    proto = wrapped(nodes, [value("x", (2,))], [value("y", (2,)), value("c", (2,)), value("s", ())], [scalar])
    model = _in_memory(proto)
    quantizers = [
        make_quantizer("c", S8, 0.5, ("mul", 1), kind="weight", output=True),
        make_quantizer("s", U8, 0.25, ("add", 1), kind="weight", output=True),
    ]
    for quantized in _both(model, quantizers):
        y, c, s = run_model(quantized, {"x": np.array([1, 2], np.float32)})
        np.testing.assert_array_equal(y, [0.75, -1.75])
        np.testing.assert_array_equal(c, [0.5, -1])
        assert s == 0.25
        assert s.shape == ()
    baked = bake_quantizers(model, quantizers).proto.graph
    assert "Constant" not in {node.op_type for node in baked.node}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types_are_cast_there_and_back(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    matrix = numpy_helper.from_array(np.array([[0.33], [1.2]], dtype), "w")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="m"),
    ]
    model = _in_memory(wrapped(nodes, [value("x", (1, 2), kind)], [value("y", (1, 1), kind)], [matrix]))
    quantizers = [
        make_quantizer("r", U8, 0.5, ("m", 0)),
        make_quantizer("w", S8, 0.25, ("m", 1), kind="weight"),
        make_quantizer("y", U8, 0.125, output=True),
    ]
    for quantized in _both(model, quantizers):
        (y,) = run_model(quantized, {"x": np.array([[1.1, 2.2]], dtype)})
        assert y.dtype == dtype
        assert y == 1 * 0.25 + 2 * 1.25


@pytest.mark.parametrize(("opset", "ir_version"), [(7, 3), (9, 4), (10, 5), (12, 7), (22, 10)])
def test_all_versions_run(opset: int, ir_version: int) -> None:
    proto = mixed_net(opset, ir_version)
    if ir_version == 3:
        proto.graph.input.extend(value(each.name, each.dims) for each in proto.graph.initializer)
    model = _in_memory(proto)
    quantizers = mixed_quantizers(weights=QuantSpec(4, signed=True, symmetric=True))
    expected = evaluate(weight_values(proto), _IMAGES[0], quantizers)
    for quantized in _both(model, quantizers):
        np.testing.assert_array_equal(run_model(quantized, {"image": _IMAGES[0]})[0], expected)
        onnx.checker.check_model(quantized.proto)
        held = {tensor.name for tensor in quantized.proto.graph.initializer}
        assert {each.name for each in quantized.proto.graph.input} - held == {"image"}


def test_weights_outside_the_file_stay_there(tmp_path: Path) -> None:
    proto = mixed_net()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    model = load_model(tmp_path / "m.onnx")
    quantizers = mixed_quantizers()
    image = {"image": _IMAGES[0]}
    expected = evaluate(weight_values(mixed_net()), _IMAGES[0], quantizers)
    inserted, baked = _both(model, quantizers)
    outside = [t.name for t in inserted.proto.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert outside == ["w1", "w2", "w3"]
    assert all(t.data_location != TensorProto.EXTERNAL for t in baked.proto.graph.initializer)
    for quantized in (inserted, baked):
        np.testing.assert_array_equal(run_model(quantized, image)[0], expected)


def _one_relu() -> Model:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="relu"),
        helper.make_node("Identity", ["x"], ["z"], name="same"),
    ]
    return _in_memory(wrapped(nodes, [value("x", (2,))], [value("y", (2,)), value("z", (2,)), value("x", (2,))]))


_ON_X = make_quantizer("x", U8, 1.0, ("relu", 0), name="a")


@pytest.mark.parametrize(
    ("quantizers", "message"),
    [
        ([replace(_ON_X, tensor="w")], "on 'w', which net.onnx does not have"),
        ([replace(_ON_X, consumers=(Consumer("rely", 0),))], "feeds node 'rely'.*\n.*did you mean 'relu'"),
        (
            [replace(_ON_X, consumers=(Consumer("relu", 1),))],
            "input 1 of node 'relu' .Relu., but that does not read",
        ),
        ([replace(_ON_X, tensor="y")], "does not read 'y'"),
        ([_ON_X, _ON_X], "Two quantizers are called 'a'"),
        ([_ON_X, replace(_ON_X, name="b")], "Input 0 of node 'relu' is to read both 'a' and 'b'"),
        ([replace(_ON_X, output=True)], "'x' is an input and an output at once"),
        (
            [make_quantizer("y", U8, 1.0, output=True, name=n) for n in "ab"],
            "'a' and 'b' are both on the output 'y'",
        ),
        ([replace(_ON_X, after="a")], "'a' follows itself"),
        ([_ON_X, make_quantizer("y", U8, 1.0, output=True, after="a")], "follows 'a', which quantizes another"),
        ([replace(_ON_X, spec=QuantSpec(32, signed=True, symmetric=True))], "codes of 32 bits"),
        ([replace(_ON_X, spec=QuantSpec(40, signed=True, symmetric=True))], "codes of 40 bits"),
    ],
)
def test_quantizers_that_do_not_fit_are_refused(quantizers: list[Quantizer], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        insert_quantizers(_one_relu(), quantizers)


def test_an_output_the_model_does_not_have() -> None:
    model = _in_memory(mixed_net())
    with pytest.raises(BadInput, match="is on the output 'act', which the model does not have"):
        insert_quantizers(model, [make_quantizer("act", U8, 1.0, output=True)])


def test_numbers_that_are_not_floats_are_refused() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="g")
    indices = numpy_helper.from_array(np.array([0]), "i")
    model = _in_memory(single_node(node, [value("x", (2,))], [indices]))
    with pytest.raises(BadInput, match=r"'i' of net\.onnx is int64; only floats"):
        insert_quantizers(model, [make_quantizer("i", U8, 1.0, ("g", 1), kind="weight")])


def test_the_form_that_runs_depends_on_the_size_of_the_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _in_memory(mixed_net())
    expected = run_model(bake_quantizers(model, mixed_quantizers()), {"image": _IMAGES[0]})[0]
    for limit, holds_codes in ((10**9, True), (100, False)):
        monkeypatch.setattr("roundoff.graph.insertion.LARGEST_MESSAGE_BYTES", limit)
        chosen = switch_on(model, mixed_quantizers())
        assert ("w1_codes" in {tensor.name for tensor in chosen.proto.graph.initializer}) == holds_codes
        np.testing.assert_array_equal(run_model(chosen, {"image": _IMAGES[0]})[0], expected)
    monkeypatch.setattr("roundoff.graph.save.LARGEST_MESSAGE_BYTES", 100)
    with pytest.raises(BadInput, match="take 236 bytes as codes, too many to run from memory"):
        bake_quantizers(model, mixed_quantizers())


def _weight_quantizers(model: Model) -> list[Quantizer]:
    """One scale per output channel for the weights of all Conv and Gemm, one for what goes into them."""
    held = Weights(model)
    quantizers: dict[str, Quantizer] = {}
    for node in model.proto.graph.node:
        if node.op_type not in ("Conv", "Gemm") or node.input[1] not in held:
            continue
        values = held[node.input[1]]
        axes = tuple(range(1, values.ndim))
        spec = S8.along(0)
        params = parameters_from_range(values.min(axis=axes), values.max(axis=axes), spec)
        consumer = Consumer(node.name, 1)
        quantizers[node.name] = Quantizer(node.name, node.input[1], "weight", spec, params, (consumer,))
        source = f"{node.input[0]} of {node.name}"
        quantizers[source] = make_quantizer(node.input[0], U8, 0.0625, (node.name, 0), zero_point=64, name=source)
    return list(quantizers.values())


@pytest.mark.parametrize("path", real_models())
def test_real_models_give_the_same_bits_in_both_forms(path: Path) -> None:
    model = load_model(path)
    if any(node.op_type == "DequantizeLinear" for node in model.proto.graph.node):
        pytest.skip("quantized already")
    quantizers = _weight_quantizers(model)
    rng = np.random.default_rng(0)
    feed = {
        spec.name: rng.uniform(-1, 1, [n if isinstance(n, int) else 1 for n in spec.shape or ()]).astype(
            spec.dtype
        )
        for spec in inputs(model)
    }
    inserted, baked = (run_model(each, feed) for each in _both(model, quantizers))
    for left, right in zip(inserted, baked, strict=True):
        np.testing.assert_array_equal(left, right)
