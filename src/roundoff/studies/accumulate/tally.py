"""Scores of one place on one curve, taken in sample by sample."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.light_pairs import ErrorTotals, Job, LightMeter, noise_ratio
from roundoff.measure.metrics import Metric, ratio_db, sample_sqnr_db
from roundoff.measure.pairs import PairMoments, channel_axis_of, measure_pair

__all__ = ["Pair", "PlaceTally", "SampleMean", "compare"]

Pair = tuple[Array, Array]
"""A reference and a candidate."""

# What these need is in the few sums of a `LightMeter`; all others take a full measurement.
_FROM_FEW_SUMS = frozenset(
    {"cosine", "sqnr_db", "relative_euclidean", "norm_error", "mse", "rmse", "max_abs_error", "chebyshev"}
)
# Blocks of so many candidates stay in the cache of a core.
_AT_A_TIME = 6


class SampleMean:
    """The mean of a metric over samples.

    Samples without a score have no part in it; nor have perfect ones of a metric whose perfect value is infinite,
    unless all are perfect.

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


class PlaceTally:
    """What was seen at one place of one curve.

    Attributes:
        mean: The metric.
        nonfinite: How many values are not finite in the candidate but in float.
        nonfinite_in_float: How many values are not finite in float.
        unlike: How many samples have another shape than in float.
        sample_sqnr_db: Signal to noise of each sample, NaN where there is none.
    """

    def __init__(self, metric: Metric) -> None:
        self.mean = SampleMean(metric)
        self.nonfinite = self.nonfinite_in_float = self.unlike = 0
        self.sample_sqnr_db: list[float] = []
        self._metric = metric
        self._reference = self._error = 0.0
        self._seen = False

    def add(self, moments: PairMoments | None, sample: str) -> None:
        """Take in one sample; None stands for shapes that differ."""
        if moments is None:
            self.unlike += 1
            self.sample_sqnr_db.append(math.nan)
            return
        more = max(0, moments.candidate.nonfinite - moments.reference.nonfinite)
        self.sample_sqnr_db.append(sample_sqnr_db(moments))
        # Where nothing is finite in float there is nothing to compare with.
        self._seen = self._seen or moments.count > 0 or more > 0 or not moments.excluded
        self._reference += moments.reference.square
        self._error += moments.square_error
        self.nonfinite += more
        self.nonfinite_in_float += moments.reference.nonfinite
        if moments.count:
            self.mean.add(self._metric.compute(moments), sample)
        elif not moments.excluded and self._metric.perfect is not None:
            self.mean.add(self._metric.perfect, sample)

    def add_equal(self, sample: str) -> None:
        """Take in one sample in which both are the same."""
        self._seen = True
        self.sample_sqnr_db.append(math.inf)
        if self._metric.perfect is not None:
            self.mean.add(self._metric.perfect, sample)

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of all samples together."""
        if not self._seen:
            return None
        return -ratio_db(noise_ratio(self._reference, self._error, (0, self.nonfinite)), 1.0)


def compare(meter: LightMeter, metric: Metric, pairs: Sequence[Pair]) -> list[PairMoments | None]:
    """Compare references with candidates; those of another shape give None.

    Args:
        meter: Measures where few sums are enough.
        metric: What the sums are for.
        pairs: References, each with a candidate; neighbours with the same reference are measured together.
    """
    found: list[PairMoments | None] = [None] * len(pairs)
    alike = [at for at, (reference, candidate) in enumerate(pairs) if candidate.shape == reference.shape]
    if metric.name not in _FROM_FEW_SUMS:
        for at in alike:
            reference, candidate = pairs[at]
            found[at] = measure_pair(reference, candidate, channel_axis=channel_axis_of(reference.shape))
        return found
    totals = {at: ErrorTotals() for at in alike}
    with np.errstate(all="ignore"):
        meter.measure(list(_jobs(pairs, totals)))
    for at, sums in totals.items():
        found[at] = sums.moments()
    return found


def _jobs(pairs: Sequence[Pair], totals: Mapping[int, ErrorTotals]) -> Iterator[Job]:
    for _, group in groupby(totals, key=lambda at: id(pairs[at][0])):
        for part in _batched(group, _AT_A_TIME):
            yield Job(pairs[part[0]][0], [pairs[at][1] for at in part], [totals[at] for at in part])


def _batched(items: Iterable[int], size: int) -> Iterator[list[int]]:
    """Items in groups of at most so many."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group
