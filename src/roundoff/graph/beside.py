"""Parts of models that are made only to be run: large weights stay beside them.

To put a weight into another model copies it, and so do serializing it and reading it again. A session takes
weights as they are.
"""

from collections.abc import Iterable
from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.element_types import by_number
from roundoff.graph.external import declared_outside, stored_bytes

__all__ = ["add_declared"]

# Weights of shapes, axes and the like must be seen when the graph is opened; they are small.
_SMALL_BYTES = 4096
_GIVEN_BESIDE = frozenset({"float32", "float64"})


def add_declared(graph: Any, initializers: Iterable[Any]) -> dict[str, Array]:
    """Add initializers to a graph, large ones without their values; gives these.

    Args:
        graph: The `onnx.GraphProto` to add to.
        initializers: `onnx.TensorProto`s.
    """
    from onnx.numpy_helper import to_array

    values: dict[str, Array] = {}
    for tensor in initializers:
        element = by_number(tensor.data_type)
        # The size by shape is asked first: to look at the data copies it.
        large = element is not None and element.dtype in _GIVEN_BESIDE and stored_bytes(tensor) > _SMALL_BYTES
        if large and tensor.HasField("raw_data"):
            values[tensor.name] = to_array(tensor)
            graph.initializer.append(declared_outside(tensor.name, values[tensor.name]))
        else:
            graph.initializer.append(tensor)
    return values
