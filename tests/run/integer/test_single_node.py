"""Nodes without an integer version run in float whatever their inputs and outputs are made of."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from roundoff.core.target import WIDEST
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.run.integer.call import NonTensor
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.integer.program import SingleNodes
from roundoff.run.session import open_session
from tests.models import value, wrapped
from tests.run.integer.support import in_memory

X = np.array([[-1.5, 0.25, 3.0]], np.float32)


def looping() -> Any:
    """A Loop whose body captures the tensor that also is its state; an If does the same with its condition."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "a"], ["next"]),
            helper.make_node("Identity", ["go"], ["go on"]),
        ],
        "body",
        [value("turn", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("state")],
        [value("go on", (), TensorProto.BOOL), value("next")],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "neg"),
        helper.make_node("Loop", ["three", "", "a"], ["y"], "loop", body=body),
    ]
    three = helper.make_tensor("three", TensorProto.INT64, [], [3])
    return wrapped(nodes, [value("x", (1, 3))], [value("y")], [three])


def branching() -> Any:
    then, other = (
        helper.make_graph(
            [
                helper.make_node("Cast", ["positive"], [f"{op} flag"], to=1),
                helper.make_node(op, ["x", f"{op} flag"], [op]),
            ],
            op,
            [],
            [value(op)],
        )
        for op in ("Add", "Sub")
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], "total", keepdims=0),
        helper.make_node("Cast", ["total"], ["positive"], "positive", to=TensorProto.BOOL),
        helper.make_node("If", ["positive"], ["y"], "if", then_branch=then, else_branch=other),
    ]
    return wrapped(nodes, [value("x", (1, 3))], [value("y")])


def narrow(number: int, opset: int) -> Any:
    """A constant and an activation of a type numpy does not have, multiplied after casts."""
    weight = helper.make_tensor("w", number, [3], [1.0, -2.0, 3.0])
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], "constant", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["small"], "shrink", to=number),
        helper.make_node("Cast", ["small"], ["again"], "grow", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["again", "wide"], ["y"], "mul"),
    ]
    return wrapped(nodes, [value("x", (1, 3))], [value("y")], [weight], opset=opset)


def optional() -> Any:
    nodes = [
        helper.make_node("Optional", ["x"], ["o"], "wrap"),
        helper.make_node("OptionalHasElement", ["o"], ["there"], "ask"),
        helper.make_node("OptionalGetElement", ["o"], ["a"], "unwrap"),
        helper.make_node("Cast", ["there"], ["one"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "one"], ["y"], "add"),
    ]
    return wrapped(nodes, [value("x", (1, 3))], [value("y")])


def empty_sequence() -> Any:
    """A sequence that has no element to tell its type when it is handed on."""
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"], "none", dtype=TensorProto.INT64),
        helper.make_node("Cast", ["x"], ["whole"], "cast", to=TensorProto.INT64),
        helper.make_node("SequenceInsert", ["none", "whole"], ["one"], "insert"),
        helper.make_node("ConcatFromSequence", ["one"], ["joined"], "join", axis=0),
        helper.make_node("Cast", ["joined"], ["y"], "back", to=TensorProto.FLOAT),
    ]
    return wrapped(nodes, [value("x", (1, 3))], [value("y")])


CASES = {
    "Loop": (looping(), ["neg", "loop"]),
    "If": (branching(), ["total", "if"]),
    "bfloat16": (narrow(TensorProto.BFLOAT16, 17), ["shrink", "grow", "mul"]),
    "float8": (narrow(TensorProto.FLOAT8E4M3FN, 19), ["shrink", "grow", "mul"]),
    "int4": (narrow(TensorProto.INT4, 21), ["grow", "mul"]),
    "optional": (optional(), ["wrap", "unwrap", "cast", "add"]),
    "sequence": (empty_sequence(), ["back"]),
}


@pytest.mark.parametrize(("proto", "listed"), CASES.values(), ids=CASES)
def test_a_node_by_itself_computes_what_it_does_in_the_model(proto: Any, listed: Sequence[str]) -> None:
    model = in_memory(proto)
    [expected] = open_session(model).run({"x": X})
    runner = IntegerRunner(model, (), WIDEST)

    found = runner.run({"x": X}).values["y"]

    assert expected.any()
    assert np.array_equal(found, expected)
    assert [entry.node for entry in runner.report.float_nodes] == listed


def test_tensors_of_types_numpy_lacks_are_read_widened_and_taken_so() -> None:
    model = in_memory(narrow(TensorProto.BFLOAT16, 17))
    runner = IntegerRunner(model, (), WIDEST)

    whole = runner.run({"x": X}, ["w", "small", "y"]).values
    local = runner.run_local({"x": X, "small": whole["small"]}, ["y"]).values["y"]

    assert {whole["w"].dtype, whole["small"].dtype} == {np.dtype(np.float32)}
    assert whole["w"].tolist() == [1, -2, 3]
    assert np.array_equal(local, whole["y"])


def test_an_optional_tensor_of_the_float_model_is_not_taken_for_a_tensor() -> None:
    model: Model = in_memory(optional())
    floats: dict[str, Array] = {"x": X, "o": X, "a": X}

    local = IntegerRunner(model, (), WIDEST).run_local(floats, ["a"]).values["a"]

    assert np.array_equal(local, X)


def test_what_cannot_be_handed_on_is_named_with_a_way_out() -> None:
    node = helper.make_node("Identity", ["x"], ["y"], "copy")
    nodes = SingleNodes(in_memory(wrapped([node], [value("x")], [value("y")])), None)

    with pytest.raises(BadInput) as refused:
        nodes.run(node, [NonTensor(X, "sparse_tensor(float)")])

    assert "'copy' (Identity)" in refused.value.what
    assert "sparse_tensor(float)" in refused.value.what
    assert "--mode reference" in (refused.value.fix or "")
