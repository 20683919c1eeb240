"""Many samples at once: sums over the rows of two tables, one row for each sample.

`roundoff.measure.pairs` measures one pair at a time and everything of it. Outputs of a network are small and many:
here all rows are summed by a few calls of numpy, without distributions, extremes and channels. On 64 rows that is
10 times faster than `measure_pair` for each at 1,000 values a row, and 100 times at 10. What is gathered of
a row is kept as numbers in an array, so that samples can be merged, stored and scored later by any metric that
`ROW_FIELDS` serves.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.classes import index_pair
from roundoff.measure.metrics import Metric, ratio_db
from roundoff.measure.pairs import NOTHING, Field, PairSums, SideSums

ROW_FIELDS: frozenset[Field] = frozenset(
    {
        "reference_energy",
        "candidate_energy",
        "error_energy",
        "product",
        "abs_error",
        "max_abs_error",
        "relative_errors",
        "near_counts",
    }
)
"""What is gathered of each row."""

# Elements of a row, and of all rows, that are summed at a time: longer sums would start BLAS's threads, and larger
# arrays would be taken from the system and given back each time.
_PIECE, _BLOCK = 8192, 1 << 13
# Relative errors below these are counted; see `roundoff.measure.pairs`.
_NEAR, _FAIR = 1e-3, 5e-3

# How the numbers of a row are laid out: counts (compared, left out, not finite in reference and candidate, with a
# relative error, near, fair), sums (energies of reference and candidate, product, energy of the error, absolute
# and relative errors), largest (absolute, relative error).
_COUNTS, _SUMS, _LARGEST = slice(0, 7), slice(7, 13), slice(13, 15)
ROW_NUMBERS = 15
"""Numbers that are kept of a row."""


class RowMeter:
    """Measures samples that were run together.

    Args:
        metrics: What the sums are for.

    Attributes:
        counts_near: Whether it counts what is near, which takes as long as all sums.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.counts_near = any("near_counts" in metric.needs for metric in metrics)

    def measure(self, references: Sequence[Array], candidates: Sequence[Array], count: int) -> Array:
        """Sums of so many samples.

        Args:
            references: Each output as it should be, all samples one after the other.
            candidates: Each output as it is.
            count: How many samples.

        Returns:
            Of shape (samples, outputs, `ROW_NUMBERS`); NaN where shapes differ.
        """
        found = np.full((count, len(references), ROW_NUMBERS), np.nan)
        for place, (reference, candidate) in enumerate(zip(references, candidates, strict=True)):
            if reference.shape == candidate.shape:
                sides = index_pair(reference, candidate)
                tables = (side.reshape(count, side.size // max(1, count)) for side in sides)
                found[:, place] = row_table(*tables, near=self.counts_near)
        return found


def sample_scores(table: Array, metrics: Sequence[Metric]) -> Array:
    """Score each sample alone.

    Args:
        table: Of shape (samples, outputs, `ROW_NUMBERS`).
        metrics: The metrics.

    Returns:
        Of shape (samples, outputs, metrics); NaN where shapes differ or nothing is a number.
    """
    values = np.full((*table.shape[:2], len(metrics)), np.nan)
    for place in np.ndindex(table.shape[:2]):
        sums = sums_of_row(table[place])
        if sums is not None:
            values[place] = [metric.value(sums) for metric in metrics]
    return values


def merged_rows(table: Array) -> PairSums | None:
    """All rows of a table as if they were one; None where none was measured. Rows of other shapes have no part."""
    known = table[~np.isnan(table[:, 0])]
    if not len(known):
        return None
    sums = known.sum(axis=0)
    sums[_LARGEST] = known[:, _LARGEST].max(axis=0)
    return sums_of_row(sums)


def sums_of_row(row: Array) -> PairSums | None:
    """The numbers of a row in the form that metrics are functions of; None where shapes differ."""
    numbers: list[float] = row.tolist()
    if math.isnan(numbers[0]):
        return None
    counts = [int(number) for number in numbers[_COUNTS]]
    reference, candidate, product, error, absolute, relative = numbers[_SUMS]
    largest = numbers[_LARGEST]
    return PairSums(
        count=counts[0],
        excluded=counts[1],
        reference=_side(reference, nonfinite=counts[2]),
        candidate=_side(candidate, nonfinite=counts[3]),
        product=product,
        error_energy=error,
        abs_error=absolute,
        relative_error=relative,
        max_abs_error=largest[0],
        max_relative_error=largest[1],
        relative_count=counts[4],
        within_1e3=counts[5],
        within_5e3=counts[6],
        offers=ROW_FIELDS,
    )


def _side(energy: float, *, nonfinite: int) -> SideSums:
    limit = 0.0 if energy == 0 else math.nan
    return SideSums(energy=energy, low=limit, high=limit, nonfinite=nonfinite)


def row_energies(table: Array) -> tuple[Array, Array]:
    """Energies of the reference and of the error, each of the shape of the table without its last axis."""
    sums = table[..., _SUMS]
    return sums[..., 0], sums[..., 3]


def table_sqnr_db(table: Array) -> Array:
    """SQNR of each sample and output, of the shape of the table without its last axis; NaN where there is none."""
    sums = table[..., _SUMS]
    pairs = sums[..., [0, 3]].reshape(-1, 2).tolist()
    found = [math.nan if math.isnan(signal) else ratio_db(signal, noise) for signal, noise in pairs]
    return np.array(found).reshape(table.shape[:-1])


def row_table(reference: Array, candidate: Array, *, near: bool = True) -> Array:
    """Compare two tables row by row: numbers of shape (rows, `ROW_NUMBERS`).

    Sums are float64, in sums of at most 8,192 terms that are added up.

    Args:
        reference: Of shape (rows, elements), any real type.
        candidate: Of the same shape.
        near: Count how many elements are near one another.
    """
    rows, length = reference.shape
    width = min(_PIECE, length)
    step = min(rows, max(1, _BLOCK // max(1, width)))
    space = np.empty((5, step, width))
    found = np.zeros((rows, ROW_NUMBERS))
    for start in range(0, rows, step):
        sums = _RowSums(found[start : start + step], near=near)
        for at in range(0, length, _PIECE):
            part = slice(start, start + step), slice(at, at + _PIECE)
            high, wide = reference[part].shape
            work = space[:, :high, :wide]
            work[0], work[1] = reference[part], candidate[part]
            sums.add(work)
    return found


class _RowSums:
    """Running sums of a few rows, kept in the rows of a table."""

    def __init__(self, table: Array, *, near: bool) -> None:
        self._near = near
        self._counts, self._sums, self._largest = (table.T[part] for part in (_COUNTS, _SUMS, _LARGEST))

    def add(self, work: Array) -> None:
        """Take in a piece of each row.

        Args:
            work: Of shape (5, rows, elements): reference, candidate, and room for the error, its magnitude and its
                share of the reference. All are overwritten.
        """
        x, y, error, magnitude, relative = work
        keep = None
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            np.subtract(x, y, out=error)
            if not np.isfinite(error).all():
                keep = self._without_nonfinite(x, y)
                np.subtract(x, y, out=error)
            np.abs(error, out=magnitude)
            zeros = np.abs(x, out=relative) == 0
            np.divide(magnitude, relative, out=relative)
            if zeros.any():
                relative[zeros] = 0.0
            self._sums += [
                np.vecdot(x, x), np.vecdot(y, y), np.vecdot(x, y), np.vecdot(error, error),
                magnitude.sum(axis=1), relative.sum(axis=1),
            ]  # fmt: skip
        self._counts[0] += x.shape[1] if keep is None else keep.sum(axis=1)
        self._counts[4] += x.shape[1] - zeros.sum(axis=1)
        if self._near:
            # Elements without a relative error are near when they are equal; what was left out is not counted.
            equal = ~zeros | (magnitude == 0) if keep is None else (~zeros | (magnitude == 0)) & keep
            self._counts[5:] += [((relative < bound) & equal).sum(axis=1) for bound in (_NEAR, _FAIR)]
        np.maximum(self._largest, [magnitude.max(axis=1), relative.max(axis=1)], out=self._largest)

    def _without_nonfinite(self, x: Array, y: Array) -> Array:
        """Set to zero, in place, what is not finite on either side; gives what is left."""
        finite = np.isfinite(x), np.isfinite(y)
        keep = finite[0] & finite[1]
        x[~keep] = y[~keep] = 0.0
        self._counts[1:4] += [(~side).sum(axis=1) for side in (keep, *finite)]
        return keep


def mean_of_scores(values: Collection[float], perfect: float | None) -> float | None:
    """The mean of scores; None when there is none.

    What is NaN has no part in it; nor has a perfect score that is infinite, unless all are.
    """
    known = [value for value in values if not math.isnan(value)]
    imperfect = [value for value in known if not (math.isinf(value) and value == perfect)]
    if imperfect:
        return math.fsum(imperfect) / len(imperfect)
    return known[0] if known else None


class SampleMean:
    """The mean of a metric over samples, taken in one by one; see `mean_of_scores`.

    Attributes:
        worst: The worst value so far; None before there is one.
        worst_sample: The sample it is from.
    """

    worst: float | None
    worst_sample: str

    def __init__(self, metric: Metric) -> None:
        self._perfect = metric.perfect
        self._sign = -1.0 if metric.direction == "lower" else 1.0
        self._total = 0.0
        self._count = self._perfect_count = 0
        self.worst, self.worst_sample = None, ""

    def add(self, value: float, sample: str) -> None:
        """Take in the value of one sample."""
        if math.isnan(value):
            return
        if math.isinf(value) and value == self._perfect:
            self._perfect_count += 1
        else:
            self._total += value
            self._count += 1
        if self.worst is None or self._sign * value < self._sign * self.worst:
            self.worst, self.worst_sample = value, sample

    @property
    def value(self) -> float | None:
        """The mean; None when no sample has a score."""
        if self._count:
            return self._total / self._count
        return self._perfect if self._perfect_count else None


class SampleTally:
    """A metric over samples that go by, with the worst of them.

    Args:
        metric: Says whether sums are merged or scores averaged.

    Attributes:
        samples: The mean over samples, and the worst of them.
        sums: Of all samples together; None before there is one.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self.samples = SampleMean(metric)
        self.sums: PairSums | None = None

    def add(self, sums: PairSums, sample: str) -> None:
        """Take in one sample."""
        self.samples.add(self._metric.value(sums), sample)
        self.sums = sums if self.sums is None else self.sums.merge(sums)

    def add_equal(self, sample: str) -> None:
        """Take in one sample in which both sides are the same; it was not summed up."""
        if self._metric.perfect is not None:
            self.samples.add(self._metric.perfect, sample)
        self.sums = self.sums or NOTHING

    @property
    def value(self) -> float | None:
        """The score; None when there is none."""
        if self._metric.per_sample:
            return self.samples.value
        if self.sums is None:
            return None
        value = self._metric.value(self.sums)
        return None if math.isnan(value) else value
