"""Constant nodes, nodes of constants, and fixed shapes."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.graph.preparation.steps import prepare
from tests.graph.preparation.comparing import constant, in_memory, operations, prepared_alike
from tests.models import value, weight, with_if, wrapped


def _held(prepared: Any) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in prepared.model.proto.graph.initializer}


def test_weights_of_a_convolution_however_they_come() -> None:
    kernel = np.random.default_rng(0).normal(size=(3, 3, 4, 2)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["stored"], name="constant", value=numpy_helper.from_array(kernel)),
        helper.make_node("Identity", ["stored"], ["same"], name="identity"),
        helper.make_node("Transpose", ["same"], ["turned"], name="transpose", perm=[3, 2, 0, 1]),
        helper.make_node("Mul", ["turned", "gain"], ["w"], name="gain"),
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv"),
    ]
    proto = wrapped(nodes, [value("x", ("N", 4, "H", "W"))], [value("y")], [constant("gain", 0.5)])
    prepared = prepared_alike(proto, {"x": (1, 4, 5, 5)}, rtol=0)
    assert operations(prepared.model) == ["Conv"]
    np.testing.assert_array_equal(_held(prepared)["w"], kernel.transpose(3, 2, 0, 1) * np.float32(0.5))
    assert list(_held(prepared)) == ["w"], "what nothing reads any more is gone"
    assert prepared.origins == {"constant": "", "identity": "", "transpose": "", "gain": "", "conv": "conv"}
    assert "nodes of constants computed once: 1 Transpose, 1 Mul" in tuple(map(str, prepared.notes))


def test_plain_numbers_in_constant_nodes() -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=2.0),
        helper.make_node("Constant", [], ["s"], value_ints=[3, 2]),
        helper.make_node("Constant", [], ["out"], value_floats=[1.0, 2.0]),
        helper.make_node("Mul", ["x", "a"], ["m"], name="mul"),
        helper.make_node("Reshape", ["m", "s"], ["y"], name="reshape"),
    ]
    proto = wrapped(nodes, [value("x", (2, 3))], [value("y"), value("out")])
    prepared = prepared_alike(proto, {"x": (2, 3)}, rtol=0)
    assert operations(prepared.model) == ["Constant", "Mul", "Reshape"], "an output keeps the node that makes it"
    np.testing.assert_array_equal(_held(prepared)["s"], [3, 2])


def _reshaped(shape: tuple[int | str, ...]) -> Any:
    """What exporters write for a flattening: the shape is taken apart and put together again."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Shape", ["r"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], name="gather"),
        helper.make_node("Unsqueeze", ["n", "zeros"], ["ns"], name="unsqueeze"),
        helper.make_node("Concat", ["ns", "rest"], ["t"], name="concat", axis=0),
        helper.make_node("Reshape", ["r", "t"], ["y"], name="reshape"),
    ]
    held = [constant("zero", 0, np.int64), constant("zeros", [0], np.int64), constant("rest", [-1], np.int64)]
    return wrapped(nodes, [value("x", shape)], [value("y")], held)


def test_fixed_shapes_are_computed_once() -> None:
    prepared = prepared_alike(_reshaped((2, 3, 4)), {"x": (2, 3, 4)}, rtol=0)
    assert operations(prepared.model) == ["Relu", "Reshape"]
    np.testing.assert_array_equal(_held(prepared)["t"], [2, -1])
    assert "shapes that are fixed computed once: 'shape'" in tuple(map(str, prepared.notes))


def test_free_shapes_stay_computed() -> None:
    proto = _reshaped(("N", 3, 4))
    # Files often declare what they were exported with; that is not to be believed.
    proto.graph.value_info.append(value("r", (1, 3, 4)))
    for batch in (1, 5):
        prepared = prepared_alike(proto, {"x": (batch, 3, 4)}, rtol=0)
        assert operations(prepared.model) == operations(in_memory(proto))


@pytest.mark.parametrize(("start", "end"), [(None, None), (1, None), (-2, -1), (0, 9)])
def test_parts_of_a_shape_and_sizes(start: int | None, end: int | None) -> None:
    part = {key: at for key, at in (("start", start), ("end", end)) if at is not None}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape", **part),
        helper.make_node("Size", ["x"], ["n"], name="size"),
        helper.make_node("Add", ["s", "n"], ["t"], name="add"),
        helper.make_node("Add", ["t", "k"], ["y"], name="live"),
    ]
    inputs = [value("x", (2, 3, 4)), value("k", (), TensorProto.INT64)]
    feed = {"x": np.zeros((2, 3, 4), np.float32), "k": np.array(7)}
    proto = wrapped(nodes, inputs, [value("y", None, TensorProto.INT64)])
    assert operations(prepared_alike(proto, {}, feed=feed).model) == ["Add"]


def test_results_that_grow_stay_computed() -> None:
    nodes = [
        helper.make_node("Expand", ["one", "large"], ["e"], name="expand"),
        helper.make_node("Expand", ["one", "small"], ["f"], name="small_expand"),
        helper.make_node("Add", ["x", "e"], ["g"], name="g"),
        helper.make_node("Add", ["g", "f"], ["y"], name="y"),
    ]
    held = [constant("one", [1.0]), constant("large", [1000, 1000], np.int64), constant("small", [1000], np.int64)]
    prepared = prepared_alike(wrapped(nodes, [value("x", (1,))], [value("y")], held), {"x": (1,)}, rtol=0)
    assert operations(prepared.model) == ["Expand", "Add", "Add"]
    left = "nodes of constants left as they are, because their results are much larger than what they are made of"
    assert tuple(map(str, prepared.notes)) == ("nodes of constants computed once: 1 Expand", f"{left}: 'expand'")


def test_random_numbers_are_drawn_anew() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["w"], ["r"], name="random"),
        helper.make_node("Mul", ["r", "zero"], ["z"], name="none_of_it"),
        helper.make_node("Add", ["x", "z"], ["y"], name="add"),
    ]
    held = [weight("w", 3), constant("zero", 0.0)]
    prepared = prepared_alike(wrapped(nodes, [value("x", (3,))], [value("y")], held), {"x": (3,)})
    assert operations(prepared.model) == ["RandomNormalLike", "Mul", "Add"]


def test_one_node_that_cannot_be_computed_does_not_hold_up_the_others() -> None:
    nodes = [
        helper.make_node("Neg", ["w"], ["n"], name="good"),
        helper.make_node("Reshape", ["w", "wrong"], ["bad"], name="bad"),
        helper.make_node("Add", ["x", "n"], ["y"], name="add"),
        helper.make_node("Add", ["y", "bad"], ["z"], name="never"),
    ]
    held = [weight("w", 3), constant("wrong", [7], np.int64)]
    prepared = prepare(in_memory(wrapped(nodes, [value("x", (3,))], [value("z")], held)))
    assert operations(prepared.model) == ["Reshape", "Add", "Add"]
    assert "nodes of constants computed once: 1 Neg" in tuple(map(str, prepared.notes))
    assert any("onnxruntime cannot compute them" in str(note) and "'bad'" in str(note) for note in prepared.notes)


def test_constants_for_branches() -> None:
    """A branch reads a folded constant from outside."""
    proto = with_if()
    proto.graph.node.insert(1, helper.make_node("Neg", ["two"], ["minus_two"], name="neg"))
    for attribute in proto.graph.node[4].attribute:
        attribute.g.node[0].input[0] = "minus_two"
    prepared = prepared_alike(proto, {"x": (2, 3)}, rtol=0)
    assert "Neg" not in operations(prepared.model)


def test_sequences_and_text_are_left_alone() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["w"], ["parts"], name="split", axis=0),
        helper.make_node("ConcatFromSequence", ["parts"], ["joined"], name="join", axis=0),
        helper.make_node("Add", ["x", "joined"], ["y"], name="add"),
    ]
    prepared = prepared_alike(wrapped(nodes, [value("x", (3,))], [value("y")], [weight("w", 3)]), {"x": (3,)})
    assert operations(prepared.model)[-1] == "Add"
