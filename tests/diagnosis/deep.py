"""A network in which no place is to blame: many layers that all lose a little."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from tests.models import wrapped

CHIP = 'extends = "generic-int8"\ndescription = "4-bit weights"\ndefault_weight = "s4"\n'
WIDTH = 24


def save_deep(path: Path, layers: int = 10) -> None:
    """Matrix products of random weights with Relu between them."""
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for at in range(layers):
        values = (rng.standard_normal((WIDTH, WIDTH)) * np.sqrt(2 / WIDTH)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{at}"))
        last = at == layers - 1
        nodes.append(helper.make_node("MatMul", [name, f"w{at}"], ["y" if last else f"h{at}"], name=f"fc{at}"))
        if not last:
            nodes.append(helper.make_node("Relu", [f"h{at}"], [f"r{at}"], name=f"relu{at}"))
        name = f"r{at}"
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, WIDTH]) for each in ("x", "y")]
    onnx.save(wrapped(nodes, ends[:1], ends[1:], weights), path)


def deep_inputs(count: int = 48) -> Array:
    """What it is fed."""
    return np.random.default_rng(1).standard_normal((count, WIDTH)).astype(np.float32)
