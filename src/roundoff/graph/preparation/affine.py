"""What is multiplied and added per channel goes into the layer in front: batch normalization, and its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.draft import CannotFold, Draft, change_constants, named
from roundoff.graph.nodes import STANDARD_DOMAINS, attribute, input_at, set_attribute
from roundoff.messages.message import english, message

# Linear layers with constant weights, whose results can be scaled and shifted per channel at no cost.


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A Conv, ConvTranspose or Gemm with a constant weight.

    Attributes:
        node: The node.
        weight: Name of its weight.
        channels: Channels of its result, which are axis 1.
        rank: Axes of its result.
    """

    node: Any
    weight: str
    channels: int
    rank: int

    def scaled_weight(self, draft: Draft, factor: Array) -> Array:
        """The weight with each output channel multiplied by its factor, as float64."""
        values = draft.constants.value(self.weight).astype(np.float64)
        if self.node.op_type == "Conv":
            return np.asarray(values * factor.reshape(-1, *[1] * (self.rank - 1)))
        if self.node.op_type == "Gemm":
            return np.asarray(values * (factor[:, None] if attribute(self.node, "transB", 0) else factor))
        groups = attribute(self.node, "group", 1)
        split = values.reshape(groups, -1, *values.shape[1:])
        return np.asarray(split * factor.reshape(groups, 1, -1, *[1] * (self.rank - 2))).reshape(values.shape)

    def bias(self, draft: Draft) -> Array:
        """What is added to each channel, as float64 of shape [C].

        Raises:
            CannotFold: It is computed, or not the same for all samples.
        """
        name = input_at(self.node, _BIAS)
        if not name:
            return np.zeros(self.channels)
        if name not in draft.constants:
            raise CannotFold(english("the bias of the layer in front is computed"))
        values = draft.constants.value(name).astype(np.float64)
        if values.size not in (1, self.channels) or (values.ndim and values.shape[-1] != values.size):
            raise CannotFold(english("the bias of the layer in front differs between samples"))
        factor = attribute(self.node, "beta", 1.0) if self.node.op_type == "Gemm" else 1.0
        return np.broadcast_to(values.ravel() * factor, (self.channels,))


def linear_layer(draft: Draft, tensor: str) -> LinearLayer:
    """The layer that computes a tensor.

    Raises:
        CannotFold: There is none, or its weight is computed.
    """
    node = draft.producer(tensor)
    if (
        node is None
        or node.op_type not in ("Conv", "ConvTranspose", "Gemm")
        or node.domain not in STANDARD_DOMAINS
    ):
        raise CannotFold(english("there is no layer with weights in front"))
    weight = node.input[_WEIGHT]
    if weight not in draft.constants:
        raise CannotFold(english("the weight of the layer in front is computed"))
    shape = draft.constants.shape(weight)
    if node.op_type == "Conv":
        channels = shape[0]
    elif node.op_type == "Gemm":
        channels = shape[0 if attribute(node, "transB", 0) else 1]
    else:
        channels = shape[1] * attribute(node, "group", 1)
    return LinearLayer(node, weight, channels, len(shape))


# Batch normalization as what it is outside of training: one factor and one offset per channel.

NORMALIZATION = "BatchNormalization"
_DEFAULT_EPSILON = float(np.float32(1e-5))


@dataclass(frozen=True, slots=True)
class Affine:
    """``factor * x + offset`` for each channel.

    Attributes:
        factor: float64 of shape [C].
        offset: float64 of shape [C].
    """

    factor: Array
    offset: Array

    def __post_init__(self) -> None:
        """Refuse what would spread over the whole channel.

        Raises:
            CannotFold: A number is not finite.
        """
        if not (np.isfinite(self.factor).all() and np.isfinite(self.offset).all()):
            raise CannotFold(english("it divides by zero, or its parameters are not finite"))


def normalization(draft: Draft, node: Any, channels: int) -> Affine:
    """What a BatchNormalization computes.

    Raises:
        CannotFold: It is in training, computes its parameters, or does not fit the layer in front.
    """
    extra = any(draft.readers(name) or name in draft.outputs for name in node.output[1:] if name)
    if attribute(node, "training_mode", 0) or extra:
        raise CannotFold(english("it is in training mode"))
    if not attribute(node, "spatial", 1):
        raise CannotFold(english("it has statistics for each position"))
    names = node.input[1:5]
    if not all(name in draft.constants for name in names):
        raise CannotFold(english("its parameters are computed"))
    scale, offset, mean, variance = (draft.constants.value(name).astype(np.float64).ravel() for name in names)
    if {scale.size, offset.size, mean.size, variance.size} != {channels}:
        raise CannotFold(english("it has another number of channels than the layer in front"))
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = scale / np.sqrt(variance + attribute(node, "epsilon", _DEFAULT_EPSILON))
        return Affine(factor, offset - mean * factor)


# Batch normalization behind a matrix product: scaled into its matrix, shifted in the addition behind it.

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
    if product is None or product.op_type != "MatMul" or product.input[_MATRIX] not in draft.constants:
        return False
    matrix_name = product.input[_MATRIX]
    shape = draft.constants.shape(matrix_name)
    # The channels of a normalization are axis 1; those of a product are the last axis.
    if len(shape) != 2 or draft.rank(product.output[0]) != 2:
        raise CannotFold(
            english("the channels of the product in front are on another axis, or its rank is not known")
        )
    if not (draft.read_once(node.input[0]) and draft.read_once(product.output[0])):
        raise CannotFold(english("other nodes read the result of the layer in front too"))
    affine = normalization(draft, node, shape[1])
    change = (product, _MATRIX, draft.constants.value(matrix_name).astype(np.float64) * affine.factor)
    if side is None:
        shifted = (node, _SHIFT, affine.offset)
        change_constants(draft, [change, shifted], dtype_of=matrix_name)
        draft.turn_into(node, "Add", [node.input[0], node.input[_SHIFT]])
        return True
    bias = draft.constants.value(front.input[side]).astype(np.float64)
    if bias.size not in (1, shape[1]) or (bias.ndim and bias.shape[-1] != bias.size):
        raise CannotFold(english("the bias of the layer in front differs between samples"))
    offset = bias.ravel() * affine.factor + affine.offset
    change_constants(draft, [change, (front, side, offset)], dtype_of=matrix_name)
    draft.remove(node, into=front.name)
    draft.rename_output(front, 0, node.output[0])
    return True


def _constant_side(draft: Draft, node: Any) -> int | None:
    """Which input of an Add is constant; None when it is no Add, or not one input of it is."""
    if node is None or node.op_type != "Add":
        return None
    sides = [side for side, name in enumerate(node.input) if name in draft.constants]
    return sides[0] if len(sides) == 1 else None


_PARTS = ("Mul", "Div", "Add", "Sub")
_WEIGHT, _BIAS = 1, 2
_KEPT = english("it was asked to keep it")


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
        draft.notes.append(message("graph.folded", op=op_type, names=named(names)))
    for why, names in stays.items():
        draft.notes.append(message("graph.not_folded", op=NORMALIZATION, why=why, names=named(names)))


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
        raise CannotFold(english("other nodes read the result of the layer in front too"))
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


def fold_forward(draft: Draft, *, may_fold: Callable[[str], bool] = lambda _: True) -> None:
    """Fold BatchNormalization, and factors and terms per channel behind it, into the convolution that reads it.

    Exact only without padding: padded zeros would be shifted along.

    Args:
        draft: The model, of which all that goes into layers in front is folded.
        may_fold: Whether a node, by its name, may be folded or folded into.
    """
    folded = []
    for node in draft.of_type("Conv"):
        try:
            folded += _fold_chain(draft, node, may_fold)
        except CannotFold:
            continue
    if folded:
        draft.notes.append(message("graph.folded", op=NORMALIZATION, names=named(folded)))


def _fold_chain(draft: Draft, conv: Any, may_fold: Callable[[str], bool]) -> list[str]:
    """Fold what stands in front of one convolution, from a normalization on; gives the names of what is gone.

    Raises:
        CannotFold: It stays.
    """
    weight = conv.input[_WEIGHT]
    padded = any(attribute(conv, "pads", [0])) or attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if padded or weight not in draft.constants or not may_fold(conv.name):
        raise CannotFold(_KEPT)
    values = draft.constants.value(weight).astype(np.float64)
    groups = attribute(conv, "group", 1)
    channels = values.shape[1] * groups
    chain: list[Any] = []
    factor, offset = np.ones(channels), np.zeros(channels)
    source = conv.input[0]
    while not chain or chain[-1].op_type != NORMALIZATION:
        node = draft.producer(source)
        if node is None or not draft.read_once(source) or not may_fold(node.name):
            raise CannotFold(_KEPT)
        if node.op_type == NORMALIZATION:
            side, part = 0, normalization(draft, node, channels)
        elif node.op_type in _PARTS:
            side = _moving_side(draft, node)
            part = _part(draft, node, side, rank=values.ndim, channels=channels)
        else:
            raise CannotFold(_KEPT)
        # Nearer to the convolution comes later: what is known so far is applied to this node's result.
        factor, offset = factor * part.factor, factor * part.offset + offset
        chain.append(node)
        source = node.input[side]
    layer = linear_layer(draft, conv.output[0])
    spread = (1, -1, *[1] * (values.ndim - 2))
    split = values.reshape(groups, -1, *values.shape[1:])
    scaled = [each * own.reshape(spread) for each, own in zip(split, factor.reshape(groups, -1), strict=True)]
    moved = [each * own.reshape(spread) for each, own in zip(split, offset.reshape(groups, -1), strict=True)]
    bias = layer.bias(draft) + np.concatenate(moved).sum(axis=tuple(range(1, values.ndim)))
    change_constants(draft, [(conv, _WEIGHT, np.concatenate(scaled)), (conv, _BIAS, bias)], dtype_of=weight)
    draft.set_input(conv, 0, source)
    for node in chain:
        draft.remove(node, into=conv.name)
    return [node.name for node in chain if node.op_type == NORMALIZATION]


def _moving_side(draft: Draft, node: Any) -> int:
    """Which input is not constant."""
    constant = [name in draft.constants for name in node.input]
    if sum(constant) != 1 or (node.op_type == "Div" and constant[0]):
        raise CannotFold(english("it is not a multiplication or addition of a constant"))
    return constant.index(False)


def _part(draft: Draft, node: Any, side: int, *, rank: int, channels: int) -> Affine:
    values = draft.constants.value(node.input[1 - side]).astype(np.float64)
    shape = (1,) * (rank - values.ndim) + values.shape
    # One number for all channels is mostly a piece of an activation function, which targets know as a whole.
    if values.size != channels or channels == 1 or len(shape) != rank or shape[1] != channels:
        raise CannotFold(english("its constant is not one number per channel"))
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
