"""Where channels are."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.graph.shapes import channel_axes, values, weight_axis
from tests.models import loaded, value, weight, wrapped


def test_channels_are_followed_through_the_network(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], name="conv"),
        helper.make_node("Relu", ["conv"], ["act"], name="act"),
        helper.make_node("Transpose", ["act"], ["last"], name="turn", perm=[0, 2, 1]),
        helper.make_node("Add", ["last", "last"], ["sum"], name="add"),
        helper.make_node("MatMul", ["sum", "m"], ["product"], name="product"),
        helper.make_node("Transpose", ["product"], ["back"], name="back", perm=[0, 2, 1]),
        helper.make_node("Reshape", ["back", "shape"], ["flat"], name="reshape"),
        helper.make_node("Transpose", ["flat"], ["turned"], name="reverse"),
        helper.make_node("ReduceSum", ["turned"], ["scalar"], name="reduce", keepdims=0),
    ]
    shape = numpy_helper.from_array(np.array([2, 18], np.int64), "shape")
    weights = [weight("w", 6, 3, 3), weight("m", 6, 4), shape]
    outputs = [value("turned"), value("scalar")]
    model = loaded(wrapped(nodes, [value("x", (1, 3, 11))], outputs, weights), tmp_path)
    axes = channel_axes(model, values(model, {"x": (1, 3, 11)}))
    assert axes == {
        "x": 2, "conv": 1, "act": 1, "last": 2, "sum": 2, "product": 2, "back": 1, "flat": 1, "turned": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 3, 8, 8), 1), ((1, 8, 8, 3), 3), ((1, 8, 8, 8), 1), ((2, 9), 1), ((1, 5, 16), 2)]
)
def test_inputs(tmp_path: Path, shape: tuple[int, ...], axis: int) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="act")]
    model = loaded(wrapped(nodes, [value("x", shape)], [value("y")]), tmp_path)
    assert channel_axes(model, values(model, {"x": shape})) == {"x": axis, "y": axis}


def test_weights() -> None:
    assert weight_axis("Conv", 4) == 0
    assert weight_axis("ConvTranspose", 4) == 1
    assert weight_axis("MatMul", 2) == 1
    assert weight_axis("Gemm", 2, transposed=True) == 0
    assert weight_axis("Add", 1) == weight_axis("Gemm", 1) == 0
