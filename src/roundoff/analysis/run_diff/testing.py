"""Whether the change of one score can be chance."""

from dataclasses import dataclass

import numpy as np

from roundoff.analysis.run_diff.readings import Reading
from roundoff.core.run_diff import Pairing
from roundoff.core.student import paired_probability, unpaired_probability
from roundoff.core.tensors import Array

__all__ = ["Tested", "compare_scores"]


@dataclass(frozen=True, slots=True)
class Tested:
    """A score in both runs.

    Attributes:
        before: In decibels.
        after: In the other run.
        samples: Samples, or pairs of them, that were tested; 0 when none could be.
        probability: Of a change like this by chance, not yet corrected for other rows; None when not tested.
        identical: Whether every sample has the very same score, so that there is nothing to test.
    """

    before: float | None
    after: float | None
    samples: int = 0
    probability: float | None = None
    identical: bool = False

    @property
    def change_db(self) -> float | None:
        """By how much it is better."""
        return None if self.before is None or self.after is None else self.after - self.before


def compare_scores(before: Reading, after: Reading, pairing: Pairing) -> Tested:
    """Compare one score of two runs, sample by sample where that is possible."""
    totals = Tested(before.value, after.value, identical=before.value == after.value and before.value is not None)
    if pairing == "none":
        return totals
    left, right = _numbers(before, after) if pairing == "paired" else (_array(before), _array(after))
    if pairing == "paired":
        known = ~(np.isnan(left) | np.isnan(right))
        left, right = left[known], right[known]
        probability = paired_probability(left, right)
    else:
        left, right = left[~np.isnan(left)], right[~np.isnan(right)]
        probability = unpaired_probability(left, right)
    if not left.size or not right.size:
        return totals
    samples = 0 if probability is None else int(min(left.size, right.size))
    identical = left.size == right.size and bool((left == right).all())
    return Tested(float(left.mean()), float(right.mean()), samples, probability, identical)


def _array(reading: Reading) -> Array:
    return np.asarray(reading.values, dtype=np.float64)


def _numbers(before: Reading, after: Reading) -> tuple[Array, Array]:
    """Scores of the samples that both have, in the same order."""
    if before.names == after.names:
        return _array(before), _array(after)
    ours = dict(zip(before.names, before.values, strict=True))
    theirs = dict(zip(after.names, after.values, strict=True))
    common = [name for name in ours if name in theirs]
    return (
        np.asarray([ours[name] for name in common], dtype=np.float64),
        np.asarray([theirs[name] for name in common], dtype=np.float64),
    )
