from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from roundoff.graph.backward.builder import backward_graph
from roundoff.graph.backward.facts import Facts
from tests.contracts.backward_rule import in_memory, open_raw
from tests.graph.backward.differences import gradients_of
from tests.models import conv_net, random_feed, value, with_sequence, wrapped

Node = helper.make_node


def ints(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def halved() -> Any:
    """Splits the last axis of x into two halves; its shape is computed in a way that inference cannot follow."""
    nodes = [
        Node("Shape", ["x"], ["shape"], name="shape"),
        Node("Split", ["shape"], ["rows", "columns"], name="split", axis=0),
        Node("Div", ["columns", "two"], ["half"], name="div"),
        Node("Concat", ["rows", "half", "two"], ["new"], name="concat", axis=0),
        Node("Reshape", ["x", "new"], ["apart"], name="reshape"),
        Node("ReduceSum", ["apart", "last"], ["y"], name="sum"),
    ]
    return wrapped(nodes, [value("x", ("N", "M"))], [value("y")], [ints("two", 2), ints("last", -1)])


def test_shapes_that_are_computed_from_shapes_are_known() -> None:
    model = in_memory(halved())
    facts = Facts(model, {"x": (3, 8)})
    assert facts.shape("apart") == (3, 4, 2)
    assert facts.shape("y") == (3, 4, 1)
    found = facts.value("new")
    assert found is not None
    assert found.tolist() == [3, 4, 2]
    assert facts.value("x") is None


def test_gradients_through_shapes_that_are_computed() -> None:
    backward = backward_graph(in_memory(halved()), ["x"], shapes={"x": (3, 8)})
    seed = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    found = gradients_of(backward, {"x": np.zeros((3, 8), np.float32), "y//seed": seed})
    assert np.array_equal(found["x"], np.repeat(seed.reshape(3, 4), 2, axis=1))


@given(
    size=st.integers(5, 9),
    stride=st.integers(1, 4),
    kernel=st.integers(1, 3),
    opset=st.sampled_from([10, 11, 12, 19]),
)
@settings(max_examples=20, deadline=None)
def test_sizes_that_are_rounded_up_are_those_of_the_runtime(
    size: int, stride: int, kernel: int, opset: int
) -> None:
    held = {"kernel_shape": [kernel], "strides": [stride], "pads": [kernel // 2] * 2, "ceil_mode": 1}
    nodes = [
        Node("MaxPool", ["x"], ["a"], name="first", **held),
        Node("AveragePool", ["a"], ["b"], name="second", **held),
        Node("Relu", ["b"], ["y"], name="relu"),
    ]
    proto = wrapped(nodes, [value("x", (1, 1, size))], [value("y"), value("a")], opset=opset)
    results = open_raw(proto).run(["a", "y"], random_feed({"x": (1, 1, size)}))
    facts = Facts(in_memory(proto))
    assert (facts.shape("a"), facts.shape("y")) == tuple(array.shape for array in results)


def test_given_shapes_count_for_what_follows() -> None:
    nodes = [
        Node("NonZero", ["x"], ["places"], name="where"),
        Node("Cast", ["places"], ["a"], name="cast", to=1),
        Node("Exp", ["a"], ["y"], name="exp"),
    ]
    model = in_memory(wrapped(nodes, [value("x", (2, 3))], [value("y")]))
    assert Facts(model).shape("y") is None
    assert Facts(model, {"a": (2, 4)}).shape("y") == (2, 4)


def test_types() -> None:
    facts = Facts(in_memory(with_sequence()))
    assert [facts.is_float(name) for name in ("x", "parts", "text", "y")] == [True, True, False, True]
    assert facts.dtype("x") == np.float32
    held = Node("Constant", [], ["c"], name="c", value_ints=[1, 2])
    model = in_memory(wrapped([held, Node("Neg", ["c"], ["y"], name="neg")], [], [value("y", None, 7)]))
    element = Facts(model).element("c")
    assert element is not None
    assert element.dtype == "int64"


def test_types_that_only_the_file_tells() -> None:
    node = Node("Mystery", ["x"], ["y"], name="mystery", domain="test.domain")
    proto = wrapped([node], [value("x", (3,))], [value("y", (3,), 7)], domains={"test.domain": 1})
    facts = Facts(in_memory(proto), {"x": (5,)})
    assert not facts.is_float("y")
    assert facts.shape("y") is None


def test_what_is_random_never_stays_the_same() -> None:
    nodes = [
        Node("RandomNormalLike", ["c"], ["noise"], name="noise"),
        Node("Add", ["c", "c"], ["twice"], name="twice"),
        Node("Add", ["noise", "twice"], ["y"], name="add"),
    ]
    constant = numpy_helper.from_array(np.ones(2, np.float32), "c")
    facts = Facts(in_memory(wrapped(nodes, [], [value("y")], [constant])))
    twice = facts.value("twice")
    assert twice is not None
    assert twice.tolist() == [2, 2]
    assert facts.value("y") is None


@pytest.mark.parametrize("ir_version", [3, 8])
def test_old_files_list_their_weights_among_the_inputs(ir_version: int) -> None:
    proto = conv_net()
    proto.ir_version = ir_version
    for tensor in proto.graph.initializer:
        proto.graph.input.append(value(tensor.name, tuple(tensor.dims)))
    backward = backward_graph(in_memory(proto), ["image", "w1"])
    feed = {**random_feed({"image": (1, 3, 8, 8)}), "logits//seed": np.ones((1, 10), np.float32)}
    found = gradients_of(backward, feed)
    assert found["w1"].shape == (4, 3, 3, 3)
    assert np.abs(found["image"]).max() > 0
