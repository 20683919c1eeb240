"""What a quantize/dequantize pair says of a tensor."""

from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from roundoff.graph.quantized_model import dequantized_tensors
from tests.models import loaded, value, wrapped


def test_the_dequantized_tensor_stands_for_the_one_before_the_pair(tmp_path: Path) -> None:
    weights = [
        numpy_helper.from_array(np.float32(0.1), "s"),
        numpy_helper.from_array(np.uint8(0), "z"),
        numpy_helper.from_array(np.ones((2, 2), np.float32), "w"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "s", "z"], ["x_dq"]),
        helper.make_node("DequantizeLinear", ["x_q", "s", "z"], ["x_dq_again"]),
        # A weight that is quantized in the graph is a constant, not a tensor of the reference.
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["w_q"]),
        helper.make_node("DequantizeLinear", ["w_q", "s", "z"], ["w_dq"]),
        helper.make_node("MatMul", ["x_dq", "w_dq"], ["y"]),
    ]
    model = wrapped(nodes, [value("x", [1, 2])], [value("y")], weights)
    assert dequantized_tensors(loaded(model, tmp_path)) == {"x": "x_dq"}
