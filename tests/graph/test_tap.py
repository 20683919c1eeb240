from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from roundoff.errors import BadInput
from roundoff.graph.subgraph import TappedModel, detached, tap, tap_shapes
from roundoff.run.session import open_session
from tests.models import conv_net, loaded, value, weight, with_if, wrapped


def test_only_outputs_are_added(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    before = model.proto.SerializeToString(deterministic=True)

    taps = tap(model, ["relu1", "logits", "image", "w1", "relu1"])

    tapped = onnx.ModelProto.FromString(taps.data)
    assert taps.outputs == ("relu1", "logits", "image", "w1", "relu1")
    assert [value.name for value in tapped.graph.output] == ["logits", "relu1", "image", "w1"]
    del tapped.graph.output[1:]
    assert tapped.SerializeToString(deterministic=True) == before
    assert model.proto.SerializeToString(deterministic=True) == before


def test_shapes_are_computed_beside_the_tensors(tmp_path: Path) -> None:
    taps = tap_shapes(loaded(conv_net(), tmp_path), ["relu1"])

    assert taps.outputs == ("relu1//shape",)
    assert onnx.ModelProto.FromString(taps.data).graph.node[-1].op_type == "Shape"


def test_tensors_inside_a_subgraph_are_out_of_reach_and_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        tap(loaded(with_if(), tmp_path), ["inner_Relu"])

    assert caught.value.what == (
        "Tensor 'inner_Relu' is computed inside node 'choose' and cannot be seen from outside."
    )
    assert caught.value.fix == "take the outputs of 'choose' instead"


@pytest.mark.parametrize("function", [tap, tap_shapes])
def test_an_unknown_tensor_is_answered_with_the_nearest(
    tmp_path: Path, function: Callable[..., TappedModel]
) -> None:
    with pytest.raises(BadInput) as caught:
        function(loaded(conv_net(), tmp_path), ["relu_1"])

    assert "has no tensor 'relu_1'" in caught.value.what
    assert caught.value.fix == "did you mean 'relu1'?"


def test_bytes_are_what_onnx_reads(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    tapped = onnx.ModelProto.FromString(tap(model, ["conv1"]).data)

    weights = [onnx.numpy_helper.to_array(tensor) for tensor in tapped.graph.initializer]
    for mine, theirs in zip(weights, model.proto.graph.initializer, strict=True):
        np.testing.assert_array_equal(mine, onnx.numpy_helper.to_array(theirs))


def test_larger_weights_can_be_given_beside_the_model(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Reshape", ["a", "shape"], ["y"], name="fold"),
    ]
    shape = numpy_helper.from_array(np.array([80], np.int64), "shape")
    model = loaded(wrapped(nodes, [value("x", (2, 40))], [value("y")], [weight("w", 40, 40), shape]), tmp_path)
    taps = detached(model)
    assert taps.outputs == ("y",)
    assert list(taps.constants) == ["w"]
    assert len(taps.data) < 1000
    assert all(tensor.raw_data for tensor in model.proto.graph.initializer)
    x = np.ones((2, 40), np.float32)
    found, expected = (open_session(model, outputs=each).run({"x": x})[0] for each in (taps, None))
    np.testing.assert_array_equal(found, expected)
