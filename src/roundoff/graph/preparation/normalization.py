"""Batch normalization as what it is outside of training: one factor and one offset per channel."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.preparation.changes import CannotFold, attribute
from roundoff.graph.preparation.draft import Draft

__all__ = ["NORMALIZATION", "Affine", "normalization"]

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
            raise CannotFold("it divides by zero, or its parameters are not finite")


def normalization(draft: Draft, node: Any, channels: int) -> Affine:
    """What a BatchNormalization computes.

    Raises:
        CannotFold: It is in training, computes its parameters, or does not fit the layer in front.
    """
    extra = any(draft.readers(name) or name in draft.outputs for name in node.output[1:] if name)
    if attribute(node, "training_mode", 0) or extra:
        raise CannotFold("it is in training mode")
    if not attribute(node, "spatial", 1):
        raise CannotFold("it has statistics for each position")
    names = node.input[1:5]
    if not all(map(draft.is_constant, names)):
        raise CannotFold("its parameters are computed")
    scale, offset, mean, variance = (draft.constant(name).astype(np.float64).ravel() for name in names)
    if {scale.size, offset.size, mean.size, variance.size} != {channels}:
        raise CannotFold("it has another number of channels than the layer in front")
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = scale / np.sqrt(variance + attribute(node, "epsilon", _DEFAULT_EPSILON))
        return Affine(factor, offset - mean * factor)
