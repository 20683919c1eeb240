from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import TensorInfo
from roundoff.graph.shapes import tensor_infos, values
from tests.models import conv_net, loaded, single_node, two_outputs, value, weight, with_if, with_sequence, wrapped

UNKNOWN = "its shape is not known before the model runs"


def test_all_tensors_come_in_execution_order_with_their_nodes(tmp_path: Path) -> None:
    infos = tensor_infos(loaded(conv_net(), tmp_path))

    assert [info.name for info in infos] == [
        "image", "conv1", "relu1", "conv2", "relu2", "pooled", "flat", "logits",
    ]  # fmt: skip
    assert infos[0] == TensorInfo("image", "float32", (1, 3, 8, 8))
    assert infos[1] == TensorInfo("conv1", "float32", (1, 4, 8, 8), node="Conv1", op_type="Conv")


def test_dynamic_shapes_are_unknown_until_actual_ones_are_given(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)

    assert {info.problem for info in tensor_infos(model)} == {UNKNOWN}
    infos = tensor_infos(model, {"image": (5, 3, 8, 8)})
    assert {info.problem for info in infos} == {""}
    assert infos[-1].shape == (5, 10)


def test_stale_shapes_of_the_file_do_not_outweigh_actual_ones(tmp_path: Path) -> None:
    model = conv_net("N")
    model.graph.value_info.append(value("relu1", (1, 4, 8, 8)))
    model.graph.output[0].CopyFrom(value("logits", (1, 10)))

    infos = {info.name: info for info in tensor_infos(loaded(model, tmp_path), {"image": (5, 3, 8, 8)})}

    assert infos["relu1"].shape == (5, 4, 8, 8)
    assert infos["logits"].shape == (5, 10)


def test_shapes_that_follow_from_values_are_found(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    numbers = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()]
    model = loaded(wrapped(nodes, [value("x", ("N", 2, 3))], [value("y")], weights), tmp_path)

    assert tensor_infos(model, {"x": (4, 2, 3)})[-1].shape == (4, 6)


def test_declared_shapes_stand_in_for_operators_onnx_does_not_know(tmp_path: Path) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    model = wrapped([node], [value("x", (2, 3))], [value("y", (2, 3))], domains={"com.microsoft": 1})

    assert tensor_infos(loaded(model, tmp_path))[-1].shape == (2, 3)


def test_output_indices_count_absent_outputs(tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["", "where"])
    k = numpy_helper.from_array(np.array([1]), "k")
    model = loaded(wrapped([node], [value("x", (3,))], [value("where", None, TensorProto.INT64)], [k]), tmp_path)

    assert [(found.name, found.output_index) for found in values(model)] == [("x", 0), ("where", 1)]
    assert [found.output_index for found in values(loaded(two_outputs(), tmp_path))] == [0, 0, 1, 0]


def test_values_that_are_no_tensors_of_numbers_say_so(tmp_path: Path) -> None:
    problems = {info.name: info.problem for info in tensor_infos(loaded(with_sequence(), tmp_path))}

    assert problems["parts"] == "it is of the kind sequence, not a tensor"
    assert problems["text"] == "it holds text, not numbers"


def test_types_numpy_lacks_are_announced_as_they_will_be_read(tmp_path: Path) -> None:
    model = single_node(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16), [value("x", (2, 3))])
    found = values(loaded(model, tmp_path))[-1]

    assert found.info().dtype == "float32"
    assert found.size_bytes == 2 * 3 * 4


def test_a_model_that_cannot_be_inferred_still_lists_its_tensors(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    model = loaded(single_node(node, [value("x", (1, 2))], [weight("w", 3, 3)]), tmp_path)

    assert [info.name for info in tensor_infos(model)] == ["x", "y"]


def test_outputs_of_an_if_are_listed_and_its_inside_is_not(tmp_path: Path) -> None:
    names = [info.name for info in tensor_infos(loaded(with_if(), tmp_path))]

    assert names == ["x", "scaled", "total", "positive", "chosen", "y"]
