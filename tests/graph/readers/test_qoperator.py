"""Operators on codes, each against onnxruntime's own kernel."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.graph.load import Model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.readers.tools import by_name, constant, node, ops, read_back, reference
from tests.models import loaded, random_feed, value, wrapped

MICROSOFT = "com.microsoft"
STEP = 0.04


def model_of(folder: Path, middle: Any, shape: tuple[int, ...], constants: dict[str, Any], zero: Any) -> Model:
    """x is quantized to `c`, the node turns it into `d`, that is dequantized to y."""
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], "c"),
        middle,
        node("DequantizeLinear", ["d", "sy", "zy"], "y"),
    ]
    held = {"sx": np.float32(STEP), "zx": zero, "sy": np.float32(STEP), "zy": zero, **constants}
    weights = [constant(name, array) for name, array in held.items()]
    proto = wrapped(nodes, [value("x", shape)], [value("y")], weights, domains={MICROSOFT: 1})
    return loaded(proto, folder)


X, Y = ["c", "sx", "zx"], ["sy", "zy"]
IMAGE = (1, 2, 4, 4)
SIGNED = np.int8(3)
KERNEL = np.arange(-18, 18, dtype=np.int8).reshape(2, 2, 3, 3)
CASES: dict[str, tuple[Any, tuple[int, ...], dict[str, Any], str]] = {
    "QLinearConv": (
        node("QLinearConv", [*X, "w", "sw", "zw", *Y, "b"], "d", pads=[1] * 4),
        IMAGE,
        {
            "w": KERNEL,
            "sw": np.array([0.01, 0.02], np.float32),
            "zw": np.zeros(2, np.int8),
            "b": np.array([40, -9], np.int32),
        },
        "Conv",
    ),
    "QLinearMatMul": (
        node("QLinearMatMul", [*X, "w", "sw", "zw", *Y], "d"),
        (2, 4),
        {
            "w": KERNEL.ravel()[:12].reshape(4, 3),
            "sw": np.array([0.01, 0.02, 0.03], np.float32),
            "zw": np.zeros(3, np.int8),
        },
        "MatMul",
    ),
    "QGemm": (
        node("QGemm", [*X, "w", "sw", "zw", "b", *Y], "d", domain=MICROSOFT, transB=1, alpha=0.5),
        (2, 4),
        {
            "w": KERNEL.ravel()[:12].reshape(3, 4),
            "sw": np.float32(0.02),
            "zw": np.int8(0),
            "b": np.arange(3, dtype=np.int32),
        },
        "Gemm",
    ),
    "QLinearAdd": (
        node("QLinearAdd", [*X, *X, *Y], "d", domain=MICROSOFT), (2, 4), {}, "Add",
    ),
    "QLinearMul": (
        node("QLinearMul", [*X, *X, *Y], "d", domain=MICROSOFT), (2, 4), {}, "Mul",
    ),
    "QLinearConcat": (
        node("QLinearConcat", [*Y, *X, *X], "d", domain=MICROSOFT, axis=1), (2, 4), {}, "Concat",
    ),
    "QLinearAveragePool": (
        node("QLinearAveragePool", [*X, *Y], "d", domain=MICROSOFT, kernel_shape=[2, 2]), IMAGE, {}, "AveragePool",
    ),
    "QLinearGlobalAveragePool": (
        node("QLinearGlobalAveragePool", [*X, *Y], "d", domain=MICROSOFT, channels_last=0),
        IMAGE,
        {},
        "GlobalAveragePool",
    ),
    "QLinearSigmoid": (
        node("QLinearSigmoid", [*X, *Y], "d", domain=MICROSOFT), (2, 4), {}, "Sigmoid",
    ),
    "QLinearLeakyRelu": (
        node("QLinearLeakyRelu", [*X, *Y], "d", domain=MICROSOFT, alpha=0.1), (2, 4), {}, "LeakyRelu",
    ),
    "QLinearSoftmax": (
        node("QLinearSoftmax", [*X, *Y], "d", domain=MICROSOFT, axis=-1, opset=17), (2, 4), {}, "Softmax",
    ),
    "QLinearWhere": (
        node("QLinearWhere", ["yes", *X, *X, *Y], "d", domain=MICROSOFT),
        (2, 4),
        {"yes": np.array([True, False, True, True])},
        "Where",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("middle", "shape", "constants", "expected"), CASES.values(), ids=CASES)
def test_each_operator_becomes_its_float_version(
    tmp_path: Path, middle: Any, shape: tuple[int, ...], constants: dict[str, Any], expected: str
) -> None:
    model = model_of(tmp_path, middle, shape, constants, SIGNED)
    feed = random_feed({"x": shape}, seed=4)
    read = read_quantized(model)

    assert ops(read) == [expected]
    assert read.oddities == ()
    # The kernels compute in their own order, and some round halves up: the last step may differ.
    difference = np.abs(read_back(read, feed) - reference(model, feed))
    assert difference.max() <= STEP * 1.001
    assert (difference < STEP / 2).mean() > 0.75


def test_weights_and_bias_of_a_convolution(tmp_path: Path) -> None:
    middle, shape, constants, _ = CASES["QLinearConv"]
    found = by_name(read_quantized(model_of(tmp_path, middle, shape, constants, SIGNED)))
    weights = next(each for each in found.values() if each.kind == "weight")
    bias = next(each for each in found.values() if each.kind == "bias")
    assert (weights.spec.dtype, weights.spec.axis, weights.consumers[0].input) == ("s8", 0, 1)
    np.testing.assert_array_equal(bias.params.scale, np.float32(STEP) * constants["sw"])
    assert (bias.spec.dtype, bias.spec.axis, bias.consumers[0].input) == ("s32", 0, 2)


def test_a_product_that_gives_values_needs_no_output_scale(tmp_path: Path) -> None:
    _, shape, constants, _ = CASES["QGemm"]
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], "c"),
        node("QGemm", [*X, "w", "sw", "zw", "b"], "y", domain=MICROSOFT, transB=1),
    ]
    held = {"sx": np.float32(STEP), "zx": SIGNED, **constants}
    weights = [constant(name, array) for name, array in held.items()]
    model = loaded(wrapped(nodes, [value("x", shape)], [value("y")], weights, domains={MICROSOFT: 1}), tmp_path)
    feed = random_feed({"x": shape}, seed=4)
    read = read_quantized(model)
    assert ops(read) == ["Gemm"]
    np.testing.assert_allclose(read_back(read, feed), reference(model, feed), rtol=1e-5, atol=1e-6)


def test_an_operator_without_float_version_stays_and_is_named(tmp_path: Path) -> None:
    middle = node("QLinearGlobalAveragePool", [*X, *Y], "d", domain=MICROSOFT, channels_last=1)
    model = model_of(tmp_path, middle, IMAGE, {}, SIGNED)
    read = read_quantized(model)
    assert ops(read) == ["QuantizeLinear", "QLinearGlobalAveragePool", "DequantizeLinear"]
    assert read.oddities[0].kind == "not_represented"
    assert "it keeps channels last" in str(read.oddities[0].text)
    feed = random_feed({"x": IMAGE})
    np.testing.assert_array_equal(read_back(read, feed), reference(model, feed))


def test_weights_packed_by_blocks_of_2_bits_are_named(tmp_path: Path) -> None:
    packed = node("MatMulNBits", ["x", "w", "s"], "y", domain=MICROSOFT, K=32, N=2, bits=2, block_size=32)
    held = [constant("w", np.zeros((2, 1, 8), np.uint8)), constant("s", np.ones(2, np.float32))]
    proto = wrapped([packed], [value("x", (1, 32))], [value("y")], held, domains={MICROSOFT: 1})
    read = read_quantized(loaded(proto, tmp_path))
    (oddity,) = read.oddities
    assert str(oddity.text) == (
        "MatMulNBits 'y_MatMulNBits' stays as it is: "
        "its meaning cannot be said with quantizers and float operators"
    )


def test_values_get_the_name_of_the_codes(tmp_path: Path) -> None:
    middle = node("QLinearSigmoid", [*X, *Y], "d", domain=MICROSOFT)
    after = node("QLinearSigmoid", ["d", *Y, *Y], "e_quantized", domain=MICROSOFT)
    nodes = [node("QuantizeLinear", ["x", "sx", "zx"], "c"), middle, after]
    nodes += [node("DequantizeLinear", ["e_quantized", "sy", "zy"], "f"), node("Neg", ["f"], "y")]
    held = {"sx": np.float32(STEP), "zx": SIGNED, "sy": np.float32(STEP), "zy": SIGNED}
    weights = [constant(name, array) for name, array in held.items()]
    model = loaded(wrapped(nodes, [value("x", (2, 4))], [value("y")], weights, domains={MICROSOFT: 1}), tmp_path)
    assert [each.tensor for each in read_quantized(model).quantizers] == ["x", "d", "e"]
