"""What a node costs to run, estimated from shapes: good enough to cut a model into parts of like cost.

The same model and shapes always give the same figures, so that what depends on them can be repeated.
"""

from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Any

__all__ = ["BYTE_S", "Shapes", "node_products", "node_seconds"]

Shapes = Mapping[str, tuple[int, ...]]

# Of one core of a common machine: multiply-adds and bytes moved, and what starting a node takes.
_MULTIPLY_S = 1 / 40e9
BYTE_S = 1 / 5e9
"""Seconds to move one byte."""

_START_S = 1e-6
_VALUE_BYTES = 4


def node_seconds(node: Any, shapes: Shapes, constant: Collection[str] = ()) -> float:
    """Expected run time of a node in one sample.

    Args:
        node: The node.
        shapes: Shapes of tensors, constants included; what is not known counts as nothing.
        constant: Which of them are constants; they are read once for several samples.
    """
    touched = {name for name in (*node.input, *node.output) if name in shapes and name not in constant}
    moved = sum(_VALUE_BYTES * prod(shapes[name]) for name in touched)
    return _START_S + moved * BYTE_S + node_products(node, shapes) * _MULTIPLY_S


def node_products(node: Any, shapes: Shapes) -> int:
    """Products that a convolution or matrix product computes in one sample; 0 for all other nodes.

    Args:
        node: The node.
        shapes: Shapes of tensors, constants included; what is not known counts as nothing.
    """
    multiply = _MULTIPLIES.get(node.op_type)
    return 0 if multiply is None else multiply(node, shapes)


def _of_convolution(node: Any, shapes: Shapes) -> int:
    return _elements(node.output[0], shapes) * prod(_shape(node, 1, shapes)[1:])


def _of_transposed_convolution(node: Any, shapes: Shapes) -> int:
    return _elements(node.input[0], shapes) * prod(_shape(node, 1, shapes)[1:])


def _of_product(node: Any, shapes: Shapes) -> int:
    left = _shape(node, 0, shapes)
    turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return _elements(node.output[0], shapes) * (left[-2 if turned and len(left) > 1 else -1] if left else 0)


def _elements(name: str, shapes: Shapes) -> int:
    return prod(shapes[name]) if name in shapes else 0


def _shape(node: Any, position: int, shapes: Shapes) -> tuple[int, ...]:
    return shapes.get(node.input[position], ()) if position < len(node.input) else ()


_MULTIPLIES: Mapping[str, Callable[[Any, Shapes], int]] = {
    "Conv": _of_convolution,
    "ConvTranspose": _of_transposed_convolution,
    "Gemm": _of_product,
    "MatMul": _of_product,
}
