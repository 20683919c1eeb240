"""Files as they come: third-party models, weights outside the file, functions, missing names."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.readers import float_model as twin
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import run_model
from tests.graph.readers.tools import by_name, constant, node, ops, read_back, reference, small
from tests.models import loaded, random_feed, value, weight, wrapped
from tests.real_models import real_models

FEED = random_feed({"x": (2, 3)}, seed=1)


@pytest.mark.parametrize(
    "path", [each for each in real_models() if each.id in ("none", "mobilenet_v2_qnnpack_qdq")]
)
def test_the_third_party_model_is_read_bit_for_bit(path: Path) -> None:
    model = load_model(path)
    read = read_quantized(model)

    assert len(read.quantizers) == 172
    assert [each.kind for each in read.quantizers].count("weight") == 53
    assert read.oddities == ()
    assert not {"QuantizeLinear", "DequantizeLinear", "Identity", "Cast"} & set(ops(read))
    feed = random_feed({"image": (1, 3, 244, 244)})
    expected = reference(model, feed)
    np.testing.assert_array_equal(read_back(read, feed), expected)
    np.testing.assert_array_equal(read_back(read, feed, bake=True), expected)
    # With all quantizers off it is still the same network.
    floats = run_model(read.float_model, feed)[0]
    assert np.corrcoef(floats.ravel(), expected.ravel())[0, 1] > 0.98


def outside(folder: Path) -> onnx.ModelProto:
    """A large float weight in a file of its own, quantized in the graph."""
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], "c"),
        node("DequantizeLinear", ["c", "s", "z"], "wq"),
        node("MatMul", ["x", "wq"], "y"),
    ]
    held = [weight("w", 3, 400), constant("s", np.float32(0.01)), constant("z", np.int8(0))]
    proto = wrapped(nodes, [value("x", (2, 3))], [value("y")], held)
    onnx.save(
        proto, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=1000
    )
    return proto


def test_float_weights_outside_the_file_are_not_read(tmp_path: Path) -> None:
    outside(tmp_path)
    model = load_model(tmp_path / "model.onnx")
    expected = reference(model, FEED)
    data = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").unlink()

    read = read_quantized(model)

    assert [each.tensor for each in read.quantizers] == ["w"]
    (tmp_path / "weights.bin").write_bytes(data)
    np.testing.assert_array_equal(read_back(read, FEED), expected)


def test_weights_too_large_for_memory_need_the_float_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin, "_MOST_BYTES", 100)
    nodes = [node("DequantizeLinear", ["c", "s"], "w"), node("MatMul", ["x", "w"], "y")]
    model = small(tmp_path, nodes, {"c": np.ones((3, 10), np.int8), "s": np.float32(0.1)})
    with pytest.raises(BadInput, match="more than a model in memory can hold") as refused:
        read_quantized(model)
    assert "--float" in refused.value.fix

    (tmp_path / "float").mkdir()
    source = small(tmp_path / "float", [node("MatMul", ["x", "w"], "y")], {"w": np.full((3, 10), 0.1, np.float32)})
    moved = read_quantized(model, float_model=source)
    assert [(each.tensor, each.codes) for each in moved.quantizers] == [("w", None)]


def test_quantizers_inside_functions(tmp_path: Path) -> None:
    body = [
        helper.make_node("QuantizeLinear", ["v", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["r"]),
    ]
    function = helper.make_function("own", "Fake", ["v", "s", "z"], ["r"], body, [helper.make_opsetid("", 17)])
    nodes = [node("Fake", ["x", "s", "z"], "q", domain="own"), node("Neg", ["q"], "y")]
    held = [constant("s", np.float32(0.05)), constant("z", np.uint8(100))]
    proto = wrapped(nodes, [value("x", (2, 3))], [value("y")], held, domains={"own": 1})
    proto.functions.append(function)
    model = loaded(proto, tmp_path)
    read = read_quantized(model)
    assert (ops(read), [each.tensor for each in read.quantizers]) == (["Neg"], ["x"])
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_nodes_without_names_and_with_one_name_for_two(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"], name="same"),
        helper.make_node("QuantizeLinear", ["d", "t", "z"], ["e"], name="same"),
        helper.make_node("DequantizeLinear", ["e", "t", "z"], ["f"]),
        helper.make_node("Neg", ["f"], ["y"]),
    ]
    model = small(tmp_path, nodes, {"s": np.float32(0.1), "t": np.float32(0.3), "z": np.int8(0)})
    read = read_quantized(model)
    assert [(each.name, each.after) for each in read.quantizers] == [("x", ""), ("x_2", "x")]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_the_oldest_files_list_their_weights_as_inputs(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", ["c", "s", "z"], "w"), node("MatMul", ["x", "w"], "y")]
    held = [constant("c", np.ones((3, 2), np.int8)), constant("s", np.float32(0.1)), constant("z", np.int8(0))]
    inputs = [value("x", (2, 3)), value("c", (3, 2), 3), value("s", ()), value("z", (), 3)]
    model = loaded(wrapped(nodes, inputs, [value("y")], held, opset=10, ir_version=3), tmp_path)
    read = read_quantized(model)
    assert by_name(read)["w"].kind == "weight"
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))
