"""Batch normalization behind a matrix product: scaled into its matrix, shifted in the addition behind it."""

from typing import Any

import numpy as np

from roundoff.graph.preparation.changes import CannotFold, change_constants
from roundoff.graph.preparation.draft import Draft
from roundoff.graph.preparation.normalization import normalization

__all__ = ["fold_into_product"]

_MATRIX = 1
_SHIFT = 2
"""Which input of a normalization is added in the end."""


def fold_into_product(draft: Draft, node: Any) -> bool:
    """Fold a BatchNormalization into the MatMul in front of it, or into a MatMul and the Add of a constant.

    Returns:
        False when there is no MatMul in front.

    Raises:
        CannotFold: There is one, but the node stays.
    """
    front: Any = draft.producer(node.input[0])
    side = _constant_side(draft, front)
    product = front if side is None else draft.producer(front.input[1 - side])
    if product is None or product.op_type != "MatMul" or not draft.is_constant(product.input[_MATRIX]):
        return False
    matrix_name = product.input[_MATRIX]
    shape = draft.constant_shape(matrix_name)
    # The channels of a normalization are axis 1; those of a product are the last axis.
    if len(shape) != 2 or draft.rank(product.output[0]) != 2:
        raise CannotFold("the channels of the product in front are on another axis, or its rank is not known")
    if not (draft.read_once(node.input[0]) and draft.read_once(product.output[0])):
        raise CannotFold("other nodes read the result of the layer in front too")
    affine = normalization(draft, node, shape[1])
    change = (product, _MATRIX, draft.constant(matrix_name).astype(np.float64) * affine.factor)
    if side is None:
        shifted = (node, _SHIFT, affine.offset)
        change_constants(draft, [change, shifted], dtype_of=matrix_name)
        draft.turn_into(node, "Add", [node.input[0], node.input[_SHIFT]])
        return True
    bias = draft.constant(front.input[side]).astype(np.float64)
    if bias.size not in (1, shape[1]) or (bias.ndim and bias.shape[-1] != bias.size):
        raise CannotFold("the bias of the layer in front differs between samples")
    offset = bias.ravel() * affine.factor + affine.offset
    change_constants(draft, [change, (front, side, offset)], dtype_of=matrix_name)
    draft.remove(node, into=front.name)
    draft.rename_output(front, 0, node.output[0])
    return True


def _constant_side(draft: Draft, node: Any) -> int | None:
    """Which input of an Add is constant; None when it is no Add, or not one input of it is."""
    if node is None or node.op_type != "Add":
        return None
    sides = [side for side, name in enumerate(node.input) if draft.is_constant(name)]
    return sides[0] if len(sides) == 1 else None
