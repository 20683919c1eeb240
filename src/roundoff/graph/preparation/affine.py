"""What is multiplied and added per channel goes into the layer in front: batch normalization, and its parts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from roundoff.graph.preparation.changes import CannotFold, change_constants, set_attribute
from roundoff.graph.preparation.draft import Draft, named
from roundoff.graph.preparation.layers import linear_layer
from roundoff.graph.preparation.normalization import NORMALIZATION, Affine, normalization
from roundoff.graph.preparation.products import fold_into_product

__all__ = ["fold_affine"]

_PARTS = ("Mul", "Div", "Add", "Sub")
_WEIGHT, _BIAS = 1, 2
_KEPT = "it was asked to keep it"


def fold_affine(draft: Draft, *, may_fold: Callable[[str], bool] = lambda _: True) -> None:
    """Fold BatchNormalization, and constants that are multiplied or added per channel, into the layer in front.

    The result has the name that it had behind the last node folded. Computed in float64.

    Args:
        draft: The model.
        may_fold: Whether a node, by its name, may be folded or folded into.
    """
    folded: dict[str, list[str]] = {}
    stays: dict[str, list[str]] = {}
    for node in draft.of_type(NORMALIZATION, *_PARTS):
        op_type = node.op_type
        try:
            _fold(draft, node, may_fold)
            folded.setdefault(op_type, []).append(node.name)
        except CannotFold as reason:
            # The parts may be anything; only of a normalization is it expected that it goes away.
            if op_type == NORMALIZATION:
                stays.setdefault(str(reason), []).append(node.name)
    for op_type, names in folded.items():
        draft.notes.append(f"{op_type} folded into the layer in front: {named(names)}")
    for why, names in stays.items():
        draft.notes.append(f"{NORMALIZATION} stays, because {why}: {named(names)}")


def _fold(draft: Draft, node: Any, may_fold: Callable[[str], bool]) -> None:
    """Fold one node.

    Raises:
        CannotFold: It stays.
    """
    if not may_fold(node.name):
        raise CannotFold(_KEPT)
    if node.op_type == NORMALIZATION and fold_into_product(draft, node):
        return
    side = 0 if node.op_type == NORMALIZATION else _moving_side(draft, node)
    source = node.input[side]
    layer = linear_layer(draft, source)
    if not may_fold(layer.node.name):
        raise CannotFold(_KEPT)
    if not draft.read_once(source):
        raise CannotFold("other nodes read the result of the layer in front too")
    if node.op_type == NORMALIZATION:
        affine = normalization(draft, node, layer.channels)
    else:
        affine = _part(draft, node, side, rank=layer.rank, channels=layer.channels)
    weight = layer.scaled_weight(draft, affine.factor)
    bias = layer.bias(draft) * affine.factor + affine.offset
    change_constants(draft, [(layer.node, _WEIGHT, weight), (layer.node, _BIAS, bias)], dtype_of=layer.weight)
    if layer.node.op_type == "Gemm":
        set_attribute(layer.node, "beta", 1.0)
    draft.remove(node, into=layer.node.name)
    draft.rename_output(layer.node, 0, node.output[0])


def _moving_side(draft: Draft, node: Any) -> int:
    """Which input is not constant."""
    constant = [draft.is_constant(name) for name in node.input]
    if sum(constant) != 1 or (node.op_type == "Div" and constant[0]):
        raise CannotFold("it is not a multiplication or addition of a constant")
    return constant.index(False)


def _part(draft: Draft, node: Any, side: int, *, rank: int, channels: int) -> Affine:
    values = draft.constant(node.input[1 - side]).astype(np.float64)
    shape = (1,) * (rank - values.ndim) + values.shape
    # One number for all channels is mostly a piece of an activation function, which targets know as a whole.
    if values.size != channels or channels == 1 or len(shape) != rank or shape[1] != channels:
        raise CannotFold("its constant is not one number per channel")
    flat = values.ravel()
    zeros, ones = np.zeros(channels), np.ones(channels)
    if node.op_type == "Mul":
        return Affine(flat, zeros)
    if node.op_type == "Div":
        with np.errstate(divide="ignore"):
            return Affine(1 / flat, zeros)
    if node.op_type == "Add":
        return Affine(ones, flat)
    return Affine(ones, -flat) if side == 0 else Affine(-ones, flat)
