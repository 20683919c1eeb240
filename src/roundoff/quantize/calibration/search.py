"""Searching the range with the smallest loss, for all rows at the same time."""

import math
from collections.abc import Callable

import numpy as np

from roundoff.core.quantization import parameters_from_range
from roundoff.core.quantizer import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.distribution import Distribution, Levels

__all__ = ["NEGLIGIBLE", "Loss", "find_range", "levels_of"]

Loss = Callable[[Array, Array], Array]
"""The loss of candidate ranges: low and high, [rows, candidates], to [rows, candidates]."""

# Candidates to a doubling in the first look.
_PER_DOUBLING = 6
# Candidates on both sides of the best one so far, at the distances of each closer look (powers of two).
_AROUND = 4
_CLOSER = (1 / 32, 1 / 128)
_MOST_DOUBLINGS = 40
NEGLIGIBLE = 1e-4
"""A narrower range whose loss is smaller by less than this share is not taken."""


def levels_of(low: Array, high: Array, spec: QuantSpec) -> Levels:
    """The levels of the quantizers that ranges lead to."""
    params = parameters_from_range(low, high, spec)
    step = params.scale.astype(np.float64)
    first = (spec.code_min - params.zero_point).astype(np.float64)
    return Levels(step, first, first + (spec.code_max - spec.code_min), floor=spec.rounding == "floor")


def find_range(
    distribution: Distribution, loss: Loss, *, first_look: Loss | None = None, symmetric: bool
) -> tuple[Array, Array]:
    """The range with the smallest loss within what was observed; of equal losses the widest.

    Ranges are shrunk as a whole, down to where half of the elements that are not zero would be clipped; then,
    unless one number decides both sides, each side by itself; then looked at more closely around the best.

    Args:
        distribution: Of the elements.
        loss: What to minimize.
        first_look: A cheaper estimate of it, for all but the closer look.
        symmetric: Whether one number decides both sides.
    """
    low, high = np.minimum(distribution.low, 0.0), np.maximum(distribution.high, 0.0)
    search = _Search(loss if first_look is None else first_look, low, high)
    shrinking = _shrinking(distribution.typical(), np.maximum(high, -low))
    two_sided = not symmetric and bool(np.any((low < 0) & (high > 0)))
    if two_sided:
        one_sided = np.append(shrinking, np.zeros((len(shrinking), 1)), axis=1)
        whole = np.ones_like(one_sided)
        search.try_factors((shrinking, shrinking), (whole, one_sided), (one_sided, whole))
        kept_low, kept_high = (np.broadcast_to(kept[:, None], whole.shape) for kept in search.factors)
        search.try_factors((kept_low, one_sided), (one_sided, kept_high))
    else:
        search.try_factors((shrinking, shrinking))
    if first_look is not None:
        search.judge_again(loss)
    for distance in _CLOSER:
        search.try_around(2.0 ** (distance * np.arange(_AROUND, -_AROUND - 1, -1)), two_sided=two_sided)
    return search.low, search.high


def _shrinking(typical: Array, largest: Array) -> Array:
    """Factors of the range, from 1 to where it ends at the typical magnitude; [rows, candidates]."""
    smallest = np.divide(typical, largest, out=np.ones_like(largest), where=largest > 0)
    doublings = min(_MOST_DOUBLINGS, -math.log2(max(float(smallest.min(initial=1.0)), 2.0**-_MOST_DOUBLINGS)))
    powers = np.arange(math.ceil(doublings * _PER_DOUBLING) + 1) / -_PER_DOUBLING
    return np.maximum(2.0**powers, smallest[:, None])


class _Search:
    """The best ranges so far, as parts of the whole range.

    Attributes:
        factors: Of the lower and the upper end, [2, rows].

    Args:
        loss: What to minimize.
        low: Lower end of the whole range of each row, at most 0.
        high: Upper end, at least 0.
    """

    def __init__(self, loss: Loss, low: Array, high: Array) -> None:
        self._loss = loss
        self._ends = np.stack([low, high])
        self._best = np.full(low.shape, np.inf)
        self.factors = np.ones_like(self._ends)

    @property
    def low(self) -> Array:
        """Lower ends of the best ranges."""
        return np.asarray(self._ends[0] * self.factors[0])

    @property
    def high(self) -> Array:
        """Upper ends of the best ranges."""
        return np.asarray(self._ends[1] * self.factors[1])

    def judge_again(self, loss: Loss) -> None:
        """Let another loss choose between the best ranges so far and the whole ones."""
        found, self.factors = self.factors, np.ones_like(self.factors)
        self._loss, self._best = loss, np.full_like(self._best, np.inf)
        self._try(np.stack([np.ones_like(found), found], axis=2))

    def try_factors(self, *pairs: tuple[Array, Array]) -> None:
        """Try parts of the whole range: pairs of factors of its lower and upper end, each [rows, candidates]."""
        self._try(np.stack([np.concatenate([pair[end] for pair in pairs], axis=1) for end in (0, 1)]))

    def try_around(self, steps: Array, *, two_sided: bool) -> None:
        """Try multiples of the best range so far, none larger than the whole one; [candidates]."""
        kept = self.factors[:, :, None]
        both = np.minimum(kept * steps, 1.0)
        if two_sided:
            same = np.broadcast_to(kept, both.shape)
            both = np.concatenate([both, np.stack([same[0], both[1]]), np.stack([both[0], same[1]])], axis=2)
        self._try(both)

    def _try(self, candidates: Array) -> None:
        """Keep the best of the candidates, [ends, rows, candidates], where it is better than the best so far.

        Candidates come with the widest first, and narrower ones must earn it.
        """
        low, high = self._ends[:, :, None] * candidates
        # Without any width the scale would be 1, whatever the values are.
        nothing = (low == high) & np.any(self._ends != 0, axis=0)[:, None]
        losses = np.where(nothing, np.inf, self._loss(low, high))
        rows = np.arange(losses.shape[0])
        chosen = np.argmax(losses <= losses.min(axis=1, keepdims=True) * (1 + NEGLIGIBLE), axis=1)
        better = losses[rows, chosen] < self._best * (1 - NEGLIGIBLE)
        self._best = np.where(better, losses[rows, chosen], self._best)
        self.factors = np.where(better, candidates[:, rows, chosen], self.factors)
