"""Evidence that two tensors are one: how well their values agree, and how much that says."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roundoff.align.fingerprints import Fingerprints
from roundoff.core.pairing import Layout

__all__ = ["LEAST_CORRELATION", "LEAST_NOISE", "SAME_VALUE", "Evidence", "compare"]

LEAST_NOISE = 1e-9
"""Residuals below this are equal whatever else is known."""

LEAST_CORRELATION = 0.5
"""Below this, tensors are not considered to be one."""

_MOST_RIVALS = 6
"""So many best partners are kept for each tensor; more than that are never told apart."""

_ROUNDING = 2e-6
"""Unexplained variance below this is the rounding of float32 products."""

SAME_VALUE = 0.01
"""Constants and short tensors are considered one up to this squared relative difference (10 %)."""

_SHORT_EFFECTIVE = 3.0
"""What agreement of a constant or short tensor is worth, in independent elements."""

_SHARPNESS = 4.0
"""Most that a ratio of residuals may count, as an exponent. A likelihood would take half the number of
elements, but errors of neighbouring layers are not independent."""

_ELEMENTS_PER_SHARPNESS = 8.0
"""Short tensors count for less: the ratio of their residuals is uncertain itself."""

_PLAIN = 10.0
"""Values agree without gain and offset when these would not reduce the difference by more than this factor;
anything less is a coincidence of scales."""

_OTHER_LAYOUT = math.log(6.0)
"""Log-odds of equal shapes against any change of layout, where the values cannot tell (Flatten, Squeeze)."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for one reference tensor and one candidate tensor being the same.

    Attributes:
        reference: Index of the tensor in the reference.
        candidate: Index of the tensor in the candidate.
        layout: Change of layout in which they agree; None when the shapes are equal.
        residual: Share of the variance that gain and offset leave unexplained (1 - correlation squared).
        difference: Mean squared difference as they stand, relative to the reference's variance.
        effective: How many independent elements the residual rests on.
        trials: How many comparisons it is the best of.
        constant: Constant or very short, so that only plain equality was seen.
    """

    reference: int
    candidate: int
    layout: Layout | None
    residual: float
    difference: float
    effective: float
    trials: int
    constant: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """Both indices."""
        return self.reference, self.candidate

    def strength(self, noise: float) -> float:
        """Log-likelihood, up to a constant, when differences up to `noise` are to be expected.

        Gain and offset are free (the candidate may hold integer codes), but where values agree without
        them that is told apart from where they do not.
        """
        sharpness = min(_SHARPNESS, self.effective / _ELEMENTS_PER_SHARPNESS)
        plain = min(self.difference, 1.0) if self.agrees_plainly(noise) else 1.0
        agreement = -sharpness * math.log(self.residual + noise) - math.log(plain + noise)
        return agreement - (_OTHER_LAYOUT if self.layout else 0.0)

    def agrees_plainly(self, noise: float) -> bool:
        """Whether the values agree without gain and offset, as far as `noise` lets one tell."""
        return self.difference <= _PLAIN * (self.residual + noise)

    def beyond_chance(self) -> float:
        """Probability that the agreement is no accident among all that was tried."""
        power = max(self.effective / 2 - 1, 0.0)
        return 1 / (1 + self.trials * math.pow(self.residual, power))


def compare(
    reference: Fingerprints, candidate: Fingerprints, *, layout: Layout | None, trials: int
) -> list[Evidence]:
    """Compare each with each and keep the best few of every row and column.

    Args:
        reference: Rows of the reference.
        candidate: Rows of the candidate, as `layout` shows them.
        layout: Noted in the evidence.
        trials: In how many comparisons each of these tensors takes part, noted in the evidence.
    """
    return [
        *_correlated(reference, candidate, layout=layout, trials=trials),
        *_equal(reference, candidate, layout=layout, trials=trials),
    ]


def _correlated(
    reference: Fingerprints, candidate: Fingerprints, *, layout: Layout | None, trials: int
) -> list[Evidence]:
    products = reference.unit @ candidate.unit.T
    found = []
    for row, column in _best(products, least=LEAST_CORRELATION):
        correlation = float(products[row, column])
        with np.errstate(all="ignore"):  # scales may be as far apart as floats can be
            gain = candidate.deviation[column] / reference.deviation[row]
            shift = (candidate.mean[column] - reference.mean[row]) / reference.deviation[row]
            difference = shift**2 + (1 - gain) ** 2 + 2 * gain * (1 - correlation)
        found.append(
            Evidence(
                reference.owners[row],
                candidate.owners[column],
                layout,
                residual=max(1 - correlation**2, _ROUNDING),
                difference=max(float(difference), _ROUNDING),
                effective=float(min(reference.effective[row], candidate.effective[column])),
                trials=trials,
            )
        )
    return found


def _equal(
    reference: Fingerprints, candidate: Fingerprints, *, layout: Layout | None, trials: int
) -> list[Evidence]:
    rows, columns = np.flatnonzero(reference.flat), np.flatnonzero(candidate.flat)
    left, right = reference.head[rows], candidate.head[columns]
    largest = np.maximum(np.abs(left).max(axis=1, initial=0.0), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        gaps = (left[:, None, :] - right[None, :, :]) / largest[:, None, None]
        relative = (gaps**2).sum(axis=2)
    found = []
    for row, column in _best(-relative, least=-SAME_VALUE):
        gap = max(float(relative[row, column]), _ROUNDING)
        found.append(
            Evidence(
                reference.owners[rows[row]],
                candidate.owners[columns[column]],
                layout,
                residual=gap,
                difference=gap,
                effective=_SHORT_EFFECTIVE,
                trials=trials,
                constant=True,
            )
        )
    return found


def _best(scores: npt.NDArray[np.floating], *, least: float) -> list[tuple[int, int]]:
    """Places of the highest scores of each row and each column that reach `least`."""
    if not scores.size:
        return []
    places: set[tuple[int, int]] = set()
    for turned, table in ((False, scores), (True, scores.T)):
        keep = min(_MOST_RIVALS, table.shape[1])
        best = np.argpartition(-table, keep - 1, axis=1)[:, :keep]
        lines, ranks = np.nonzero(np.take_along_axis(table, best, axis=1) >= least)
        others = best[lines, ranks]
        pairs = zip(others, lines, strict=True) if turned else zip(lines, others, strict=True)
        places.update((int(row), int(column)) for row, column in pairs)
    return sorted(places)
