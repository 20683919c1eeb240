"""What a quantized model says of its own tensors."""

from roundoff.graph.load import Model
from roundoff.graph.wiring import constants

__all__ = ["dequantized_tensors"]


def dequantized_tensors(model: Model) -> dict[str, str]:
    """For each tensor that is quantized and dequantized again, the tensor that comes out and is used in its place.

    Quantizers absorb the activation before them: the tensor that keeps the activation's name is then the one
    without it, and only behind the pair does it have the values that the name promises.
    """
    graph = model.proto.graph
    fixed = constants(graph)
    quantized = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in fixed
    }
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantized:
            found.setdefault(quantized[node.input[0]], node.output[0])
    return found
