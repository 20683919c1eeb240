"""By what a graph is known again by a script that runs without us.

The function is written into the scripts as it stands here, so that both sides compute the same.
"""

import hashlib
from collections.abc import Callable
from typing import Any

__all__ = ["graph_digest"]


def graph_digest(graph: "Any", values: "Callable[[Any], Any]") -> str:
    """A hash of what a graph computes: operations and wires, and floating-point constants.

    Names of nodes and their order do not count, nor where constants are stored.

    Args:
        graph: An onnx.GraphProto.
        values: Gives the array of an onnx.TensorProto.
    """
    held = [(tensor.name, tensor) for tensor in graph.initializer]
    parts = []
    for node in graph.node:
        parts.append(repr((node.op_type, list(node.input), list(node.output))))
        held += [(node.output[0], each.t) for each in node.attribute if each.HasField("t")]
    for name, tensor in held:
        if tensor.data_type in (tensor.FLOAT, tensor.FLOAT16, tensor.DOUBLE):
            array = values(tensor)
            parts.append(repr((name, array.shape, hashlib.sha256(array.tobytes()).hexdigest())))
    return hashlib.sha256("\n".join(sorted(parts)).encode("utf-8", "surrogatepass")).hexdigest()
