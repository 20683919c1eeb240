"""Constants of a model, wherever they are kept."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.weights import Weights
from tests.models import loaded, value, weight, wrapped


def test_initializers_and_constant_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["tensor"], value=numpy_helper.from_array(np.arange(3.0), "")),
        helper.make_node("Constant", [], ["number"], value_float=0.5),
        helper.make_node("Constant", [], ["numbers"], value_ints=[1, 2]),
        helper.make_node("Relu", ["w"], ["y"]),
    ]
    weights = Weights(loaded(wrapped(nodes, [], [value("y")], [weight("w", 2, 3)]), tmp_path))
    assert sorted(weights) == ["number", "numbers", "tensor", "w"]
    assert len(weights) == 4
    np.testing.assert_array_equal(weights["tensor"], [0.0, 1.0, 2.0])
    assert weights["number"].dtype == np.float32
    assert weights["number"].shape == ()
    assert weights["numbers"].dtype == np.int64
    assert weights.shape("w") == (2, 3)
    assert weights.shape("numbers") == (2,)
    with pytest.raises(BadInput, match="has no constant 'tensr'") as caught:
        weights.require("tensr")
    assert caught.value.fix == "did you mean 'tensor'?"


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT4])
def test_values_outside_the_file_are_those_inside(tmp_path: Path, kind: int) -> None:
    tensor = helper.make_tensor("w", kind, [5], [1, -2, 3, 4, -5])
    expected = numpy_helper.to_array(tensor)
    tensor = numpy_helper.from_array(expected, "w")
    nodes = [helper.make_node("Identity", ["w"], ["y"], name="n")]
    proto = wrapped(nodes, [], [value("y", elem_type=kind)], [weight("other", 3), tensor], opset=21, ir_version=10)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=0)
    weights = Weights(load_model(path))
    assert weights["w"].dtype == expected.dtype
    np.testing.assert_array_equal(weights["w"], expected)
    assert not weights.protos["w"].raw_data, "values are not kept"


def test_empty_weights_outside_the_file(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["w"], ["y"], name="n")]
    held = numpy_helper.from_array(np.zeros((0, 2), np.float32), "w")
    proto = wrapped(nodes, [], [value("y")], [held, weight("other", 3)])
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    assert Weights(load_model(tmp_path / "m.onnx"))["w"].shape == (0, 2)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    proto = wrapped([helper.make_node("Relu", ["w"], ["y"])], [], [value("y")], [weight("w", 4)])
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].float_data.extend((1.0, 2.0, 3.0))
    with pytest.raises(BadInput, match=r"values of 'w' in .*model\.onnx cannot be read"):
        Weights(loaded(proto, tmp_path))["w"]
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [2]),
        [4],
    )
    proto = wrapped([helper.make_node("Constant", [], ["y"], sparse_value=sparse)], [], [value("y")])
    with pytest.raises(BadInput, match="sparse constants are not supported"):
        Weights(loaded(proto, tmp_path))["y"]
    onnx.save(
        wrapped([helper.make_node("Relu", ["w"], ["y"])], [], [value("y")], [weight("w", 400)]),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="data",
        size_threshold=0,
    )
    weights = Weights(load_model(tmp_path / "m.onnx"))
    (tmp_path / "data").write_bytes(b"short")
    with pytest.raises(BadInput, match="the file is shorter than it was"):
        weights["w"]
