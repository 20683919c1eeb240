"""Identity and Dropout."""

import numpy as np
from onnx import TensorProto, helper

from tests.graph.preparation.comparing import constant, operations, prepared_alike
from tests.models import value, weight, with_if, wrapped


def test_nodes_that_do_nothing_are_taken_out() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["b"], name="neg"),
        helper.make_node("Dropout", ["b"], ["c", ""], name="drop"),
        helper.make_node("Identity", ["c"], ["d"], name="second"),
        helper.make_node("Abs", ["d"], ["e"], name="abs"),
        helper.make_node("Identity", ["e"], ["y"], name="last"),
    ]
    prepared = prepared_alike(wrapped(nodes, [value("x", (3,))], [value("y", (3,))]), {"x": (3,)}, rtol=0)
    assert operations(prepared.model) == ["Neg", "Abs"]
    assert prepared.origins == {
        "first": "", "neg": "neg", "drop": "neg", "second": "neg", "abs": "abs", "last": "abs",
    }  # fmt: skip
    assert tuple(map(str, prepared.notes)) == (
        "Identity and Dropout taken out, which do nothing: 'first', 'drop', 'second', 'last'",
    )


def test_outputs_that_need_their_identity_keep_it() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="of_input"),
        helper.make_node("Identity", ["w"], ["b"], name="of_constant"),
        helper.make_node("Neg", ["x"], ["c"], name="neg"),
        helper.make_node("Identity", ["c"], ["d"], name="of_output"),
    ]
    outputs = [value(name, (3,)) for name in "abcd"]
    prepared = prepared_alike(wrapped(nodes, [value("x", (3,))], outputs, [weight("w", 3)]), {"x": (3,)}, rtol=0)
    assert operations(prepared.model) == ["Identity", "Identity", "Neg", "Identity"]


def test_two_identities_of_one_output() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["c"], name="neg"),
        helper.make_node("Identity", ["c"], ["d"], name="one"),
        helper.make_node("Identity", ["c"], ["e"], name="two"),
        helper.make_node("Abs", ["c"], ["f"], name="abs"),
    ]
    outputs = [value(name, (3,)) for name in "def"]
    prepared = prepared_alike(wrapped(nodes, [value("x", (3,))], outputs), {"x": (3,)}, rtol=0)
    assert operations(prepared.model) == ["Neg", "Identity", "Abs"]


def test_branches_follow_a_new_name() -> None:
    proto = with_if()
    proto.graph.node.insert(1, helper.make_node("Identity", ["scaled"], ["same"], name="identity"))
    for attribute in proto.graph.node[4].attribute:
        attribute.g.node[0].input[0] = "same"
    prepared = prepared_alike(proto, {"x": (2, 3)}, rtol=0)
    assert "Identity" not in operations(prepared.model)


def test_dropout_that_may_drop_stays() -> None:
    ratio, off, on = constant("r", 0.5), constant("off", False, np.bool_), constant("on", True, np.bool_)
    nodes = [
        helper.make_node("Dropout", ["x", "r", "off"], ["a"], name="off"),
        helper.make_node("Dropout", ["a", "r", "t"], ["b"], name="decided"),
        helper.make_node("Dropout", ["b", "zero", "on"], ["c"], name="on"),
        helper.make_node("Dropout", ["c"], ["d", "mask"], name="masked"),
    ]
    inputs = [value("x", (3,)), value("t", (), TensorProto.BOOL)]
    outputs = [value("d", (3,)), value("mask", (3,), TensorProto.BOOL)]
    proto = wrapped(nodes, inputs, outputs, [ratio, off, on, constant("zero", 0.0)])
    feed = {"x": np.ones(3, np.float32), "t": np.array(False)}
    prepared = prepared_alike(proto, {}, feed=feed)
    assert [node.name for node in prepared.model.proto.graph.node] == ["decided", "on", "masked"]
    assert tuple(map(str, prepared.notes[1:])) == (
        "Dropout 'decided' stays: 't' decides at run time whether it drops",
        "Dropout 'on' stays: it is in training mode",
        "Dropout 'masked' stays: its mask is used",
    )
