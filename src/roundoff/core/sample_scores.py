"""Scores of single samples, as documents keep them: enough to tell a change from chance, and no more."""

from collections.abc import Iterable
from itertools import islice

__all__ = ["MOST_KEPT", "keep_samples"]

MOST_KEPT = 64
"""Of more samples the first ones are kept: a test gains little from more, and documents stay small."""

# A thousandth of a decibel is far below any change that matters.
_DECIMALS = 3


def keep_samples(decibels: Iterable[float]) -> tuple[float, ...]:
    """What a document keeps of a score in decibels, sample by sample in their order; NaN where there is none."""
    return tuple(round(value, _DECIMALS) for value in islice(decibels, MOST_KEPT))
