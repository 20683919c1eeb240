"""How much quantization hurts a layer: what users derive from, and three measures of it."""

import math
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.metrics import ratio_db

__all__ = ["CosineSimilaritySensitivity", "MseSensitivity", "SensitivityBase", "SqnrSensitivity"]

_MOST_DB = 200.0
"""What two equal outputs get instead of an infinite ratio, which JSON cannot hold."""


class SensitivityBase:
    """Compares what a layer computes in float with what it computes quantized.

    Attributes:
        higher_is_better: Whether a higher number means that the layer suffers less. Rankings are made accordingly;
            a class that says nothing is taken to mean it, as AMCT does.
    """

    higher_is_better: bool = True

    def compare(self, data: Any, other: Any) -> float:
        """One number for two outputs.

        Args:
            data: What the float layer computes, flat.
            other: What the quantized layer computes, flat.
        """
        raise NotImplementedError("a sensitivity needs a method compare()")

    @staticmethod
    def normalize_data(data: Any) -> Array:
        """Values moved and scaled into the range from 0 to 1."""
        values = np.asarray(data, np.float32)
        low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
        return np.asarray((values - low) / (high - low + np.finfo(np.float32).eps))


class CosineSimilaritySensitivity(SensitivityBase):
    """Cosine of both outputs, brought into the range from 0 to 1; blind for a gain that all elements share."""

    def compare(self, data: Any, other: Any) -> float:
        """1 for outputs of the same direction."""
        left, right = (np.asarray(each, np.float64).ravel() for each in (data, other))
        if not left.any():
            return 1.0
        if not right.any():
            return 0.0
        cosine = float(left @ right) / math.sqrt(float(left @ left) * float(right @ right))
        return 0.5 + 0.5 * cosine


class MseSensitivity(SensitivityBase):
    """Length of the difference over the number of elements, as AMCT has it; lower is better, and ranked so.

    Args:
        do_normalization: Bring both outputs into the range from 0 to 1 first.
    """

    higher_is_better = False

    def __init__(self, do_normalization: bool = False) -> None:
        self._normalized = do_normalization

    def compare(self, data: Any, other: Any) -> float:
        """0 for equal outputs."""
        left, right = (
            self.normalize_data(each).astype(np.float64) if self._normalized else np.asarray(each, np.float64)
            for each in (data, other)
        )
        return float(np.linalg.norm(left - right)) / max(1, len(left))


class SqnrSensitivity(SensitivityBase):
    """Signal over quantization noise in decibels: sees a gain too, which the cosine does not."""

    def compare(self, data: Any, other: Any) -> float:
        """The higher, the smaller the difference is against the output."""
        left, right = (np.asarray(each, np.float64).ravel() for each in (data, other))
        noise, signal = float(np.sum((left - right) ** 2)), float(np.sum(left**2))
        return max(-_MOST_DB, min(_MOST_DB, ratio_db(signal, noise)))
