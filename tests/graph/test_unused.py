"""Constants that nothing reads."""

import numpy as np
from onnx import helper, numpy_helper

from roundoff.graph.save import drop_unused
from tests.models import value, weight, with_if, wrapped


def test_only_what_nothing_reads_goes() -> None:
    held = numpy_helper.from_array(np.ones(2, np.float32))
    nodes = [
        helper.make_node("Constant", [], ["read"], name="a", value=held),
        helper.make_node("Constant", [], ["unread"], name="b", value=held),
        helper.make_node("Add", ["x", "read"], ["y"], name="add"),
    ]
    listed = [value("x", (2,)), value("default", (2,))]
    weights = [weight("default", 2), weight("leaves", 2), weight("nothing", 2)]
    graph = wrapped(nodes, listed, [value("y"), value("leaves")], weights).graph
    drop_unused(graph)
    assert [node.name for node in graph.node] == ["a", "add"]
    assert [tensor.name for tensor in graph.initializer] == ["leaves"]
    assert [each.name for each in graph.input] == ["x"]


def test_what_a_branch_reads_stays() -> None:
    proto = with_if()
    proto.graph.initializer.append(weight("inside", 3))
    proto.graph.node[3].attribute[0].g.node[0].input[0] = "inside"
    drop_unused(proto.graph)
    assert {tensor.name for tensor in proto.graph.initializer} == {"two", "zero", "inside"}
