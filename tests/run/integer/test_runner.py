from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import (
    Consumer,
    Kind,
    Quantizer,
    QuantParams,
    QuantSpec,
    dequantize,
    fake_quantize,
    parameters_from_range,
    quantize,
)
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model, name_nodes
from roundoff.graph.subgraph import tap
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.integer.results import AccumulatorOverflow, IntegerReport
from roundoff.run.session import open_session
from tests.models import conv_net, random_feed, residual, value, weight, with_if, with_sequence, wrapped
from tests.quantized import quantized_simply
from tests.run.integer.support import S8, S32, U8, in_memory, params


def on(
    tensor: str,
    spec: QuantSpec,
    parameters: QuantParams,
    *consumers: tuple[str, int],
    kind: Kind = "activation",
    **more: Any,
) -> Quantizer:
    more.setdefault("name", f"q:{tensor}")
    edges = tuple(Consumer(*edge) for edge in consumers)
    return Quantizer(tensor=tensor, kind=kind, spec=spec, params=parameters, consumers=edges, **more)


def float_values(model: Model, feed: Mapping[str, Array]) -> dict[str, Array]:
    names = [name for node in model.proto.graph.node for name in node.output]
    return {**feed, **dict(zip(names, open_session(model, outputs=tap(model, names)).run(feed), strict=True))}


def mixed_net() -> Model:
    """Convolutions, a residual sum, pooling, a Concat, a Clip and a classifier with bias."""
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "depthwise", pads=[1] * 4, group=8),
        helper.make_node("Clip", ["c2", "zero", "six"], ["r2"], "relu6"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], "conv3"),
        helper.make_node("Add", ["c3", "r1"], ["sum"], "add"),
        helper.make_node("MaxPool", ["sum"], ["small"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["small"], ["gate"], "gate"),
        helper.make_node("Mul", ["small", "gate"], ["gated"], "mul"),
        helper.make_node("Concat", ["small", "gated"], ["both"], "concat", axis=1),
        helper.make_node("GlobalAveragePool", ["both"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w4", "b4"], ["logits"], "classifier"),
    ]
    weights = [
        weight("w1", 8, 3, 3, 3, seed=1),
        weight("b1", 8, seed=2),
        weight("w2", 8, 1, 3, 3, seed=3),
        weight("w3", 8, 8, 1, 1, seed=4),
        weight("b3", 8, seed=5),
        weight("w4", 16, 10, seed=6),
        weight("b4", 10, seed=7),
        numpy_helper.from_array(np.float32(0), "zero"),
        numpy_helper.from_array(np.float32(6), "six"),
    ]
    return in_memory(wrapped(nodes, [value("image", (1, 3, 24, 24))], [value("logits")], weights))


def with_biases(model: Model, quantizers: Sequence[Quantizer]) -> tuple[Quantizer, ...]:
    """Biases as integers at the product of the scales of input and weight."""
    by_edge = {edge: each for each in quantizers for edge in each.consumers}
    added = []
    for node in model.proto.graph.node:
        if node.op_type in ("Conv", "Gemm") and len(node.input) > 2:
            x, w = by_edge[Consumer(node.name, 0)], by_edge[Consumer(node.name, 1)]
            scale = (x.params.scale * w.params.scale).astype(np.float32)
            parameters = QuantParams(scale, np.zeros(scale.shape, np.int64))
            spec = S32.along(0 if scale.ndim else None)
            added.append(on(node.input[2], spec, parameters, (node.name, 2), kind="bias"))
    return (*quantizers, *added)


def test_integers_agree_with_fake_quantization_within_a_step() -> None:
    model = mixed_net()
    feeds = [random_feed({"image": (1, 3, 24, 24)}, seed=seed) for seed in range(3)]
    quantizers = with_biases(model, quantized_simply(model, feeds).quantizers)
    runner = IntegerRunner(model, quantizers, Arithmetic())
    names = [each.tensor for each in quantizers if each.kind == "activation" and each.tensor != "image"]
    by_tensor = {each.tensor: each for each in quantizers}
    fake = insert_quantizers(model, quantizers)
    session = open_session(fake, outputs=tap(fake, names))
    same = total = 0

    for feed in feeds:
        codes = runner.run(feed, names).codes
        for name, real in zip(names, session.run(feed), strict=True):
            expected = quantize(real, by_tensor[name].params, by_tensor[name].spec).astype(int)
            assert np.abs(codes[name] - expected).max() <= 1, name
            same += int((codes[name] == expected).sum())
            total += expected.size

    assert same / total > 0.99
    assert [entry.node for entry in runner.report.float_nodes] == ["gate"]
    assert len(runner.report.integer_nodes) == 12
    assert not runner.report.overflows


def test_a_local_run_feeds_every_unit_with_float_activations() -> None:
    model = in_memory(conv_net())
    feed = random_feed({"image": (1, 3, 8, 8)})
    floats = float_values(model, feed)
    quantizers = quantized_simply(model, [feed]).quantizers
    names = ["relu1", "relu2", "pooled", "flat", "logits"]
    runner = IntegerRunner(model, quantizers, Arithmetic())

    local = runner.run_local(floats, names).values

    by_edge = {edge: each for each in quantizers for edge in each.consumers}
    for unit, output in {("Conv1", "Relu1"): "relu1", ("Conv2", "Relu2"): "relu2"}.items():
        alone = _only(model, unit, output, floats, by_edge)
        step = next(each for each in quantizers if each.tensor == output).params.scale
        assert np.abs(local[output] - alone).max() <= step * 1.01
    # A move of quantized activations: the float values, quantized, and nothing else.
    flat = next(each for each in quantizers if each.tensor == "flat")
    pooled = next(each for each in quantizers if each.tensor == "pooled")
    assert (
        np.abs(local["flat"] - fake_quantize(floats["pooled"].reshape(1, -1), pooled.params, pooled.spec)).max()
        <= flat.params.scale
    )
    accumulated = runner.run(feed, names).values
    assert not np.array_equal(local["logits"], accumulated["logits"])


def _only(
    model: Model,
    nodes: Sequence[str],
    output: str,
    floats: Mapping[str, Array],
    by_edge: Mapping[Consumer, Quantizer],
) -> Array:
    """A few nodes on their own with fake-quantized inputs, in onnxruntime."""
    chosen = [node for node in model.proto.graph.node if node.name in nodes]
    inside = {name for node in chosen for name in node.output}
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.proto.graph.initializer}
    feed: dict[str, Array] = {}
    for node in chosen:
        for place, name in enumerate(node.input):
            if name not in inside:
                array, quantizer = (stored | dict(floats))[name], by_edge.get(Consumer(node.name, place))
                feed[name] = array if quantizer is None else fake_quantize(array, quantizer.params, quantizer.spec)
    proto = wrapped(chosen, [value(name) for name in feed], [value(output)])
    return open_session(in_memory(proto)).run(feed)[0]


def test_only_what_is_needed_runs() -> None:
    model = in_memory(conv_net())
    feed = random_feed({"image": (1, 3, 8, 8)})
    runner = IntegerRunner(model, quantized_simply(model, [feed]).quantizers, Arithmetic())

    runner.run_local(float_values(model, feed), ["relu2"])

    assert runner.report.integer_nodes == ("Conv2", "Relu2")


def test_without_quantizers_everything_runs_in_float() -> None:
    model = in_memory(residual())
    feed = random_feed({"image": (1, 3, 8, 8)})
    runner = IntegerRunner(model, (), Arithmetic())

    found = runner.run(feed).values["sum"]

    np.testing.assert_allclose(found, float_values(model, feed)["sum"], rtol=1e-5, atol=1e-6)
    assert [(entry.node, entry.why) for entry in runner.report.float_nodes] == [
        ("stem", "its input 'image' is not quantized"),
        ("body", "its input 'a' is not quantized"),
        ("act", "its input 'b' is not quantized"),
        ("add", "its input 'a' is not quantized"),
    ]
    assert runner.report.integer_nodes == ()


def chain() -> Model:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Neg", ["a"], ["b"], "second"),
        helper.make_node("Abs", ["a"], ["c"], "third"),
    ]
    return in_memory(wrapped(nodes, [value("x", (5,))], [value("b"), value("c")]))


def test_one_tensor_may_be_quantized_differently_for_each_reader() -> None:
    coarse, fine = params(0.5, 0), params(0.125, 0)
    quantizers = [
        on("x", S8, params(0.25), ("first", 0)),
        on("a", U8, fine, ("second", 0)),
        on("a", S8, coarse, ("third", 0), name="again", after="q:a"),
        on("c", U8, fine, output=True),
    ]
    x = np.array([-1, 0.3, 0.6, 1.1, 2.0], np.float32)
    runner = IntegerRunner(chain(), quantizers, Arithmetic(rounding="half_up"))

    run = runner.run({"x": x}, ["a", "b", "c"])

    assert run.codes["a"].tolist() == [0, 2, 4, 8, 16]
    assert run.values["b"].tolist() == [0, -0.25, -0.5, -1.0, -2.0]  # leaves in float
    assert "b" not in run.codes
    # 0.25 is half a coarse step, and is rounded up.
    assert run.codes["c"].tolist() == [0, 4, 4, 8, 16]


def test_a_reader_without_a_quantizer_sees_unrounded_values() -> None:
    quantizers = [on("x", S8, params(0.25), ("first", 0)), on("a", U8, params(1.0), ("second", 0))]
    x = np.array([-1, 0.25, 0.5, 0.75, 1.25], np.float32)

    run = IntegerRunner(chain(), quantizers, Arithmetic()).run({"x": x}, ["a", "b", "c"])

    assert run.values["c"].tolist() == [0, 0.25, 0.5, 0.75, 1.25]
    assert run.values["a"].tolist() == [0, 0, 0, 1, 1]


def test_constants_and_inputs_can_be_asked_for() -> None:
    model = in_memory(residual())
    quantizers = [
        on("image", U8, params(0.05, 128), ("stem", 0)),
        on("w1", S8, params(0.01), ("stem", 1), kind="weight"),
    ]
    feed = random_feed({"image": (1, 3, 8, 8)})

    run = IntegerRunner(model, quantizers, Arithmetic()).run(feed, ["image", "w1", "w2", "a"])

    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.proto.graph.initializer}
    assert np.array_equal(run.codes["w1"], np.clip(np.rint(stored["w1"] / np.float32(0.01)), -128, 127))
    assert np.array_equal(run.values["w2"], stored["w2"])
    assert np.array_equal(run.values["image"], fake_quantize(feed["image"], quantizers[0].params, U8))
    assert run.values["a"].dtype == np.float32
    assert set(run.codes) == {"image", "w1"}


def test_learned_codes_count_instead_of_rounded_weights() -> None:
    model = in_memory(residual())
    learned = np.zeros((3, 3, 3, 3), np.int8)
    quantizers = [
        on("image", U8, params(0.05, 128), ("stem", 0)),
        on("w1", S8, params(0.01), ("stem", 1), kind="weight", codes=learned),
    ]
    feed = random_feed({"image": (1, 3, 8, 8)})

    assert not IntegerRunner(model, quantizers, Arithmetic()).run(feed, ["a"]).values["a"].any()
    wrong = [quantizers[0], replace(quantizers[1], codes=learned[:2])]
    with pytest.raises(BadInput, match=r"'q:w1' has codes of shape \[2, 3, 3, 3\]; its tensor 'w1' is of shape"):
        IntegerRunner(model, wrong, Arithmetic()).run(feed)


def test_constants_computed_by_nodes_are_quantized_too() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["product"], "product"),
        helper.make_node("Add", ["product", "bias"], ["y"], "add"),
    ]
    weights = [weight("w", 4, 3), numpy_helper.from_array(np.arange(4, dtype=np.float32), "bias")]
    model = in_memory(wrapped(nodes, [value("x", (2, 3))], [value("y")], weights))
    quantizers = [
        on("x", S8, params(0.02), ("product", 0)),
        on("turned", S8, params(0.005), ("product", 1), kind="weight"),
        on("bias", S32, params(0.0001), ("add", 1), kind="bias"),
        on("y", S8, params(0.05), output=True),
    ]
    feed = random_feed({"x": (2, 3)})
    runner = IntegerRunner(model, quantizers, Arithmetic())

    codes = runner.run(feed).codes["y"]

    x, w = quantize(feed["x"], params(0.02), S8), quantize(numpy_helper.to_array(weights[0]).T, params(0.005), S8)
    sums = x.astype(int) @ w.astype(int) + np.arange(4) * 10000
    assert np.array_equal(codes, np.clip(np.rint(sums * 0.0001 / 0.05), -128, 127))
    assert runner.report.integer_nodes == ("product", "add")


def test_control_flow_sequences_and_shapes_run_as_they_are() -> None:
    for proto, tensor in ((with_if(), "x"), (with_sequence(), "x")):
        name_nodes(proto.graph)
        model = in_memory(proto)
        feed = random_feed({"x": (2, 3)})
        first = proto.graph.node[0].name
        runner = IntegerRunner(model, [on(tensor, S8, params(0.05), (first, 0))], Arithmetic())

        found = runner.run(feed).values["y"]

        expected = open_session(model).run({"x": fake_quantize(feed["x"], params(0.05), S8)})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=0.2)


def test_nodes_that_compute_shapes_are_not_listed() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "first"], ["count"], "gather"),
        helper.make_node("Concat", ["count", "minus"], ["wanted"], "concat", axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"], "reshape"),
    ]
    stored = [numpy_helper.from_array(np.array([number]), name) for number, name in ((0, "first"), (-1, "minus"))]
    model = in_memory(wrapped(nodes, [value("x", ("N", 3, 2))], [value("y")], stored))
    quantizers = [on("x", U8, params(0.05, 100), ("reshape", 0)), on("y", U8, params(0.05, 100), output=True)]
    runner = IntegerRunner(model, quantizers, Arithmetic())

    run = runner.run(random_feed({"x": (4, 3, 2)}), ["y", "wanted"])

    assert run.codes["y"].shape == (4, 6)
    assert run.values["wanted"].tolist() == [4, -1]
    assert runner.report == IntegerReport(integer_nodes=("reshape",))


def test_float16_models_keep_their_type_where_they_run_in_float() -> None:
    half = TensorProto.FLOAT16
    nodes = [helper.make_node("Relu", ["x"], ["a"], "relu"), helper.make_node("Exp", ["a"], ["y"], "exp")]
    model = in_memory(wrapped(nodes, [value("x", (4,), half)], [value("y", None, half)]))
    quantizers = [on("x", S8, params(0.25), ("relu", 0)), on("a", S8, params(0.25), ("exp", 0))]

    run = IntegerRunner(model, quantizers, Arithmetic()).run({"x": np.array([-1, 0, 0.5, 1], np.float16)})

    np.testing.assert_allclose(run.values["y"], np.exp([0, 0, 0.5, 1]), rtol=1e-3)
    assert run.values["y"].dtype == np.float16


def test_values_that_are_no_numbers_have_codes() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1, 1e30], np.float32)

    codes = (
        IntegerRunner(chain(), [on("x", S8, params(0.5), ("first", 0))], Arithmetic())
        .run({"x": x}, ["x"])
        .codes["x"]
    )

    assert codes.tolist() == [0, 127, -128, 2, 127]


def test_repeated_runs_give_one_report() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    stored = [numpy_helper.from_array(np.ones((2, 1), np.float32), "w")]
    model = in_memory(wrapped(nodes, [value("x", (1, 2))], [value("y")], stored))
    quantizers = [
        on("x", U8, params(1.0), ("product", 0)),
        on("w", S8, params(1 / 127), ("product", 1), kind="weight"),
    ]
    runner = IntegerRunner(model, quantizers, Arithmetic(accumulator_bits=16))

    for amount in (255, 1, 200):
        runner.run({"x": np.full((1, 2), amount, np.float32)})

    assert runner.report.overflows == (AccumulatorOverflow("product", "accumulator", 2, 3, 255 * 2 * 127 / 32768),)
    twice = runner.report.merged(runner.report)
    assert twice.overflows == (AccumulatorOverflow("product", "accumulator", 4, 6, 255 * 2 * 127 / 32768),)
    assert twice.integer_nodes == ("product",)


def test_what_does_not_belong_to_the_model_is_refused() -> None:
    model = chain()
    x = np.zeros(5, np.float32)
    runner = IntegerRunner(model, [on("x", S8, params(0.5), ("first", 0))], Arithmetic())

    with pytest.raises(BadInput, match=r"has no tensor 'aa'\.\nfix: did you mean 'a'\?"):
        runner.run({"x": x}, ["aa"])
    with pytest.raises(BadInput, match="must be float32"):
        runner.run({"x": np.zeros((5, 2), np.float32)})
    with pytest.raises(BadInput, match="is on 'z', which"):
        IntegerRunner(model, [on("z", S8, params(0.5))], Arithmetic())
    with pytest.raises(BadInput, match="There is no value for 'x'"):
        runner.run_local({}, ["a"])


def test_a_node_that_nothing_can_run_is_named() -> None:
    nodes = [helper.make_node("Strange", ["x"], ["y"], "odd", domain="some.vendor")]
    model = in_memory(wrapped(nodes, [value("x", (2,))], [value("y")], domains={"some.vendor": 1}))
    runner = IntegerRunner(model, [on("x", S8, params(0.5), ("odd", 0))], Arithmetic())

    with pytest.raises(ModelFailed, match=r"Node 'odd' \(Strange\)"):
        runner.run({"x": np.zeros(2, np.float32)})


def test_tensors_are_let_go_after_their_last_use() -> None:
    """A deep chain must not take more memory than a short one."""
    import tracemalloc

    def peak(depth: int) -> int:
        nodes = [helper.make_node("Relu", [f"t{index}"], [f"t{index + 1}"], f"n{index}") for index in range(depth)]
        model = in_memory(wrapped(nodes, [value("t0", (1 << 16,))], [value(f"t{depth}")]))
        quantizers = [on(f"t{index}", U8, params(0.1), (f"n{index}", 0)) for index in range(depth)]
        runner = IntegerRunner(model, quantizers, Arithmetic())
        feed = {"t0": np.ones(1 << 16, np.float32)}
        runner.run(feed)
        tracemalloc.start()
        runner.run(feed)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(100) < peak(3) + (1 << 19)


def test_scales_of_all_zero_activations_work() -> None:
    zeros = parameters_from_range(0.0, 0.0, U8)
    run = IntegerRunner(chain(), [on("x", U8, zeros, ("first", 0))], Arithmetic()).run(
        {"x": np.zeros(5, np.float32)}
    )

    assert dequantize(np.zeros(5, np.uint8), zeros).tolist() == run.values["b"].tolist()
