"""Weights with a scale per block: read as quantizers whose values are those that the file computes with."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.nodes import make_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.units import NodePrecisions

OUTER, BLOCK = 12, 16
RNG = np.random.default_rng(0)


def _model(nodes: list[Any], constants: dict[str, Array], inner: int, **versions: Any) -> Model:
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", OUTER])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return Model(make_model(graph, **versions), Path("blocks.onnx"), 0)


def nbits(bits: int, inner: int, *, zeros: bool = False) -> Model:
    """A MatMulNBits; codes and scales are random, which is all that reading needs."""
    count = -(-inner // BLOCK)
    packed = BLOCK * bits // 8
    constants: dict[str, Array] = {
        "codes": RNG.integers(0, 256, size=(OUTER, count, packed), dtype=np.uint8),
        "scales": RNG.uniform(0.01, 0.1, size=OUTER * count).astype(np.float32),
    }
    if zeros:
        width = count if bits == 8 else -(-count // 2)
        constants["zeros"] = RNG.integers(0, 256, size=OUTER * width, dtype=np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", *constants], ["y"], name="product", domain="com.microsoft",
        K=inner, N=OUTER, bits=bits, block_size=BLOCK,
    )  # fmt: skip
    return _model([node], constants, inner, domains={"com.microsoft": 1})


def signed(model: Model) -> Model:
    """With scales below zero, as onnxruntime has them where the largest value of a block is positive, and zero."""
    [held] = [each for each in model.proto.graph.initializer if each.name == "scales"]
    scales = numpy_helper.to_array(held).copy()
    scales.reshape(-1)[::3] *= -1
    scales.reshape(-1)[4::7] = 0
    held.CopyFrom(numpy_helper.from_array(scales, "scales"))
    return model


def narrow(model: Model) -> Model:
    """With signed codes of 4 bits."""
    [held] = [each for each in model.proto.graph.initializer if each.name == "codes"]
    codes = numpy_helper.to_array(held) // 16
    held.CopyFrom(helper.make_tensor("codes", TensorProto.INT4, codes.shape, codes.ravel()))
    return model


def blocked(axis: int, *, zeros: bool = False, inner: int = 3 * BLOCK) -> Model:
    """A DequantizeLinear with blocks along an axis, and the product that reads it."""
    shape = (inner, OUTER) if axis == 0 else (OUTER, inner)
    scales = [-(-size // BLOCK) if at == axis else size for at, size in enumerate(shape)]
    constants: dict[str, Array] = {
        "codes": RNG.integers(-128, 128, size=shape, dtype=np.int8),
        "scales": RNG.uniform(0.01, 0.1, size=scales).astype(np.float32),
    }
    if zeros:
        constants["zeros"] = RNG.integers(-20, 20, size=scales, dtype=np.int8)
    nodes = [helper.make_node("DequantizeLinear", [*constants], ["w"], name="dq", axis=axis, block_size=BLOCK)]
    if axis == 1:
        nodes.append(helper.make_node("Transpose", ["w"], ["turned"], name="turn", perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", nodes[-1].output[0]], ["y"], name="product"))
    return _model(nodes, constants, inner, opset=21, ir_version=10)


def run(model: Model, x: Array) -> Array:
    # Optimized, onnxruntime rounds what products of blocks read to 8 bits.
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


MODELS = {
    "4 bits": lambda: nbits(4, 3 * BLOCK),
    "4 bits, zero points": lambda: nbits(4, 3 * BLOCK, zeros=True),
    "8 bits": lambda: nbits(8, 3 * BLOCK),
    "8 bits, zero points": lambda: nbits(8, 3 * BLOCK, zeros=True),
    "last block not full": lambda: nbits(4, 3 * BLOCK - 4),
    "blocks of rows": lambda: blocked(0),
    "blocks of columns": lambda: blocked(1, zeros=True),
    "4 bits, scales below zero": lambda: signed(nbits(4, 3 * BLOCK)),
    "4 bits, zero points, scales below zero": lambda: signed(nbits(4, 3 * BLOCK - 3, zeros=True)),
    "8 bits, scales below zero": lambda: signed(nbits(8, 3 * BLOCK)),
    "signed codes of 4 bits": lambda: narrow(blocked(0)),
    "signed codes of 4 bits, scales below zero": lambda: signed(narrow(blocked(0))),
    "blocks longer than the weight": lambda: blocked(0, inner=BLOCK - 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_computes_what_the_file_does(name: str) -> None:
    model = MODELS[name]()
    inner = model.proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    x = np.random.default_rng(3).standard_normal((5, inner)).astype(np.float32)
    read = read_quantized(model)
    assert not read.oddities
    (quantizer,) = read.quantizers
    assert quantizer.spec.bits == (4 if "4" in name or "full" in name else 8)
    expected = run(model, x)
    np.testing.assert_allclose(run(read.float_model, x), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        run(switch_on(read.float_model, read.quantizers), x), expected, rtol=1e-4, atol=1e-4
    )


def test_the_product_has_a_quantized_weight() -> None:
    read = read_quantized(nbits(4, 3 * BLOCK))
    seen = NodePrecisions(read.float_model, read.quantizers)
    (node,) = (each for each in seen.nodes if each.op_type == "MatMul")
    # Without zero points codes lie around the middle one: signed codes around zero.
    assert seen.effective(node).weight == "s4"
