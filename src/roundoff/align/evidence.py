"""Evidence that two tensors are one: how well their values agree, and how much that says."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roundoff.align.layout import Floats
from roundoff.align.pairing import Layout

# Fingerprints: a few standardised elements of each tensor, so that one matrix product correlates all.

SAMPLES = 2048
"""Elements in a fingerprint."""

SHORT = 3
"""Up to this many elements any two tensors correlate well, so that only their plain values can speak."""

_CONSTANT = 1e-5
"""A standard deviation this small, relative to the largest value, is rounding and not signal."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprints of several tensors at the same positions, one per row.

    Attributes:
        owners: Whose each row is; any number the caller understands.
        unit: Elements minus their mean, of length one; zero for tensors that are (nearly) constant or short.
            Shape (tensors, elements).
        mean: Mean of each row.
        deviation: Standard deviation of each row.
        effective: How many independent, evenly strong elements each row is worth: few when a handful of
            outliers make up all of its variance.
        head: The first elements as they are, all there is to know of a constant or short tensor.
            Shape (tensors, up to SHORT).
    """

    owners: tuple[int, ...]
    unit: npt.NDArray[np.float32]
    mean: Floats
    deviation: Floats
    effective: Floats
    head: Floats

    def subset(self, wanted: Collection[int]) -> "Fingerprints":
        """The rows of the owners wanted."""
        rows = [row for row, owner in enumerate(self.owners) if owner in wanted]
        return Fingerprints(
            tuple(self.owners[row] for row in rows),
            self.unit[rows],
            self.mean[rows],
            self.deviation[rows],
            self.effective[rows],
            self.head[rows],
        )

    @property
    def flat(self) -> npt.NDArray[np.bool_]:
        """Which rows cannot be correlated."""
        return np.asarray(self.effective == 0)


def joined(parts: Sequence[Fingerprints]) -> Fingerprints:
    """Fingerprints at the same positions, one after the other."""
    return Fingerprints(
        tuple(owner for part in parts for owner in part.owners),
        np.concatenate([part.unit for part in parts]),
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.deviation for part in parts]),
        np.concatenate([part.effective for part in parts]),
        np.concatenate([part.head for part in parts]),
    )


def fingerprints(rows: Mapping[int, Floats]) -> Fingerprints:
    """Standardise sampled elements: one row per owner, all of one length."""
    values = np.stack(list(rows.values()))
    largest = np.abs(values).max(axis=1)
    # In units of the largest value no square over- or underflows.
    scaled = values / np.where(largest > 0, largest, 1.0)[:, None]
    mean = scaled.mean(axis=1)
    scaled -= mean[:, None]
    squares = scaled * scaled
    variance = squares.mean(axis=1)
    flat = (variance <= _CONSTANT**2) | (values.shape[1] <= SHORT)
    safe = np.where(flat, 1.0, variance)
    kurtosis = np.maximum((squares * squares).mean(axis=1) / safe**2, 1.0)
    length = values.shape[1]
    unit = np.where(flat[:, None], 0.0, scaled / np.sqrt(safe * length)[:, None])
    return Fingerprints(
        owners=tuple(rows),
        unit=unit.astype(np.float32),
        mean=mean * largest,
        deviation=np.sqrt(variance) * largest,
        effective=np.where(flat, 0.0, length * np.minimum(1.0, 2.0 / kurtosis)),
        head=values[:, :SHORT],
    )


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
class MatchEvidence:
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
) -> list[MatchEvidence]:
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
) -> list[MatchEvidence]:
    products = reference.unit @ candidate.unit.T
    found = []
    for row, column in _best(products, least=LEAST_CORRELATION):
        correlation = float(products[row, column])
        with np.errstate(all="ignore"):  # scales may be as far apart as floats can be
            gain = candidate.deviation[column] / reference.deviation[row]
            shift = (candidate.mean[column] - reference.mean[row]) / reference.deviation[row]
            difference = shift**2 + (1 - gain) ** 2 + 2 * gain * (1 - correlation)
        found.append(
            MatchEvidence(
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
) -> list[MatchEvidence]:
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
            MatchEvidence(
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


# Choosing one partner for each tensor so that the evidence as a whole is strongest.

Choice = dict[int, MatchEvidence]
"""The evidence chosen, by index of the reference tensor."""

_SWEEPS = 20
"""Rounds of exchanges; two or three are usual, and every exchange helps, so that it ends by itself."""

_TIE_DIGITS = 6
"""Weights that agree to so many digits are equal."""


def assign(evidence: Sequence[MatchEvidence], weights: Mapping[tuple[int, int], float]) -> Choice:
    """One-to-one choice of high total weight: the strongest first, then exchanges while they help.

    Args:
        evidence: At most one item per pair; the order decides between equal weights.
        weights: Weight of each pair, not negative.
    """
    matching = _Matching(evidence, weights)
    for _ in range(_SWEEPS):
        if not sum(matching.improve(row) for row in matching.rows):
            break
    return matching.chosen


class _Matching:
    """A one-to-one choice that can be improved."""

    def __init__(self, evidence: Sequence[MatchEvidence], weights: Mapping[tuple[int, int], float]) -> None:
        self.weights = weights
        self.chosen: Choice = {}
        self.taken: Choice = {}
        self.rows: dict[int, list[MatchEvidence]] = defaultdict(list)
        for item in sorted(evidence, key=lambda item: -round(weights[item.key], _TIE_DIGITS)):
            self.rows[item.reference].append(item)
            if item.reference not in self.chosen and item.candidate not in self.taken:
                self._choose(item)

    def improve(self, row: int) -> bool:
        """Give `row` a partner that another has, if what the other then takes makes up for it."""
        mine = self.chosen.get(row)
        for wanted in self.rows[row]:
            theirs = self.taken.get(wanted.candidate)
            if theirs is None or theirs is mine:
                continue
            instead = self._instead(theirs, freed=mine)
            gain = self._weight(wanted) + self._weight(instead) - self._weight(theirs) - self._weight(mine)
            if gain > 10**-_TIE_DIGITS:
                for item in (theirs, mine):
                    if item:
                        del self.chosen[item.reference], self.taken[item.candidate]
                for item in (wanted, instead):
                    if item:
                        self._choose(item)
                return True
        return False

    def _instead(self, theirs: MatchEvidence, *, freed: MatchEvidence | None) -> MatchEvidence | None:
        """The best that the owner of `theirs` can take when it loses that and `freed` becomes free."""
        for item in self.rows[theirs.reference]:
            if item.candidate not in self.taken or (freed and item.candidate == freed.candidate):
                return item
        return None

    def _choose(self, item: MatchEvidence) -> None:
        self.chosen[item.reference] = self.taken[item.candidate] = item

    def _weight(self, item: MatchEvidence | None) -> float:
        return self.weights[item.key] if item else 0.0


# Using the order of tensors to tell apart those that their values cannot.

_LEAST_ANCHORS = 8
_AGREEMENT = 0.9
"""Share of neighbouring sure pairs that must come in the same order on both sides."""

_FARTHEST = 5.0
"""Distance beyond which being out of place counts no more."""


def order_prior(anchors: Sequence[tuple[int, int]]) -> Callable[[MatchEvidence], float]:
    """Log-prior of a match from its place among sure pairs (reference index, candidate index).

    Zero for all unless both sides evidently list their tensors in the same order. Both then begin together.
    """
    if len(anchors) < _LEAST_ANCHORS:
        return lambda _: 0.0
    known = sorted((candidate, reference) for reference, candidate in anchors)
    candidates, references = np.array([(-1, -1), *known], dtype=np.float64).T
    if np.mean(np.diff(references) > 0) < _AGREEMENT:
        return lambda _: 0.0

    def prior(item: MatchEvidence) -> float:
        beyond = max(item.candidate - candidates[-1], 0.0)
        expected = float(np.interp(item.candidate, candidates, references)) + beyond
        return -math.log1p(min(abs(item.reference - expected), _FARTHEST))

    return prior
