"""Scales that are computed in each run."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import run_model
from tests.graph.readers.tools import attention, by_name, constant, node, ops, read_back, reference
from tests.models import conv_net, loaded, random_feed, value, wrapped

MICROSOFT = "com.microsoft"
CODES = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_of_a_dynamically_quantized_model_are_quantizers(tmp_path: Path, per_channel: bool) -> None:
    onnx.save(conv_net(), tmp_path / "float.onnx")
    quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "dynamic.onnx",
        weight_type=QuantType.QUInt8,
        per_channel=per_channel,
    )
    read = read_quantized(load_model(tmp_path / "dynamic.onnx"))

    assert ops(read) == ["Conv", "Relu", "Conv", "Relu", "GlobalAveragePool", "Flatten", "MatMul", "Add"]
    found = by_name(read)
    assert {name: each.kind for name, each in found.items()} == {"w1": "weight", "w2": "weight", "w3": "weight"}
    assert [oddity.kind for oddity in read.oddities] == ["dynamic"] * 3
    assert str(read.oddities[0].text) == (
        "'image' is quantized for 'Conv1' with a scale computed in each run; a quantizer has a fixed one, "
        "so it is float here, and only the weight is quantized"
    )
    feed = random_feed({"image": (1, 3, 8, 8)})
    expected = run_model(load_model(tmp_path / "float.onnx"), feed)[0]
    np.testing.assert_allclose(read_back(read, feed), expected, atol=0.01)


def test_products_of_two_activations_stay(tmp_path: Path) -> None:
    proto, shapes = attention()
    onnx.save(proto, tmp_path / "float.onnx")
    quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "dynamic.onnx",
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": False},
    )
    model = load_model(tmp_path / "dynamic.onnx")
    read = read_quantized(model)
    stays = [oddity for oddity in read.oddities if oddity.kind == "not_represented"]
    assert len(stays) == ops(read).count("MatMulInteger") == 2
    feed = random_feed(shapes)
    np.testing.assert_allclose(read_back(read, feed), reference(model, feed), atol=0.02)


def static_product(factor: float) -> list[Any]:
    return [
        node("QuantizeLinear", ["x", "s", "z"], "c"),
        node("MatMulInteger", ["c", "w", "z"], "sums"),
        node("Cast", ["sums"], "floats", to=1),
        node("Mul", ["floats", "product"], "y"),
    ]


def test_an_integer_product_with_fixed_scales(tmp_path: Path) -> None:
    held = {
        "s": np.float32(0.05),
        "z": np.uint8(120),
        "w": CODES,
        "product": np.float32(0.05) * np.float32(0.01),
    }
    weights = [constant(name, array) for name, array in held.items()]
    model = loaded(wrapped(static_product(0.01), [value("x", (2, 4))], [value("y")], weights), tmp_path)
    feed = random_feed({"x": (2, 4)})
    read = read_quantized(model)
    assert ops(read) == ["MatMul"]
    found = {each.kind: each for each in read.quantizers}
    assert float(found["weight"].params.scale) == pytest.approx(0.01)
    np.testing.assert_allclose(read_back(read, feed), reference(model, feed), rtol=1e-5, atol=1e-6)


def test_fused_operators(tmp_path: Path) -> None:
    held = {"w": CODES, "s": np.float32(0.01), "b": np.ones(3, np.float32)}
    fused = node("DynamicQuantizeMatMul", ["x", "w", "s", "", "b"], "y", domain=MICROSOFT)
    weights = [constant(name, array) for name, array in held.items()]
    proto = wrapped([fused], [value("x", (2, 4))], [value("y")], weights, domains={MICROSOFT: 1})
    model = loaded(proto, tmp_path)
    feed = random_feed({"x": (2, 4)})
    read = read_quantized(model)
    assert ops(read) == ["MatMul", "Add"]
    assert [oddity.kind for oddity in read.oddities] == ["dynamic"]
    np.testing.assert_allclose(read_back(read, feed), feed["x"] @ (CODES * np.float32(0.01)) + 1, rtol=1e-5)
