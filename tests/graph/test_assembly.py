"""A model under construction."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model
from roundoff.graph.nodes import opset_of
from tests.models import conv_net, value, with_if, wrapped


def test_it_begins_with_the_frame_of_a_model() -> None:
    source = conv_net()
    source.doc_string = "about it"
    source.metadata_props.add(key="made", value="by hand")
    frame = Assembly(Model(source, Path("m.onnx"), 0))
    proto = frame.proto
    assert frame.opset == 17
    assert (proto.doc_string, proto.producer_name) == ("about it", "roundoff")
    assert proto.metadata_props == source.metadata_props
    assert (proto.graph.input, proto.graph.output) == (source.graph.input, source.graph.output)
    assert not proto.graph.node
    assert not proto.graph.initializer


def test_names_in_branches_are_taken_too() -> None:
    frame = Assembly(Model(with_if(), Path("m.onnx"), 0))
    assert [frame.free_tensor(name) for name in ("inner_Relu", "inner_Relu", "scaled", "new")] == [
        "inner_Relu_2",
        "inner_Relu_3",
        "scaled_2",
        "new",
    ]
    assert frame.add_constant(np.zeros(1), "two") == "two_2"


def test_a_model_without_an_opset_has_the_first() -> None:
    assert opset_of(onnx.ModelProto()) == 1
    node = helper.make_node("Relu", ["x"], ["y"])
    assert opset_of(wrapped([node], [value("x")], [value("y")], opset=13)) == 13
