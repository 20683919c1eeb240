from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizer import Consumer
from roundoff.core.tensors import Array
from roundoff.demo import model_path
from roundoff.errors import BadInput
from roundoff.graph.backward.builder import BackwardGraph, Place, backward_graph
from roundoff.graph.backward.registry import find_rule, rule
from roundoff.graph.backward.step import Step
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.wiring import constants
from tests.contracts.backward_rule import in_memory, open_raw
from tests.graph.backward.differences import Differences, gradients_of, random_seeds
from tests.models import (
    branches,
    conv_net,
    random_feed,
    residual,
    two_inputs,
    two_outputs,
    value,
    weight,
    with_if,
    with_sequence,
    wrapped,
)
from tests.real_models import real_models

Node = helper.make_node


def all_edges(model: Model, *, weights: bool = True) -> list[Consumer]:
    graph = model.proto.graph
    known = constants(graph)
    return [
        Consumer(node.name, index)
        for node in graph.node
        for index, name in enumerate(node.input)
        if name and node.op_type != "Constant" and (weights or name not in known)
    ]


def all_tensors(model: Model) -> list[str]:
    graph = model.proto.graph
    named = [value.name for value in (*graph.input, *graph.initializer)]
    return list(dict.fromkeys([*named, *(name for node in graph.node for name in node.output if name)]))


def check_everywhere(proto: Any, feed: Mapping[str, Array], **options: Any) -> BackwardGraph:
    """Compare the gradients at all tensors and all node inputs with differences along a random direction."""
    model = in_memory(proto)
    for number, node in enumerate(proto.graph.node):
        node.name = node.name or f"node{number}"
    shapes = {name: array.shape for name, array in feed.items()}
    backward = backward_graph(model, all_tensors(model), edges=all_edges(model), shapes=shapes, **options)
    names = list(backward.seeds)
    outputs = dict(zip(names, open_raw(proto).run(names, dict(feed)), strict=True))
    seeds = random_seeds(backward, outputs)
    found = gradients_of(backward, {**feed, **seeds})
    rng = np.random.default_rng(2)
    for chosen in (str, Consumer):
        places = {place: gradient for place, gradient in found.items() if isinstance(place, chosen)}
        differences = Differences(model, places, names)
        vectors = {tensor: seeds[name] for tensor, name in backward.seeds.items()}
        for place, gradient in places.items():
            drawn = rng.standard_normal(gradient.shape)
            # Short enough that hardly any unit starts or ceases to be active on the way.
            direction = np.asarray(drawn / np.linalg.norm(drawn.ravel()), gradient.dtype)
            expected = float((gradient * direction).sum())
            steps = (2e-3, 5e-4)
            slopes = [differences.slope(place, direction, feed=feed, seeds=vectors, step=step) for step in steps]
            limit = 3e-3 * max(float(np.linalg.norm(gradient.ravel())), 0.1)
            assert min(abs(slope - expected) for slope in slopes) <= limit, place
    return backward


def gated() -> Any:
    """Channels are weighed by what a second path makes of their means; `a` is read four times."""
    nodes = [
        Node("Conv", ["image", "w1"], ["a"], name="stem", pads=[1] * 4),
        Node("GlobalAveragePool", ["a"], ["mean"], name="squeeze"),
        Node("Conv", ["mean", "w2"], ["excited"], name="excite"),
        Node("Sigmoid", ["excited"], ["gate"], name="gate"),
        Node("Mul", ["a", "gate"], ["weighed"], name="weigh"),
        Node("Tanh", ["a"], ["bent"], name="bend"),
        Node("Sum", ["weighed", "a", "bent"], ["sum"], name="sum"),
    ]
    weights = [weight("w1", 4, 3, 3, 3), weight("w2", 4, 4, 1, 1)]
    return wrapped(nodes, [value("image", (2, 3, 5, 5))], [value("sum")], weights)


def attention() -> Any:
    """One head over four tokens of six features, normalized before, added after."""
    nodes = [
        Node("LayerNormalization", ["tokens", "gain", "shift"], ["normal"], name="norm"),
        *(Node("MatMul", ["normal", f"w{part}"], [part], name=f"to_{part}") for part in "qkv"),
        Node("Transpose", ["k"], ["turned"], name="turn", perm=[0, 2, 1]),
        Node("MatMul", ["q", "turned"], ["scores"], name="scores"),
        Node("Softmax", ["scores"], ["shares"], name="softmax"),
        Node("MatMul", ["shares", "v"], ["mixed"], name="mix"),
        Node("Add", ["tokens", "mixed"], ["y"], name="add"),
    ]
    weights = [weight(f"w{part}", 6, 6, seed=seed) for seed, part in enumerate("qkv")]
    weights += [weight("gain", 6, seed=4), weight("shift", 6, seed=5)]
    return wrapped(nodes, [value("tokens", (2, 4, 6))], [value("y")], weights)


def two_heads() -> Any:
    """Two outputs, of which one is also read on the way to the other."""
    nodes = [
        Node("Gemm", ["x", "w1"], ["a"], name="first"),
        Node("Softplus", ["a"], ["b"], name="bend"),
        Node("Gemm", ["b", "w1"], ["c"], name="second"),
    ]
    return wrapped(nodes, [value("x", (3, 4))], [value("a"), value("c")], [weight("w1", 4, 4)])


NETWORKS: dict[str, tuple[Any, dict[str, tuple[int, ...]]]] = {
    "conv_net": (conv_net(2), {"image": (2, 3, 8, 8)}),
    "dynamic_batch": (conv_net("N"), {"image": (2, 3, 8, 8)}),
    "residual": (residual(), {"image": (1, 3, 8, 8)}),
    "two_inputs": (two_inputs(), {"left": (2, 5), "right": (2, 5)}),
    "two_outputs": (two_outputs(), {"x": (1, 4, 3)}),
    "branches": (branches(), {"image": (1, 3, 8, 8)}),
    "gated": (gated(), {"image": (2, 3, 5, 5)}),
    "attention": (attention(), {"tokens": (2, 4, 6)}),
    "two_heads": (two_heads(), {"x": (3, 4)}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_at_every_tensor_and_every_node_input(name: str) -> None:
    proto, shapes = NETWORKS[name]
    backward = check_everywhere(proto, random_feed(shapes))
    assert not backward.without_rule
    assert not backward.zero


def classic(opset: int) -> Any:
    """Operations that every version has, in the order of the first networks of this kind."""
    nodes = [
        Node("Conv", ["image", "w1", "b1"], ["a"], name="stem", strides=[2, 2], pads=[1] * 4),
        Node("BatchNormalization", ["a", "b1", "shift", "shift", "spread"], ["b"], name="norm"),
        Node("Elu", ["b"], ["c"], name="bend"),
        Node("MaxPool", ["c"], ["d"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        Node("AveragePool", ["c"], ["e"], name="average", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        Node("Concat", ["d", "e"], ["f"], name="both", axis=1),
        Node("Flatten", ["f"], ["g"], name="flat"),
        Node("Gemm", ["g", "w2", "b2"], ["h"], name="classify", transB=1),
        Node("Softmax", ["h"], ["y"], name="softmax"),
    ]
    sizes = {"w1": (4, 3, 3, 3), "b1": (4,), "shift": (4,), "w2": (5, 72), "b2": (5,)}
    weights = [weight(name, *shape, seed=seed) for seed, (name, shape) in enumerate(sizes.items())]
    weights.append(numpy_helper.from_array(np.full(4, 0.5, np.float32), "spread"))
    return wrapped(nodes, [value("image", (2, 3, 12, 12))], [value("y")], weights, opset=opset)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 16, 18, 22])
def test_every_version_of_the_operators(opset: int) -> None:
    backward = check_everywhere(classic(opset), random_feed({"image": (2, 3, 12, 12)}))
    assert not backward.without_rule


def test_only_some_outputs_count() -> None:
    proto, shapes = NETWORKS["two_heads"]
    backward = check_everywhere(proto, random_feed(shapes), seeds=["a"])
    assert list(backward.seeds) == ["a"]
    assert backward.zero["c"] == "no path leads from it to the outputs"
    assert Consumer("second", 1) in backward.zero
    assert "w1" in backward.gradients


def test_a_tensor_in_between_can_be_taken_for_the_output() -> None:
    model = in_memory(conv_net())
    backward = backward_graph(model, ["conv1", "relu2"], seeds=["conv2"])
    assert "conv1" in backward.gradients
    assert "relu2" in backward.zero


def test_the_network_itself_is_still_computed_and_its_model_not_changed() -> None:
    model = in_memory(conv_net())
    before = model.proto.SerializeToString()
    backward = backward_graph(model, ["image"])
    assert model.proto.SerializeToString() == before
    feed = random_feed({"image": (1, 3, 8, 8)})
    expected = open_raw(model.proto).run(["logits"], feed)[0]
    seeds = {backward.seeds["logits"]: np.zeros((1, 10), np.float32)}
    assert np.array_equal(open_raw(backward.model.proto).run(["logits"], {**feed, **seeds})[0], expected)


def test_names_say_what_they_belong_to_and_avoid_those_that_are_taken() -> None:
    nodes = [Node("Relu", ["x//gradient"], ["y"], name="relu")]
    proto = wrapped(nodes, [value("x//gradient", (3,))], [value("y")])
    backward = backward_graph(in_memory(proto), ["x//gradient"], edges=[Consumer("relu", 0)])
    assert backward.seeds == {"y": "y//seed"}
    assert backward.gradients == {
        "x//gradient": "x//gradient//gradient",
        Consumer("relu", 0): "x//gradient//gradient",
    }
    edge = backward_graph(in_memory(proto), edges=[Consumer("relu", 0)])
    assert edge.gradients == {Consumer("relu", 0): "relu:0//gradient"}


def test_the_gradient_of_an_output_is_what_is_fed() -> None:
    backward = backward_graph(in_memory(conv_net()), ["logits"])
    seeds = {backward.seeds["logits"]: np.arange(10, dtype=np.float32)[None]}
    found = gradients_of(backward, {**random_feed({"image": (1, 3, 8, 8)}), **seeds})
    assert np.array_equal(found["logits"], seeds["logits//seed"])


def blocked() -> Any:
    """x -> a -> (LSTM) and x -> a -> b, both into y; c only follows the recurrence."""
    nodes = [
        Node("Relu", ["x"], ["a"], name="relu"),
        Node("LSTM", ["a", "w", "r"], ["memory"], name="memory", hidden_size=2),
        Node("Squeeze", ["memory", "axis"], ["flat"], name="squeeze"),
        Node("Neg", ["a"], ["b"], name="neg"),
        Node("Exp", ["flat"], ["c"], name="exp"),
        Node("MatMul", ["b", "m"], ["d"], name="project"),
        Node("Add", ["c", "d"], ["y"], name="add"),
    ]
    weights = [weight("w", 1, 8, 3), weight("r", 1, 8, 2), weight("m", 3, 2)]
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    return wrapped(nodes, [value("x", (4, 1, 3))], [value("y")], weights)


def test_what_leads_through_an_operation_without_a_rule_is_listed_with_the_reason() -> None:
    model = in_memory(blocked())
    reason = "LSTM 'memory': this operation has no rule"
    asked: list[Consumer] = [Consumer("relu", 0), Consumer("memory", 0), Consumer("neg", 0), Consumer("exp", 0)]
    backward = backward_graph(model, ["x", "a", "b", "c", "memory"], edges=asked)
    assert backward.without_rule == {
        "x": reason, "a": reason, Consumer("relu", 0): reason, Consumer("memory", 0): reason
    }  # fmt: skip
    # Not through this edge, and not behind it.
    assert set(backward.gradients) == {"b", "c", "memory", Consumer("neg", 0), Consumer("exp", 0)}


def test_control_flow_has_no_rule() -> None:
    model = in_memory(with_if())
    backward = backward_graph(model, ["x", "scaled", "chosen"], shapes={"x": (2, 3), "chosen": (2, 3)})
    assert backward.without_rule["scaled"] == "If 'choose': it is read inside of its subgraphs"
    assert backward.without_rule["x"] == backward.without_rule["scaled"]
    assert "chosen" in backward.gradients


def test_what_is_no_tensor_has_no_rule() -> None:
    nodes = [
        Node("SplitToSequence", ["x"], ["parts"], name="split", axis=0),
        Node("ConcatFromSequence", ["parts"], ["y"], name="join", axis=0),
    ]
    backward = backward_graph(in_memory(wrapped(nodes, [value("x", (2, 3))], [value("y")])), ["x"])
    assert backward.without_rule["x"] == "ConcatFromSequence 'join': this operation has no rule"
    text = in_memory(with_sequence())
    assert "Cast 'print'" in backward_graph(text, ["x"]).without_rule.get("x", "") + backward_graph(
        text, ["joined"]
    ).zero.get("joined", "")


def test_an_operation_of_another_domain_has_no_rule_until_there_is_one() -> None:
    node = Node("Double", ["x"], ["y"], name="twice", domain="test.domain")
    proto = wrapped([node], [value("x", (3,))], [value("y", (3,))], domains={"test.domain": 1})
    reason = backward_graph(in_memory(proto), ["x"]).without_rule["x"]
    assert reason == "Double 'twice': this operation of test.domain has no rule"

    @rule("Double", domain="test.domain")
    def double(at: Step, _index: int) -> str:
        return at.op("Add", at.gradient, at.gradient)

    assert find_rule(node) is not None
    assert "x" in backward_graph(in_memory(proto), ["x"]).gradients


def chooser() -> Any:
    """The score of x's largest element is looked up in a table, and added to x; `only` goes no other way."""
    nodes = [
        Node("ArgMax", ["x"], ["best"], name="best", axis=1, keepdims=0),
        Node("Gather", ["table", "best"], ["looked_up"], name="look", axis=0),
        Node("Round", ["only"], ["rounded"], name="round"),
        Node("Greater", ["x", "rounded"], ["above"], name="compare"),
        Node("Where", ["above", "x", "half"], ["chosen"], name="choose"),
        Node("Shape", ["shaped"], ["size"], name="shape"),
        Node("Cast", ["size"], ["as_float"], name="cast", to=TensorProto.FLOAT),
        Node("ReduceSum", ["as_float"], ["total"], name="total", keepdims=0),
        Node("Sum", ["chosen", "looked_up", "total"], ["y"], name="sum"),
    ]
    inputs = [value("x", (1, 3)), value("only", (1, 3)), value("shaped", (2, 2)), value("unused", (2,))]
    half = numpy_helper.from_array(np.float32(0.5), "half")
    return wrapped(nodes, inputs, [value("y")], [weight("table", 3, 3), half])


def test_operations_in_steps_carry_no_gradient_and_are_named() -> None:
    model = in_memory(chooser())
    asked: list[str] = ["x", "only", "shaped", "unused", "table", "best"]
    backward = backward_graph(model, asked)
    assert set(backward.gradients) == {"x", "table"}
    assert backward.zero == {
        "only": "only by steps of Round 'round'",
        "shaped": "no path leads from it to the outputs",
        "unused": "no path leads from it to the outputs",
    }
    assert backward.without_rule == {"best": "it holds int64, and only floats have gradients"}
    assert dict(backward.stepwise) == {"x": "Greater 'compare'", "only": "Round 'round'"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensors": ["relu3"]}, "has no tensor 'relu3'.\nfix: did you mean 'relu"),
        ({"edges": [Consumer("Conv3", 0)]}, "has no node 'Conv3'.\nfix: did you mean 'Conv"),
        ({"edges": [Consumer("Conv1", 2)]}, "Node 'Conv1' has no input 2.\nfix: it has 2, counted from 0"),
        ({"seeds": ["logit"]}, "has no tensor 'logit'.\nfix: did you mean 'logits'?"),
        ({"shapes": {"picture": (1, 3, 8, 8)}}, "A shape is given for 'picture'"),
    ],
)
def test_what_is_not_there_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        backward_graph(in_memory(conv_net()), **arguments)
    assert message in str(error.value)


def test_integers_cannot_be_outputs_to_differentiate() -> None:
    with pytest.raises(BadInput, match="'best' holds int64"):
        backward_graph(in_memory(chooser()), ["x"], seeds=["best"])


def test_unknown_shapes_are_a_reason_not_a_guess() -> None:
    backward = backward_graph(in_memory(two_inputs()), ["left", "right"])
    assert backward.without_rule["left"] == "Add 'join': the shape of 'joined' is not known before the model runs"


def demo_feed(model: Model) -> dict[str, Array]:
    shapes = {
        spec.name: tuple(size if isinstance(size, int) else 1 for size in spec.shape or ())
        for spec in inputs(model)
    }
    return random_feed(shapes)


def check_some(model: Model, *, count: int, tolerance: float) -> None:
    """All activations of a network have gradients; those at some places hold along their own direction."""
    feed = demo_feed(model)
    edges = all_edges(model, weights=False)
    backward = backward_graph(model, edges=edges, shapes={name: array.shape for name, array in feed.items()})
    assert set(backward.gradients) == set(edges)
    names = list(backward.seeds)
    outputs = dict(zip(names, open_raw(model.proto).run(names, feed), strict=True))
    seeds = random_seeds(backward, outputs)
    found = gradients_of(backward, {**feed, **seeds})
    picked: dict[Place, Array] = {edges[index]: found[edges[index]] for index in
                                  np.random.default_rng(3).permutation(len(edges))[:count]}  # fmt: skip
    differences = Differences(model, picked, names)
    vectors = {tensor: seeds[name] for tensor, name in backward.seeds.items()}
    for place, gradient in picked.items():
        largest = float(np.abs(gradient).max())
        if largest < 1e-6:
            continue
        direction = gradient / largest
        expected = float((gradient.astype(np.float64) * direction).sum())
        slopes = [
            differences.slope(place, direction, feed=feed, seeds=vectors, step=step) for step in (1e-2, 1e-3, 1e-4)
        ]
        assert min(abs(slope - expected) for slope in slopes) <= tolerance * expected, place


def test_the_demo_has_gradients_everywhere() -> None:
    check_some(load_model(model_path()), count=40, tolerance=1e-2)


@pytest.mark.parametrize("path", real_models())
def test_real_networks_have_gradients_everywhere(path: Path) -> None:
    model = load_model(path)
    if any(node.op_type == "QuantizeLinear" for node in model.proto.graph.node):
        known = constants(model.proto.graph)
        (image,) = (value.name for value in model.proto.graph.input if value.name not in known)
        assert backward_graph(model, [image]).without_rule[image].endswith("it rounds values to codes")
        return
    check_some(model, count=4, tolerance=5e-2)
