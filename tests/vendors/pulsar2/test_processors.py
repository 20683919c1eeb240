"""Changes of the float model: shapes, constants, attributes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.run.session import open_session
from roundoff.vendors.pulsar2.config.schema import BuildConfig, ConstProcessor, OpProcessor
from roundoff.vendors.pulsar2.patches import edited_model
from tests.models import conv_net, value, wrapped

MODEL = Path("model.onnx")


def reshaping() -> Any:
    """x -> Reshape to a constant shape -> Add a constant -> Softmax."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"], name="Reshape"),
        helper.make_node("Constant", [], ["bias"], name="Bias", value_floats=[0.0, 0.0]),
        helper.make_node("Add", ["flat", "bias"], ["sum"], name="Add"),
        helper.make_node("Softmax", ["sum"], ["out"], name="Softmax", axis=1),
    ]
    weights = [numpy_helper.from_array(np.array([2, 2], np.int64), "shape")]
    return wrapped(nodes, [value("x", (1, 4))], [value("out", (2, 2))], weights)


def edited(proto: Any, base: Path | None = None, **changes: Any) -> tuple[Model, tuple[str, ...]]:
    return edited_model(model_from_proto(proto, path=MODEL), BuildConfig(**changes), base=base)


def run(model: Model, **feed: Array) -> Array:
    (result,) = open_session(model).run(feed)
    return result


def refused(proto: Any, base: Path | None = None, **changes: Any) -> str:
    with pytest.raises(BadInput) as caught:
        edited(proto, base, **changes)
    return str(caught.value)


def test_nothing_to_change_leaves_the_model_alone() -> None:
    model = model_from_proto(reshaping(), path=MODEL)
    assert edited_model(model, BuildConfig()) == (model, ())


def test_shapes_of_inputs() -> None:
    model, notes = edited(conv_net("N"), input_shapes="image:2x3x10x6")
    assert inputs(model)[0].shape == (2, 3, 10, 6)
    assert run(model, image=np.zeros((2, 3, 10, 6), np.float32)).shape == (2, 10)
    assert notes == ("input image: float32 [N, 3, 8, 8] becomes [2, 3, 10, 6]",)
    assert "the model has no input 'imag'" in refused(conv_net(), input_shapes="imag:1x3x8x8")
    assert "of 4 axes, not 2" in refused(conv_net(), input_shapes="image:1x3")


@pytest.mark.parametrize("name", ["data", "c.npy", "c.txt", "c.bin"])
def test_constants_from_everywhere(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.array([4, -1], np.int64))
    (tmp_path / "c.txt").write_text("4,\n -1", encoding="utf-8")
    (tmp_path / "c.bin").write_bytes(np.array([4, -1], "<i8").tobytes())
    given = {"data": (4.0, -1.0)} if name == "data" else {"data_path": name}
    model, notes = edited(
        reshaping(), tmp_path, const_processors=(ConstProcessor("shape", **given),), op_processors=()
    )
    assert notes == ("constant shape: 2 values replaced",)
    (shape,) = (numpy_helper.to_array(each) for each in model.proto.graph.initializer)
    np.testing.assert_array_equal(shape, [4, -1])
    assert shape.dtype == np.int64


def test_a_constant_node_gets_other_values() -> None:
    model, _ = edited(reshaping(), const_processors=(ConstProcessor("bias", (0.0, 50.0)),))
    np.testing.assert_allclose(run(model, x=np.zeros((1, 4), np.float32)), [[0, 1], [0, 1]], atol=1e-6)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (ConstProcessor("shap", (1.0,)), "the model has no constant 'shap'; did you mean 'shape'?"),
        (ConstProcessor("shape", (1.0,)), "holds int64 [2], 2 values in all, but data has 1"),
        (ConstProcessor("shape", (1.5, 1.0)), "is of int64, which cannot hold 1.5"),
        (ConstProcessor("bias", (1e300, 1.0)), "is of float32, which cannot hold 1e+300"),
        (ConstProcessor("shape", (1.0, 2.0), "c.npy"), "'shape' has both data and data_path (c.npy)"),
        (ConstProcessor("shape", data_path="c.json"), "which is of no known kind"),
        (ConstProcessor("shape", data_path="none.bin"), "none.bin does not exist"),
        (ConstProcessor("shape", data_path="odd.bin"), "has 3 bytes, which are no whole number of int64"),
        (ConstProcessor("shape", data_path="odd.txt"), "holds something that is no number"),
        (ConstProcessor("shape", data_path="odd.npy"), "is not a .npy file"),
    ],
)
def test_constants_that_do_not_fit(processor: ConstProcessor, message: str, tmp_path: Path) -> None:
    for name in ("odd.bin", "odd.txt", "odd.npy"):
        (tmp_path / name).write_bytes(b"a b")
    assert message in refused(reshaping(), tmp_path, const_processors=(processor,))


def test_attributes() -> None:
    attrs = {"axis": 0.0}
    model, notes = edited(reshaping(), op_processors=(OpProcessor("Softmax", attrs),))
    values = np.array([[1, 2, 3, 4]], np.float32)
    shares = np.exp(values.reshape(2, 2))
    np.testing.assert_allclose(run(model, x=values), shares / shares.sum(axis=0), rtol=1e-6)
    assert notes == ("operation Softmax (Softmax): axis becomes 0.0",)


def test_an_attribute_that_was_not_given_before() -> None:
    model, _ = edited(conv_net(), op_processors=(OpProcessor("Conv1", {"pads": [1, 1, 1, 1], "strides": [2, 2]}),))
    node = next(each for each in model.proto.graph.node if each.name == "Conv1")
    assert {each.name: list(each.ints) for each in node.attribute} == {"pads": [1] * 4, "strides": [2, 2]}
    run(model, image=np.zeros((1, 3, 8, 8), np.float32))


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (OpProcessor("Softmx", {"axis": 1}), "has no operation 'Softmx'; did you mean 'Softmax'?"),
        (OpProcessor("Softmax", {"axes": 1}), "there is no attribute 'axes'; did you mean 'axis'?"),
        (OpProcessor("Add", {"axis": 1}), "there is no attribute 'axis'; Add has no attributes"),
        (OpProcessor("Softmax", {"axis": "1"}), "'axis' takes a whole number of 64 bits, not '1'"),
        (OpProcessor("Softmax", {"axis": [1]}), "'axis' takes a whole number of 64 bits, not [1]"),
        (OpProcessor("Softmax", {"axis": 10**30}), "'axis' takes a whole number of 64 bits, not 1000"),
        (OpProcessor("Bias", {"value_float": 10**400}), "'value_float' takes a number of 32 bits, not 1000"),
        (OpProcessor("Bias", {"value": 1}), "'value' is a tensor or a graph"),
        (OpProcessor("Bias", {"value_floats": ["a"]}), "'value_floats' takes a list of numbers"),
        (OpProcessor("Bias", {"value_string": 1}), "'value_string' takes a text"),
    ],
)
def test_attributes_that_do_not_fit(processor: OpProcessor, message: str) -> None:
    assert message in refused(reshaping(), op_processors=(processor,))


def test_attributes_of_foreign_operations_keep_their_type() -> None:
    node = helper.make_node("Odd", ["x"], ["out"], name="Odd", domain="mine", level=1.5)
    proto = wrapped([node], [value("x", (1,))], [value("out", (1,))], domains={"mine": 1})
    model, _ = edited(proto, op_processors=(OpProcessor("Odd", {"level": 2}),))
    (attribute,) = model.proto.graph.node[0].attribute
    assert (attribute.type, attribute.f) == (TensorProto.FLOAT, 2.0)
